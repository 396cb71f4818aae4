"""Routes of monitoring: `/metrics` for Prometheus, `/healthz` and `/readyz` for liveness and readiness probes.

They stand outside `/v1`, where such programs look for them, and name no job.
"""

import asyncio
from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend
from gantree.api.readiness import Readiness
from gantree.control.engine.controller import Controller

LOOK_WITHIN_S = 0.2
"""A scrape waits no longer for new figures of the ledger; it takes the last ones then."""

Json = dict[str, Any]


def router(backend: Backend) -> APIRouter:
    """The metrics."""
    routes = APIRouter(tags=["watching"])
    sampling = _Sampling(backend)

    @routes.get("/metrics", response_class=Response, **needs(Need.SEE_ALL))
    async def metrics() -> Response:
        await sampling.look()
        text = await asyncio.to_thread(generate_latest, backend.controller.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes


def probes(backend: Backend) -> APIRouter:
    """Return the probes, which need no authentication: they reveal nothing about jobs."""
    routes = APIRouter(tags=["watching"])
    readiness = Readiness(backend)

    @routes.get("/healthz", **needs(Need.OPEN))
    async def healthz() -> Json:
        return {"alive": True}

    @routes.get("/readyz", **needs(Need.OPEN))
    async def readyz() -> Json:
        return await readiness.answer()

    return routes


class _Sampling:
    """At most one look at the ledger is under way, however many scrape."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Have the figures taken, and wait a moment for that. A journal that cannot be read leaves them as they are."""
        if self._backend.controller.sampler.is_fresh():
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(
                self._backend.call_controller(Controller.sample_metrics)
            )
        await asyncio.wait({self._task}, timeout=LOOK_WITHIN_S)
