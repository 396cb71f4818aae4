"""The page of the fleet: what GPU time was for, useful time and cost of queues, and jobs that are idle."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.accounting.purposes import sums_of
from gantree.accounting.steps import step_for
from gantree.accounting.usage import ALLOCATED_FOR
from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.views.accounting import usage_history_view
from gantree.control.requests.read_view import ReadView
from gantree.topology.hardware.prices import LIST_PRICES, PriceList
from gantree.web.pages.fleet.heat import heat
from gantree.web.pages.fleet.idle_jobs import idle_jobs
from gantree.web.pages.fleet.purposes import purposes_chart
from gantree.web.pages.fleet.this_month import this_month
from gantree.web.pages.frame import page_router, render
from gantree.web.pages.periods import PERIODS, Period, choices

Json = dict[str, Any]


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page."""
    routes = page_router()

    @routes.get("/fleet", **needs(Need.KNOWN))
    async def fleet(request: Request, caller: CurrentCaller, period: Period = "24h") -> Response:
        """The page."""
        prices = reads.prices.tariff.prices if reads.prices else LIST_PRICES
        whole, queues, idle, month = await reads.read_adaptive(
            answers, caller, period, prices, asker=caller.name
        )
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
            month=month,
            priced_by="the site's prices" if reads.prices else "list prices",
        )

    return routes


def answers(
    view: ReadView, caller: Caller, period: str, prices: PriceList
) -> tuple[Json, Json, list[Json], Json]:
    """Use of all and by queue, of a period until now; jobs that are idle now; the cost of this month."""
    _, seconds = PERIODS[period]
    asked = (step_for(seconds), max(0.0, view.now - seconds), None, None, None)
    return (
        usage_history_view.usage(view, caller, "all", *asked),
        usage_history_view.usage(view, caller, "queue", *asked),
        idle_jobs(view, caller),
        this_month(view, caller, prices),
    )
