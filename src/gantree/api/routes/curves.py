"""The route of a job's curve: step time and loss over its attempts."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.http.response_models.jobs import CurveResponse
from gantree.api.http.responses import documented, json_response
from gantree.api.views import queries
from gantree.api.views.progress_view import curve_points

MOST_ATTEMPTS = 20
"""The latest so many are read."""


def router(backend: QueryBackend) -> APIRouter:
    """The routes of this module."""
    return reads(backend)


def reads(backend: QueryBackend) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1/jobs", tags=["jobs"])

    @routes.get(
        "/{word}/curve",
        **documented(CurveResponse, "Step time and loss over time."),
        **needs(Need.READ),
    )
    async def curve(
        word: str,
        caller: CurrentCaller,
        attempt: Annotated[int | None, Query(ge=1, description="None: the last twenty.")] = None,
    ) -> Any:
        """What a job reported by `gantree.training.progress`, over time and attempt by attempt."""
        job, _, attempts = await backend.read_inline(queries.log_of, caller, word)
        latest = range(max(1, attempts - MOST_ATTEMPTS + 1), attempts + 1)
        chosen = latest if attempt is None else (attempt,)
        return json_response(await asyncio.to_thread(curves, backend, job, chosen))

    return routes


def curves(backend: QueryBackend, job: str, attempts: Sequence[int]) -> dict[str, Any]:
    """The curves of a job's attempts. It reads files."""
    found = [(attempt, curve_points(backend.curve(job, attempt))) for attempt in attempts]
    rows = [{"attempt": attempt, "points": points} for attempt, points in found if points]
    return {"job": job, "attempts": rows}
