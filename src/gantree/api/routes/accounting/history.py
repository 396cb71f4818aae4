"""Routes of the history: every job that has ended, use and waits over time."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from gantree.accounting.ended_jobs import JobSearch
from gantree.accounting.steps import Step
from gantree.accounting.usage import By
from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.http.response_models.history import (
    EndedJobRow,
    EndedJobsResponse,
    NodeSignsResponse,
    UsageHistoryResponse,
    WaitHistoryResponse,
)
from gantree.api.http.responses import documented, json_response
from gantree.api.routes.accounting.usage import Moment
from gantree.api.views import node_signs_view
from gantree.api.views.accounting import history_view, usage_history_view

MOST_DAYS = 366
MOST_JOBS = 1000
"""Of one page."""
LARGEST_SEQ = 2**63 - 1
Width = Annotated[
    Step | None,
    Query(
        description="Minutes are kept for 12 hours, hours for 30 days; default: as fits the period."
    ),
]
Text = Annotated[str | None, Query(max_length=256)]
Queue = Annotated[str | None, Query(max_length=256, description="In it, or below it.")]


def router(backend: QueryBackend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/history", tags=["history"])
    _add_ended_jobs(routes, backend)
    _add_usage(routes, backend)
    _add_waits(routes, backend)
    _add_nodes(routes, backend)
    return routes


def _add_ended_jobs(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get(
        "/jobs", **documented(EndedJobsResponse, "A page of ended jobs."), **needs(Need.KNOWN)
    )
    async def ended_jobs(
        caller: CurrentCaller,
        queue: Queue = None,
        user: Text = None,
        name: Annotated[
            str | None,
            Query(max_length=256, description="A name or id, or a pattern with `*` and `?`."),
        ] = None,
        outcome: Annotated[
            list[Literal["succeeded", "failed", "cancelled", "timed-out"]] | None,
            Query(description="Any of these."),
        ] = None,
        since: Moment = None,
        until: Moment = None,
        before: Annotated[
            int | None, Query(ge=0, le=LARGEST_SEQ, description="`next` of the page before.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_JOBS)] = 100,
    ) -> Response:
        """Jobs that have ended, the last that ended first; since and until are of their ends."""
        search = JobSearch(queue, user, name, frozenset(outcome or ()), since, until)
        found = await backend.read_adaptive(
            history_view.ended_jobs, caller, search, before, limit, asker=caller.name
        )
        return json_response(found)

    @routes.get("/jobs/{word}", **documented(EndedJobRow, "The ended job."), **needs(Need.SEE))
    async def ended_job(word: str, caller: CurrentCaller) -> Response:
        """One job that has ended, by id, or the last that ended of a name."""
        return json_response(await backend.read(history_view.ended_job, caller, word))


def _add_usage(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get("/usage", **documented(UsageHistoryResponse, "The steps."), **needs(Need.KNOWN))
    async def usage(
        caller: CurrentCaller,
        by: By = "all",
        step: Width = None,
        since: Moment = None,
        until: Moment = None,
        queue: Queue = None,
        user: Text = None,
    ) -> Response:
        """GPU-seconds there and held, by purpose, starts, ends and preemptions, of each step of a period."""
        query = (by, step, since, until, queue, user)
        found = await backend.read_adaptive(
            usage_history_view.usage, caller, *query, asker=caller.name
        )
        return json_response(found)


def _add_waits(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get("/waits", **documented(WaitHistoryResponse, "The steps."), **needs(Need.KNOWN))
    async def waits(
        caller: CurrentCaller,
        by: Literal["all", "queue", "user"] = "all",
        step: Width = None,
        since: Moment = None,
        until: Moment = None,
        queue: Queue = None,
        user: Text = None,
    ) -> Response:
        """How long jobs had waited that were placed for the first time in each step of a period."""
        query = (by, step, since, until, queue, user)
        found = await backend.read_adaptive(
            usage_history_view.waits, caller, *query, asker=caller.name
        )
        return json_response(found)


def _add_nodes(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get(
        "/nodes", **documented(NodeSignsResponse, "What nodes showed."), **needs(Need.SEE_ALL)
    )
    async def nodes(
        caller: CurrentCaller,
        days: Annotated[int, Query(ge=1, le=MOST_DAYS, description="Up to now.")] = 28,
    ) -> Response:
        """Signs of nodes: faults, time out of use, links that carried less, slow ranks, and who is a lemon."""
        found = await backend.read_forked(node_signs_view.signs_of_nodes, days, asker=caller.name)
        return json_response(found)
