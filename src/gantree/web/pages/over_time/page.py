"""The page of the history."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.accounting.steps import step_for
from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.views.accounting import usage_history_view
from gantree.control.requests.read_view import ReadView
from gantree.web.pages.frame import page_router, render
from gantree.web.pages.over_time.charts import charts
from gantree.web.pages.periods import PERIODS, Period, choices

Json = dict[str, Any]
HOUR_S = 3600.0


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page."""
    routes = page_router()

    @routes.get("/history", **needs(Need.KNOWN))
    async def history(request: Request, caller: CurrentCaller, period: Period = "24h") -> Response:
        """The page."""
        found = await reads.read_adaptive(answers, caller, period, asker=caller.name)
        return render(
            request,
            caller,
            "over_time.html",
            period=period,
            periods_shown=choices(),
            charts=charts(*found),
            queues=_rows(found[1]),
        )

    return routes


def answers(view: ReadView, caller: Caller, period: str) -> tuple[Json, Json, Json]:
    """Use of all, use by queue, and waits, of a period until now."""
    _, seconds = PERIODS[period]
    asked = (step_for(seconds), max(0.0, view.now - seconds), None, None, None)
    return (
        usage_history_view.usage(view, caller, "all", *asked),
        usage_history_view.usage(view, caller, "queue", *asked),
        usage_history_view.waits(view, caller, "all", *asked),
    )


def _rows(queues: Json) -> list[Json]:
    """Sums by queue."""
    total = sum(sum(row["allocated_gpu_s"]) for row in queues["rows"])
    return [
        {
            "name": row["name"],
            "share": sum(row["allocated_gpu_s"]) / total if total else None,
            "hours": sum(row["allocated_gpu_s"]) / HOUR_S,
            "lost": sum(row["lost_gpu_s"]) / HOUR_S,
            **{name: sum(row[name]) for name in ("submitted", "succeeded", "failed", "preempted")},
        }
        for row in queues["rows"]
    ]
