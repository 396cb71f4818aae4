"""The page of the fleet: what GPU time was for, useful time of queues, and what each of them held."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.accounting.purposes import sums_of
from gantree.accounting.usage import ALLOCATED_FOR
from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.views import usage_history_view
from gantree.control.requests.read_view import ReadView
from gantree.web.pages.fleet.heat import heat
from gantree.web.pages.fleet.idle_jobs import idle_jobs
from gantree.web.pages.fleet.purposes import purposes_chart
from gantree.web.pages.frame import page_router, render
from gantree.web.pages.periods import PERIODS, Period, choices

Json = dict[str, Any]


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page."""
    routes = page_router()

    @routes.get("/fleet", **needs(Need.KNOWN))
    async def fleet(request: Request, caller: CurrentCaller, period: Period = "24h") -> Response:
        """The page."""
        whole, queues, idle = await reads.read_adaptive(answers, caller, period, asker=caller.name)
        of_all = whole["rows"][0] if whole["rows"] else None
        return render(
            request,
            caller,
            "fleet.html",
            period=period,
            allocated_for=ALLOCATED_FOR,
            periods_shown=choices(),
            sums=sums_of(of_all) if of_all else None,
            purposes=purposes_chart(whole, of_all) if of_all else None,
            heat=heat(queues, queues["rows"]),
            queues=[sums_of(row) for row in queues["rows"]],
            idle=idle,
        )

    return routes


def answers(view: ReadView, caller: Caller, period: str) -> tuple[Json, Json, list[Json]]:
    """Use of all and by queue, of a period until now, and jobs that are idle now."""
    _, seconds, step = PERIODS[period]
    asked = (step, max(0.0, view.now - seconds), None, None, None)
    return (
        usage_history_view.usage(view, caller, "all", *asked),
        usage_history_view.usage(view, caller, "queue", *asked),
        idle_jobs(view, caller),
    )
