"""Routes of the site: the cluster, the timeline of facts, the daemon's health."""

import json
import os
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from gantree import __version__
from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend, QueryBackend
from gantree.api.http.response_models.site import ClusterResponse, DomainsResponse, HealthResponse
from gantree.api.http.responses import documented, documented_stream, json_response
from gantree.api.streams.streaming import (
    AGAIN_EVERY_S,
    AuthorizedStreamingResponse,
    CurrentStream,
    StreamAuthorization,
)
from gantree.api.views import queries
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import wait_until_set
from gantree.model.errors import Conflict

FACTS_AT_ONCE = 500
MOST_DOMAINS = 1000
LARGEST_SEQ = 2**63 - 1
FACT_LINE = '{"seq": 7, "fact": "GangPlaced", "at": 1795300000.1, "data": {"job": "llama-7b"}}\n'

Json = dict[str, Any]


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = reads(backend)

    @routes.get("/health", **documented(HealthResponse, "The daemon."), **needs(Need.KNOWN))
    async def health() -> Response:
        """Who answers, and what it has done."""
        result = await backend.call_controller(
            lambda controller: _health(controller, backend.started_at)
        )
        return json_response(result)

    return routes


def reads(backend: QueryBackend) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1", tags=["site"])

    @routes.get("/cluster", **documented(ClusterResponse, "The site."), **needs(Need.KNOWN))
    async def cluster(caller: CurrentCaller) -> Response:
        """The site as it is now, and who holds which GPU."""
        return json_response(await backend.read(queries.cluster, caller))

    @routes.get(
        "/cluster/domains",
        **documented(DomainsResponse, "The domains in one domain."),
        **needs(Need.KNOWN),
    )
    async def domains(
        inside: Annotated[
            str | None, Query(max_length=1000, description="A domain or a node; none: the site.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_DOMAINS)] = 200,
    ) -> Response:
        """How full domains are: those one tier below a domain, and what is in each. As large as a screen."""
        return json_response(await backend.read(queries.domains, inside, limit))

    @routes.get(
        "/facts",
        **documented_stream("application/x-ndjson", "A line for each.", FACT_LINE),
        **needs(Need.KNOWN),
    )
    async def facts(
        stream: CurrentStream,
        after: Annotated[int, Query(ge=0, le=LARGEST_SEQ)] = 0,
        follow: bool = False,
    ) -> StreamingResponse:
        """The timeline: each fact after a seq, oldest first; with follow for ever. 409 if they were compacted."""
        gone = await backend.read(queries.compacted_to)
        if after < gone:
            raise Conflict(f"facts up to {gone} were compacted; ask for those after {gone}")
        lines = _fact_lines(backend, stream, after, follow=follow)
        return AuthorizedStreamingResponse(lines, stream, media_type="application/x-ndjson")

    return routes


async def _fact_lines(
    backend: QueryBackend, stream: StreamAuthorization, after: int, *, follow: bool
) -> AsyncIterator[str]:
    while True:
        ticket = backend.ticket()
        last, page = await backend.read(queries.facts, stream.caller, after, FACTS_AT_ONCE)
        if last is not None:
            after = last
            yield "".join(json.dumps(fact) + "\n" for fact in page)
            continue
        if not follow:
            return
        while not await wait_until_set(ticket, AGAIN_EVERY_S):
            await stream.revalidate()
        if backend.stopping:
            return


def _health(controller: Controller, started_at: float) -> Json:
    site = controller.ledger.fabric
    return {
        "version": __version__,
        "pid": os.getpid(),
        "cluster": None if site is None else site.cluster.name,
        "epoch": controller.epoch,
        "turns": controller.journal.turns(),
        "started_at": started_at,
        "set_aside": len(controller.journal.all_set_aside()),
    }
