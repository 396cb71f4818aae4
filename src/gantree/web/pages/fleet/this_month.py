"""What each queue has cost since the month began, beside its budgets."""

from datetime import UTC, datetime
from typing import Any

from gantree.api.access.access import Caller
from gantree.api.views import queries
from gantree.api.views.accounting import usage_view
from gantree.api.views.accounting.budget_view import budget_in_words
from gantree.api.views.accounting.site_prices import at_prices
from gantree.control.requests.read_view import ReadView
from gantree.topology.hardware.prices import PriceList

Json = dict[str, Any]
MOST_QUEUES = 100


def this_month(view: ReadView, caller: Caller, prices: PriceList) -> Json:
    """rows by queue, the dearest first, and `month`, as in "November 2026"."""
    month = datetime.fromtimestamp(view.now, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    used = usage_view.usage(view, caller, "queue", month.timestamp(), None, MOST_QUEUES)
    used = at_prices(used, prices)
    cost = {row["name"]: row["USD"] for row in used["rows"]}
    budgets = {
        row["queue"]: [budget_in_words(budget) for budget in row["budgets"]]
        for row in queries.queues(view, caller)
        if row["budgets"]
    }
    rows = [
        {"name": name, "USD": cost.get(name, 0.0), "budgets": budgets.get(name, [])}
        for name in dict.fromkeys([*cost, *budgets])
    ]
    rows.sort(key=lambda row: (-row["USD"], row["name"]))
    return {"month": f"{month:%B %Y}", "rows": rows, "USD": used["sum"]["USD"]}
