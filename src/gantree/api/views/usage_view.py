"""Usage as plain JSON values: GPU-hours held, useful, idle and wasted, hours waited, dollars. No HTTP here.

The amounts are those of the ledger's account (`core.ledger.usage`), which counts by days of UTC. A caller is told of
the jobs that he may see, and their sum.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, has, sees
from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.state import JobState
from gantree.core.ledger.usage import DAY_S, NOTHING, Account, Used, life_of, usage_at
from gantree.topology.hardware.prices import LIST_PRICES

By = Literal["user", "queue", "model", "job"]
Json = dict[str, Any]
HOUR_S = 3600.0
SUMMED = (
    "held_gpu_hours", "useful_gpu_hours", "idle_gpu_hours", "wasted_gpu_hours", "waited_hours", "USD",
    "unpriced_gpu_hours",
)  # fmt: skip
DAYS_SHOWN = 7
"""The default number of days, with today."""


@dataclass(frozen=True, slots=True)
class Period:
    """Whole days of UTC, first and last counted from 1970."""

    first_day: int
    last_day: int

    @classmethod
    def around(cls, since: float | None, until: float | None, now: float) -> "Period":
        """The days that a span of time touches: until now, and from a week before, where that is not said."""
        last = int((now if until is None else until) // DAY_S)
        first = last - DAYS_SHOWN + 1 if since is None else int(since // DAY_S)
        return cls(first, last)

    @property
    def since(self) -> float:
        """Its beginning, in seconds since 1970."""
        return self.first_day * DAY_S

    @property
    def until(self) -> float:
        """Its end."""
        return (self.last_day + 1) * DAY_S

    def has(self, account: Account) -> bool:
        """Whether an account is of one of its days."""
        return self.first_day <= account.day <= self.last_day

    def meets(self, state: JobState) -> bool:
        """Whether a job was there in it."""
        ended_later = state.ended_at is None or state.ended_at >= self.since
        return ended_later and state.submitted_at < self.until


def usage(
    view: ReadView, caller: Caller, by: By, since: float | None, until: float | None, limit: int
) -> Json:
    """What was used in the days of a span of time, the largest holders first; the sum is of all of them."""
    period = Period.around(since, until, view.now)
    if by == "job":
        rows = [row for state in view.ledger.jobs.values() if period.meets(state) and sees(caller, state)
                for row in _of_job(state, view.now)]  # fmt: skip
    else:
        rows = list(_grouped(view, caller, by, period))
    rows.sort(key=lambda row: (-row["held_gpu_hours"], -row["waited_hours"], row["name"]))
    return {
        "by": by,
        "since": period.since,
        "until": min(period.until, view.now),
        "rows": rows[:limit],
        "left_out": max(0, len(rows) - limit),
        "sum": _sum(rows),
    }


def _grouped(view: ReadView, caller: Caller, by: By, period: Period) -> Iterator[Json]:
    used_of: dict[str, dict[str, Used]] = {}
    for account, used in usage_at(view.ledger, view.now).items():
        if period.has(account) and has(caller, Need.SEE, account.user, account.queue):
            of_model = used_of.setdefault(getattr(account, by), {})
            of_model[account.model] = of_model.get(account.model, NOTHING) + used
    for name, of_model in used_of.items():
        yield {"name": name, **_amounts(of_model)}


def _of_job(state: JobState, now: float) -> Iterator[Json]:
    """A job with all that it used in its life, if that is anything."""
    of_model = life_of(state, now)
    if of_model:
        who = {"user": state.spec.user, "queue": state.spec.queue, "phase": state.phase.value}
        yield {"name": state.job, **_amounts(of_model), **who}


def _amounts(of_model: dict[str, Used]) -> Json:
    """Hours and dollars of what was used of each GPU model."""
    held = {model: used.held_gpu_s / HOUR_S for model, used in of_model.items() if used.held_gpu_s}
    quotes = {model: LIST_PRICES.quote(model) for model in held}
    return {
        "held_gpu_hours": sum(held.values()),
        "useful_gpu_hours": sum(used.useful_gpu_s for used in of_model.values()) / HOUR_S,
        "idle_gpu_hours": sum(used.idle_gpu_s for used in of_model.values()) / HOUR_S,
        "wasted_gpu_hours": sum(used.wasted_gpu_s for used in of_model.values()) / HOUR_S,
        "waited_hours": sum(used.waited_s for used in of_model.values()) / HOUR_S,
        "held_gpu_hours_of_model": held,
        "USD": sum(hours * quote.USD_per_hour for model, hours in held.items() if (quote := quotes[model])),
        "unpriced_gpu_hours": sum(hours for model, hours in held.items() if quotes[model] is None),
    }  # fmt: skip


def _sum(rows: Iterable[Json]) -> Json:
    total: Json = {}
    of_model: dict[str, float] = {}
    for row in rows:
        for name in SUMMED:
            total[name] = total.get(name, 0.0) + row[name]
        for model, hours in row["held_gpu_hours_of_model"].items():
            of_model[model] = of_model.get(model, 0.0) + hours
    return {**_amounts({}), **total, "held_gpu_hours_of_model": of_model}
