"""Use and waits over time as plain JSON values. No HTTP here.

What the database has is counted up to the last change or minute; what was used since then follows from the ledger and
is added. A caller is told the sums of the jobs that he may see, and the capacity of the whole cluster.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from operator import attrgetter
from typing import Any

from gantree.accounting.buckets import (
    DAY_S,
    HOUR_S,
    HOURS_KEPT_S,
    MINUTES_KEPT_S,
    Bucket,
)
from gantree.accounting.ended_jobs import EVERYTHING, Scope
from gantree.accounting.meter import uncounted
from gantree.accounting.steps import STEPS, begin_of
from gantree.accounting.usage import (
    ALLOCATED_FOR,
    NOT_ALLOCATED,
    By,
    UsageAmounts,
    UsageKey,
    UsageQuery,
    WaitAmounts,
)
from gantree.accounting.waits import quantile
from gantree.api.access.access import Caller
from gantree.api.views.accounting.history_view import scopes_of
from gantree.control.history.levels import levels_of
from gantree.control.requests.read_view import ReadView
from gantree.model.access import is_within
from gantree.model.errors import BadFields, Problem

Json = dict[str, Any]
NOTHING = tuple(asdict(UsageAmounts()).items())
COUNTED = tuple(name for name, _ in NOTHING)
amounts_in = attrgetter(*COUNTED)
MEASURED, TAKEN = ALLOCATED_FOR[:-1], NOT_ALLOCATED[:-1]
"""Purposes without the rests."""
MOST_STEPS = 2000
FOR_EVER = float("inf")
OF_MINUTES_S, OF_HOURS_S = MINUTES_KEPT_S - HOUR_S, HOURS_KEPT_S - DAY_S
KEPT_S = {"minute": OF_MINUTES_S, "5min": OF_MINUTES_S, "hour": OF_HOURS_S, "6h": OF_HOURS_S}
SHOWN = {
    "minute": 3 * HOUR_S, "5min": 6 * HOUR_S, "hour": 2 * DAY_S, "6h": 7 * DAY_S, "day": 30 * DAY_S, "week": 365 * DAY_S
}  # fmt: skip
"""How far back an answer goes where that is not asked for."""


def query_of(
    view: ReadView,
    caller: Caller,
    by: By,
    step: str | None,
    since: float | None,
    until: float | None,
    queue: str | None,
    user: str | None,
) -> UsageQuery:
    """Whole steps of a period; without a step the finest that the period still has in at most 400.

    Raises BadFields for a step that is finer than what is kept of the period, or too fine for an answer.
    """
    end = min(view.now, view.now if until is None else until)
    if step is None:
        begin = end - 7 * DAY_S if since is None else since
        step = _finest(view.now, begin, end)
    begin = end - SHOWN[step] if since is None else since
    seconds = STEPS[step]
    first, last = begin_of(begin, seconds), begin_of(end, seconds) + seconds
    if begin < view.now - KEPT_S.get(step, FOR_EVER):
        kept_s = KEPT_S[step]
        wider = ", ".join(each for each in STEPS if KEPT_S.get(each, FOR_EVER) > kept_s)
        hours = int(kept_s // HOUR_S)
        raise _problem("step", step, f"{wider}: each {step} is kept for {hours} hours")
    if (last - first) // seconds > MOST_STEPS:
        raise _problem("step", step, f"a period of at most {MOST_STEPS} steps, or a wider step")
    return UsageQuery(first, last, seconds, by, queue, user, scopes_of(caller))


def _finest(now: float, begin: float, end: float) -> str:
    for step, seconds in STEPS.items():
        if begin >= now - KEPT_S.get(step, FOR_EVER) and (end - begin) / seconds <= 400:
            return step
    return "week"


def _problem(field: str, found: str, allowed: str) -> BadFields:
    return BadFields([Problem("request", None, field, found, allowed)])


def usage(view: ReadView, caller: Caller, *asked: Any) -> Json:
    """GPU-seconds and events of each step, by name: lists as long as that of the steps."""
    query = query_of(view, caller, *asked)
    found = [*view.journal.history.usage(query), *_since_counted(view, query)]
    steps: dict[str, _Steps] = {}
    starts = range(query.since, query.until, query.step)
    for bucket, name, amounts in found:
        if name not in steps:
            steps[name] = _Steps(starts)
        steps[name].add(bucket, amounts)
    rows = [{"name": name, **of.figures()} for name, of in steps.items()]
    if query != replace(query, queue=None, user=None, scopes=EVERYTHING):
        for row in rows:
            row["free_gpu_s"] = [0.0] * len(starts)  # others hold some of the capacity
    rows.sort(key=lambda row: (-sum(row["allocated_gpu_s"]), row["name"]))
    return {**_period(view, query), "starts": list(starts), "rows": rows}


class _Steps:
    """The amounts of one name: for each figure a list as long as that of the steps. A year of queues has many."""

    def __init__(self, starts: range) -> None:
        self._starts = starts
        self._of: dict[str, list[float]] = {name: [zero] * len(starts) for name, zero in NOTHING}

    def add(self, bucket: Bucket, amounts: UsageAmounts) -> None:
        """Add what there is of a bucket; one that is wider than a step in equal parts, its counts to the first."""
        first, step = self._starts.start, self._starts.step
        place = (bucket.start - first) // step
        parts = max(1, bucket.width // step)
        if parts == 1 and 0 <= place < len(self._starts):
            for of_figure, amount in zip(self._of.values(), amounts_in(amounts), strict=True):
                if amount:
                    of_figure[place] += amount
            return
        for part in range(max(0, -place), min(parts, len(self._starts) - place)):
            for name, amount in zip(COUNTED, amounts_in(amounts), strict=True):
                if isinstance(amount, float):
                    self._of[name][place + part] += amount / parts
                elif not part:
                    self._of[name][place] += amount

    def figures(self) -> Json:
        """All of them, and what is left of what was allocated, and of what there was."""
        of = self._of
        allocated, capacity = of["allocated_gpu_s"], of["capacity_gpu_s"]
        told = [sum(step) for step in zip(*(of[f"{name}_gpu_s"] for name in MEASURED), strict=True)]
        other = [sum(step) for step in zip(*(of[f"{name}_gpu_s"] for name in TAKEN), strict=True)]
        unmeasured = [whole - part for whole, part in zip(allocated, told, strict=True)]
        free = [
            there - held - part if there else 0.0
            for there, held, part in zip(capacity, allocated, other, strict=True)
        ]
        return {**of, "unmeasured_gpu_s": unmeasured, "free_gpu_s": free}


def waits(view: ReadView, caller: Caller, *asked: Any) -> Json:
    """Of each step, and of all, the jobs that were first placed then, how long they had waited, and quantiles."""
    query = query_of(view, caller, *asked)
    bins: dict[str, dict[int, dict[int, WaitAmounts]]] = {}
    for start, name, place, amounts in view.journal.history.waits(query):
        bins.setdefault(name, {}).setdefault(start, {})[place] = amounts
    starts = range(query.since, query.until, query.step)
    rows: list[Json] = []
    for name, of in bins.items():
        steps = [_waits(of.get(start, {})) for start in starts]
        rows.append({"name": name, "steps": steps, "all": _waits(_joined(of))})
    rows.sort(key=lambda row: (-int(row["all"]["jobs"]), row["name"]))
    return {**_period(view, query), "starts": list(starts), "rows": rows}


def _joined(of_step: dict[int, dict[int, WaitAmounts]]) -> dict[int, WaitAmounts]:
    found: dict[int, WaitAmounts] = {}
    for bins in of_step.values():
        for place, amounts in bins.items():
            joined = found.setdefault(place, WaitAmounts())
            joined.jobs += amounts.jobs
            joined.waited_s += amounts.waited_s
    return found


def _waits(bins: dict[int, WaitAmounts]) -> Json:
    jobs = {place: amounts.jobs for place, amounts in bins.items()}
    count = sum(jobs.values())
    waited_s = sum(amounts.waited_s for amounts in bins.values())
    return {
        "jobs": count,
        "mean_s": waited_s / count if count else None,
        "p50_s": quantile(jobs, 0.5),
        "p99_s": quantile(jobs, 0.99),
    }


def _period(view: ReadView, query: UsageQuery) -> Json:
    return {
        "by": query.by,
        "since": query.since,
        "until": min(float(query.until), view.now),
        "step_s": query.step,
    }


def _since_counted(view: ReadView, query: UsageQuery) -> Iterator[tuple[Bucket, str, UsageAmounts]]:
    for bucket, key, amounts in since_counted(view, query):
        yield bucket, "" if query.by == "all" else getattr(key, query.by), amounts


def since_counted(
    view: ReadView, query: UsageQuery
) -> Iterator[tuple[Bucket, UsageKey, UsageAmounts]]:
    """What was used since the database was last told of it."""
    levels = levels_of(view.ledger, view.journal.history.counted_to(), view.now)
    for bucket, key, amounts in uncounted(levels, view.now):
        if query.since <= bucket.start < query.until and _is_told(query, key):
            yield bucket, key, amounts


def _is_told(query: UsageQuery, key: UsageKey) -> bool:
    if (key.queue, key.user) == ("", ""):
        return query.by in ("all", "model")
    return (
        (query.queue is None or is_within(key.queue, query.queue))
        and (query.user is None or key.user == query.user)
        and any(_is_in(scope, key) for scope in query.scopes)
    )


def _is_in(scope: Scope, key: UsageKey) -> bool:
    is_queue = not scope.queue or is_within(key.queue, scope.queue)
    return is_queue and scope.user in (None, key.user)
