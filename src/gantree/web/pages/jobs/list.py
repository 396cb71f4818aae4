"""The page of jobs: pending ones with reason and start, running ones, ended ones."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.web.pages.frame import page_router, redirect, render
from gantree.web.pages.jobs.rows import JobQuery, Which, job_rows

WORD = Query(max_length=256)


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page."""
    routes = page_router()

    @routes.get("/queue", **needs(Need.KNOWN))
    async def queue(
        request: Request,
        caller: CurrentCaller,
        which: Annotated[Which, Query(alias="list")] = "waiting",
        queue: Annotated[str, WORD] = "",
        user: Annotated[str, WORD] = "",
        find: Annotated[str, WORD] = "",
        page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    ) -> Response:
        """One page of one of the lists. A search of all jobs that names one goes there."""
        query = JobQuery(which, queue or None, user or None, find.strip(), page)
        context = await reads.read(job_rows, query, caller)
        if which == "all" and context["named"] is not None:
            return redirect(request, f"/jobs/{quote(context['named'], safe='')}")
        return render(request, caller, "queue.html", query=query, **context)

    return routes
