"""The budgets of a queue as plain JSON values: what is used, at which rate, and what that comes to. No HTTP here."""

from math import inf
from typing import Any

from gantree.core.ledger.accounts.budgets import Budgets
from gantree.policy.budgets import BudgetUse, figure
from gantree.policy.utc_calendar import utc_date, utc_minute

Json = dict[str, Any]
HOUR_S = 3600.0


def budgets_json(budgets: Budgets, queue: str, now: float) -> list[Json]:
    """The budgets of a queue itself, as the policy lists them, at a moment in seconds."""
    return [_budget(budgets.use(key, now)) for key in budgets.of_queue(queue)]


def _budget(use: BudgetUse) -> Json:
    return {
        "period": use.budget.period,
        "unit": use.budget.unit,
        "amount": use.budget.amount,
        "used": use.used,
        "level": use.level,
        "closed": use.is_closed,
        "at_limit": use.budget.at_limit,
        "per_hour": use.per_s * HOUR_S,
        "forecast": use.forecast,
        "runs_out_at": _moment(use.runs_out_at),
        "ends_at": _moment(use.ends_at),
    }


def _moment(at: float) -> float | None:
    return None if at == inf else at


def budget_in_words(row: Json) -> str:
    """A budget as `budgets_json` tells it, for people: "8,200 of 10,000 USD (82 %) this month, ..."."""
    period = "in all" if row["ends_at"] is None else f"this {row['period']}"
    part = f"{100 * row['used'] / row['amount']:.0f} %"
    of = f"{figure(row['used'])} of {figure(row['amount'])} {row['unit']} ({part}) {period}"
    if row["closed"]:
        until = "it is raised" if row["ends_at"] is None else utc_date(row["ends_at"])
        return f"{of}, used up: nothing starts until {until}"
    if not row["per_hour"]:
        return of
    if row["runs_out_at"] is not None and row["used"] < row["amount"]:
        rate = f"{figure(row['per_hour'])} an hour"
        return f"{of}, used up at {utc_minute(row['runs_out_at'])} at the present {rate}"
    return of if row["ends_at"] is None else f"{of}, {figure(row['forecast'])} at the present rate"
