"""Routes of the whole: the cluster, the timeline of facts, the daemon's health."""

import json
import os
from collections.abc import AsyncIterator
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from gantree import __version__
from gantree.api import views
from gantree.api.answers import answer, comes_as, tells
from gantree.api.backend import Backend
from gantree.api.models import ClusterTold, HealthTold
from gantree.control.controller import Controller

FACTS_AT_ONCE = 500
LARGEST_SEQ = 2**63 - 1
FACT_LINE = '{"seq": 7, "fact": "GangPlaced", "at": 1795300000.1, "data": {"job": "llama-7b"}}\n'

Json = dict[str, Any]


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["site"])

    @routes.get("/cluster", **tells(ClusterTold, "The site."))
    async def cluster() -> Response:
        """The site as it is now, and who holds which GPU."""
        return answer(await backend.ask(lambda controller: views.cluster(controller.ledger)))

    @routes.get("/facts", **comes_as("application/x-ndjson", "A line for each.", FACT_LINE))
    async def facts(
        after: Annotated[int, Query(ge=0, le=LARGEST_SEQ)] = 0, follow: bool = False
    ) -> StreamingResponse:
        """The timeline: each fact after a seq, oldest first; with follow for ever."""
        lines = _fact_lines(backend, after, follow=follow)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    @routes.get("/health", **tells(HealthTold, "The daemon."))
    async def health() -> Response:
        """Who answers, and what it has done."""
        told = await backend.ask(lambda controller: _health(controller, backend.started_at))
        return answer(told)

    return routes


async def _fact_lines(backend: Backend, after: int, *, follow: bool) -> AsyncIterator[str]:
    while True:
        ticket = backend.loop.changes.ticket()
        start = after
        page = await backend.ask(
            lambda controller: tuple(islice(controller.journal.facts(start), FACTS_AT_ONCE))  # noqa: B023 - awaited before start changes
        )
        if page:
            after = page[-1].seq
            yield "".join(json.dumps(views.fact(recorded)) + "\n" for recorded in page)
        elif not follow or backend.loop.stopping:
            return
        else:
            await ticket.wait()


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
