"""Usage as plain JSON values: GPU-hours of each purpose, hours waited, dollars. No HTTP here.

The amounts are those of the roll-ups in the journal (`accounting.usage`), and what was used since they were counted;
jobs are those that the ledger has and those that have ended. A caller is told of the jobs that he may see, and their
sum; what was not allocated is told to callers who see everything.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from gantree.accounting.buckets import DAY_S, HOUR_S
from gantree.accounting.ended_use import amounts_of
from gantree.accounting.usage import ALLOCATED_FOR, NOT_ALLOCATED, WORD_OF, UsageAmounts, UsageQuery
from gantree.api.access.access import Caller
from gantree.api.access.permissions import sees
from gantree.api.views.accounting.history_view import scopes_of
from gantree.api.views.accounting.usage_history_view import since_counted
from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.state import JobState
from gantree.core.ledger.usage import life_of
from gantree.policy.amounts import SHARE
from gantree.topology.hardware.prices import LIST_PRICES

GroupedBy = Literal["user", "queue", "model", "project", "device"]
By = GroupedBy | Literal["job"]
Json = dict[str, Any]
NOT_HELD = {WORD_OF[purpose]: purpose for purpose in NOT_ALLOCATED}
"""Purposes of what no gang held, by what people read, and their columns; "held_gpu_hours" are those of gangs."""
OF_JOBS = ("useful", "idle", "lost")
"""Those that are counted by job."""
COLUMNS = tuple(each.name for each in fields(UsageAmounts))
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
    def since(self) -> int:
        """Its beginning, in seconds since 1970."""
        return self.first_day * DAY_S

    @property
    def until(self) -> int:
        """Its end."""
        return (self.last_day + 1) * DAY_S

    def meets(self, state: JobState) -> bool:
        """Whether a job was there in it."""
        ended_later = state.ended_at is None or state.ended_at >= self.since
        return ended_later and state.submitted_at < self.until


def usage(
    view: ReadView, caller: Caller, by: By, since: float | None, until: float | None, limit: int
) -> Json:
    """What was used in the days of a span of time, the largest holders first; the sum is of all of them."""
    period = Period.around(since, until, view.now)
    found = (
        _of_jobs(view, caller, period, limit)
        if by == "job"
        else _grouped(view, caller, by, period, limit)
    )
    return {
        "by": by,
        "since": float(period.since),
        "until": min(float(period.until), view.now),
        **found,
        "capacity": _capacity(view, period) if caller.sees_all else None,
    }


@dataclass(slots=True)
class _Row:
    """What is added up of one name: amounts by GPU model, and the GPU-seconds that are told of shares."""

    of_model: dict[str, UsageAmounts] = field(default_factory=dict)
    estimated_gpu_s: float = 0.0

    def add(self, model: str, amounts: UsageAmounts, device: str = "") -> None:
        """Add amounts of a model and device."""
        added(self.of_model.setdefault(model, UsageAmounts()), amounts)
        if device == SHARE:
            self.estimated_gpu_s += amounts.useful_gpu_s + amounts.idle_gpu_s

    def join(self, other: "_Row") -> None:
        """Add all of another one."""
        for model, amounts in other.of_model.items():
            self.add(model, amounts)
        self.estimated_gpu_s += other.estimated_gpu_s


def added(to: UsageAmounts, more: UsageAmounts) -> UsageAmounts:
    """The first with the second in it."""
    for name in COLUMNS:
        setattr(to, name, getattr(to, name) + getattr(more, name))
    return to


def _grouped(view: ReadView, caller: Caller, by: GroupedBy, period: Period, limit: int) -> Json:
    """Rows by anything but jobs."""
    query = UsageQuery(period.since, period.until, DAY_S, by, scopes=scopes_of(caller))
    row_of: dict[str, _Row] = {}
    for (name, model, device), amounts in _totals(view, query).items():
        if amounts.allocated_gpu_s or amounts.waited_s or amounts.lost_gpu_s:
            row_of.setdefault(name, _Row()).add(model, amounts, device)
    rows = [{"name": name, **_told(row)} for name, row in row_of.items()]
    whole = _Row()
    for row in row_of.values():
        whole.join(row)
    return _answer(rows, limit, len(rows), _told(whole))


def _totals(view: ReadView, query: UsageQuery) -> dict[tuple[str, str, str], UsageAmounts]:
    """Amounts by name, GPU model and device: what is counted, and what was used since."""
    totals = {
        (name, model, device): amounts
        for name, model, device, amounts in view.journal.history.totals(query)
    }
    for _, key, amounts in since_counted(view, query):
        name = "" if query.by == "all" else getattr(key, query.by)
        added(totals.setdefault((name, key.model, key.device), UsageAmounts()), amounts)
    return totals


def _of_jobs(view: ReadView, caller: Caller, period: Period, limit: int) -> Json:
    """Rows of jobs, each with what it used in its life: those that have ended, and those that have not."""
    ended = view.journal.history.ended_use(period.since, period.until, scopes_of(caller), limit)
    rows, whole = [], _Row()
    for model, amounts in ended.of_model.items():
        whole.add(model, amounts)
    for job in ended.largest:
        row = _Row()
        row.add(job.gpu_model, amounts_of(job))
        rows.append(
            {
                "name": job.job,
                **_told(row, OF_JOBS),
                "user": job.user,
                "queue": job.queue,
                "phase": job.outcome,
            }
        )
    count = ended.jobs
    for state in view.ledger.jobs.values():
        if state.ended_at is None and state.submitted_at < period.until and sees(caller, state):
            row = _life_of(state, view.now)
            count += 1
            whole.join(row)
            who = {
                "user": state.spec.user,
                "queue": state.spec.queue,
                "phase": state.phase.value,
            }
            rows.append({"name": state.job, **_told(row, OF_JOBS), **who})
    return _answer(rows, limit, count, _told(whole, OF_JOBS))


def _life_of(state: JobState, now: float) -> _Row:
    row = _Row()
    for model, used in life_of(state, now).items():
        row.add(
            model,
            UsageAmounts(
                allocated_gpu_s=used.held_gpu_s,
                useful_gpu_s=used.useful_gpu_s,
                idle_gpu_s=used.idle_gpu_s,
                lost_gpu_s=used.wasted_gpu_s,
                waited_s=used.waited_s,
            ),
        )
    return row


def _answer(rows: list[Json], limit: int, count: int, whole: Json) -> Json:
    rows.sort(key=lambda row: (-row["held_gpu_hours"], -row["waited_hours"], row["name"]))
    return {"rows": rows[:limit], "left_out": max(0, count - limit), "sum": whole}


def _told(row: _Row, purposes: tuple[str, ...] = ALLOCATED_FOR) -> Json:
    """Hours and dollars of what was used of each GPU model; null for purposes that are not known."""
    whole = UsageAmounts()
    for amounts in row.of_model.values():
        added(whole, amounts)
    held = {
        model: amounts.allocated_gpu_s / HOUR_S
        for model, amounts in row.of_model.items()
        if amounts.allocated_gpu_s
    }
    quotes = {model: LIST_PRICES.quote(model) for model in held}
    hours = {
        f"{purpose}_gpu_hours": getattr(whole, f"{purpose}_gpu_s") / HOUR_S
        if purpose in purposes
        else None
        for purpose in ALLOCATED_FOR
    }
    return {
        "held_gpu_hours": sum(held.values()),
        **hours,
        "wasted_gpu_hours": whole.lost_gpu_s / HOUR_S,
        "useful_share": share(whole.useful_gpu_s, whole.allocated_gpu_s),
        "estimated_gpu_hours": row.estimated_gpu_s / HOUR_S,
        "waited_hours": whole.waited_s / HOUR_S,
        "held_gpu_hours_of_model": held,
        "USD": sum(hours * quote.USD_per_hour for model, hours in held.items() if (quote := quotes[model])),
        "unpriced_gpu_hours": sum(hours for model, hours in held.items() if quotes[model] is None),
    }  # fmt: skip


def _capacity(view: ReadView, period: Period) -> Json:
    """GPU-hours that there were, and of those that no gang held what they were for."""
    whole = view.journal.history.capacity(period.since, period.until)
    for _, _, amounts in since_counted(view, UsageQuery(period.since, period.until, DAY_S)):
        added(whole, amounts)
    hours = {
        f"{purpose}_gpu_hours": getattr(whole, f"{column}_gpu_s") / HOUR_S
        for purpose, column in NOT_HELD.items()
    }
    return {
        "capacity_gpu_hours": whole.capacity_gpu_s / HOUR_S,
        "allocated_gpu_hours": whole.allocated_gpu_s / HOUR_S,
        "allocated_share": share(whole.allocated_gpu_s, whole.capacity_gpu_s),
        **hours,
    }


def share(part: float, whole: float) -> float | None:
    """A part of a whole; None of nothing. Corrections may leave less than nothing in a short period: that is 0."""
    return max(0.0, part / whole) if whole > 0.0 else None
