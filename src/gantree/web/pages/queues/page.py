"""The page of queues: guarantees, usage, borrowed and lent amounts, and actual beside fair share."""

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.views import queries
from gantree.api.views.accounting.budget_view import budget_in_words
from gantree.api.views.lending_view import lending_in_words
from gantree.control.requests.read_view import ReadView
from gantree.web.pages.frame import page_router, render
from gantree.web.pages.queues.bars import ShareBar, amount_bars, share_bars

Json = dict[str, Any]
DEEPEST: Final = 5
"""Rows of deeper queues are set in no further."""


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page."""
    routes = page_router()

    @routes.get("/queues", **needs(Need.KNOWN))
    async def queues(request: Request, caller: CurrentCaller) -> Response:
        """The page."""
        half_life_s, found = await reads.read(queue_shares, caller)
        rows = [_row(row, bar, found[0]) for row, bar in zip(found, share_bars(found), strict=True)]
        return render(request, caller, "shares.html", rows=rows, half_life_s=half_life_s)

    return routes


def queue_shares(view: ReadView, caller: Caller) -> tuple[float | None, list[Json]]:
    """The half-life of what was used, in seconds, and the queue tree as far as a caller may see it."""
    return view.policy.half_life_s, queries.queues(view, caller)


def _row(row: Json, share: ShareBar | None, of_cluster: Json) -> Json:
    bars = amount_bars(row, of_cluster)
    budgets = [(budget, budget_in_words(budget)) for budget in row["budgets"]]
    more = {"bars": bars, "share_bar": share, "indent": min(DEEPEST, row["depth"])}
    lending = row["lending"] and lending_in_words(row["lending"])
    return {**row, **more, "budgets": budgets, "lending": lending}
