"""The data of the Gantt chart: attempts of a time span, predicted ends of running ones, reservations.

Bars have a kind: "past" is over; "running" is what has run of an attempt that holds its place; "guessed" is how long it
probably goes on, "limit" how long it may at most; "promised" and "estimated" are starts of jobs that wait.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite

from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.ledger import Ledger
from gantree.core.reservations.reservations import job_of, running
from gantree.web.pages.gantt.attempts import Attempt, gpus_of_node, past_of
from gantree.web.pages.visibility import MayRead

UNKNOWN_SPAN_S = 3600.0
"""The drawn length of a start whose run time is unknown."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of one attempt, or of one that is to come. until of a kind that has no known end is drawn, not told.

    submitted_at: since when it waits, of a job that does. ends_known: whether until is more than a guess at the width.
    """

    job: str
    attempt: int
    queue: str
    user: str
    domain: str
    gpus: int
    gpus_of_node: dict[str, tuple[int, ...]]
    kind: str
    since: float
    until: float
    how: str = ""
    by: str = ""
    submitted_at: float | None = None
    ends_known: bool = True


def bars_between(view: ReadView, since: float, until: float) -> tuple[bool, float, list[Bar]]:
    """Whether the past is read to its end, the moment, and the bars that lie in a span of time, in order of arrival."""
    past = past_of(view.journal)
    complete = past.read_on(view.journal, view.ledger)
    found = _over(past.over, since, until)
    found += [bar for bar in bars_to_come(view.ledger, view.now) if _lies_in(bar, since, until)]
    return complete, view.now, found


def _lies_in(bar: Bar, since: float, until: float) -> bool:
    return bar.since < until and bar.until > since


def _over(attempts: Iterable[Attempt], since: float, until: float) -> list[Bar]:
    found = (_of_attempt(one) for one in attempts)
    return [bar for bar in found if _lies_in(bar, since, until)]


def _of_attempt(one: Attempt) -> Bar:
    assert one.until is not None, f"{one.job} has not ended"
    return Bar(
        one.job,
        one.attempt,
        one.queue,
        one.user,
        one.domain,
        one.gpus,
        one.gpus_of_node,
        "past",
        one.placed_at,
        one.until,
        one.how,
        one.by,
    )


def bars_to_come(ledger: Ledger, now: float) -> Iterator[Bar]:
    """Running attempts with their probable and enforced ends, then reservations."""
    probable = {one.owner: one.ends_at for one in running(ledger, now, limits_only=False)}
    enforced = {one.owner: one.ends_at for one in running(ledger, now, limits_only=True)}
    for job in ledger.holding:
        yield from _held(ledger, job, now, probable[job], enforced[job])
    ends = {job_of(owner): ends_at for owner, ends_at in probable.items() if owner != job_of(owner)}
    for job in ledger.reservations:
        yield _to_start(ledger, job, ends.get(job))


def _held(ledger: Ledger, job: str, now: float, probably: float, at_most: float) -> Iterator[Bar]:
    state = ledger.jobs[job]
    assert state.placement is not None and state.placed_at is not None, f"{job} holds no place"
    held = gpus_of_node(state.placement)
    spec, domain = state.spec, state.placement.domain.name
    gpus = sum(map(len, held.values()))

    def bar(kind: str, since: float, until: float, how: str) -> Bar:
        return Bar(
            job, state.attempt, spec.queue, spec.user, domain, gpus, held, kind, since, until, how
        )

    yield bar("running", state.placed_at, max(now, state.placed_at), state.phase.value)
    end = max(now, state.placed_at)
    if isfinite(probably) and probably > end:
        yield bar("guessed", end, probably, "probably ends")
        end = probably
    if isfinite(at_most) and at_most > end:
        yield bar("limit", end, at_most, "ends at the latest")


def _to_start(ledger: Ledger, job: str, ends_at: float | None) -> Bar:
    state, reservation = ledger.jobs[job], ledger.reservations[job]
    held = gpus_of_node(reservation.placement)
    known = ends_at is not None and isfinite(ends_at)
    until = ends_at if known and ends_at is not None else reservation.starts_at + UNKNOWN_SPAN_S
    return Bar(
        job,
        state.attempt + 1,
        state.spec.queue,
        state.spec.user,
        reservation.placement.domain.name,
        sum(map(len, held.values())),
        held,
        "promised" if reservation.promised else "estimated",
        reservation.starts_at,
        until,
        f"slipped {reservation.slips} times" if reservation.slips else "",
        submitted_at=state.submitted_at,
        ends_known=known,
    )


def redacted(bars: Iterable[Bar], may_read: MayRead) -> Iterator[Bar]:
    """Bars as a caller may see them: of a job that it may not read only that something is taken, and when."""
    known: dict[tuple[str, str], bool] = {}
    for bar in bars:
        whose = bar.user, bar.queue
        if whose not in known:
            known[whose] = may_read(*whose)
        yield bar if known[whose] else _hidden(bar)


def _hidden(bar: Bar) -> Bar:
    return Bar(
        "",
        0,
        "",
        "",
        "",
        bar.gpus,
        bar.gpus_of_node,
        bar.kind,
        bar.since,
        bar.until,
        ends_known=bar.ends_known,
    )
