"""Room that is held for gangs which are not placed yet: who may use it meanwhile, and how that is asked.

A claim is passed by nobody but its own job: its room is free in a moment. A booking is passed by its own job, by
every job that is gone before the reserved start (`planning.reserve.may_pass`), and, while it is an estimate only, by
jobs that go before it, and by jobs that are within their queue's guarantee where its own is not.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import BOOKING, CLAIM, Booking, JobState
from gantree.planning.reserve import may_pass
from gantree.topology.occupancy.occupancy import Occupancy


def passed_by(ledger: Ledger, state: JobState, now: float) -> tuple[str, ...]:
    """The owners of held room that a waiting job may use."""
    own = (CLAIM + state.job,) if state.job in ledger.claims else ()
    if not ledger.bookings:
        return own
    line = state.line
    assert line is not None, f"{state.job} does not wait"
    ends_at = now + line.span_s
    passed = tuple(
        BOOKING + job
        for job, booking in ledger.bookings.items()
        if outranks(ledger, state, job)
        or may_pass(
            booking.starts_at,
            ends_at,
            line.enforced,
            promised=booking.promised,
            slips=booking.slips,
        )
    )
    return own + passed


def goes_before(ledger: Ledger, state: JobState, other: JobState) -> bool:
    """Whether a job's hold on room outranks another's: by priority, in one queue by the whole order."""
    return ledger.accounts.goes_before(state, other)


def outranked(ledger: Ledger, state: JobState) -> tuple[str, ...]:
    """The jobs whose estimated starts give way to a waiting job, its own among them."""
    return tuple(
        job
        for job, told in ledger.bookings.items()
        if not told.promised and outranks(ledger, state, job)
    )


def outranks(ledger: Ledger, state: JobState, job: str) -> bool:
    """Whether a job may use the room reserved for another one (or itself) whenever it likes."""
    if job == state.job:
        return True
    if ledger.bookings[job].promised:
        return False
    other = ledger.jobs[job]
    return goes_before(ledger, state, other) or ledger.accounts.is_due_before(state, other)


class Passing:
    """Which reserved room waiting jobs may use at a moment: a bit for each booking, the first made the lowest.

    As `passed_by`, for many jobs: by time it depends on how long they hold a place, by right on where they stand.
    """

    def __init__(self) -> None:
        self._at: tuple[object, ...] = ()
        self._bookings: list[tuple[str, Booking]] = []
        self._queues: frozenset[str] = frozenset()
        self._by_time: dict[tuple[float, bool], int] = {}
        self._by_right: dict[Hashable, int] = {}

    def mask(self, ledger: Ledger, state: JobState, now: float) -> int:
        """The bookings whose room a waiting job may use."""
        if not ledger.bookings:
            return 0
        if self._at != (ledger.applied, now):
            self._at = (ledger.applied, now)
            self._bookings = list(ledger.bookings.items())
            self._queues = frozenset(ledger.jobs[job].spec.queue for job in ledger.bookings)
            self._by_time.clear()
            self._by_right.clear()
        line = state.line
        assert line is not None, f"{state.job} does not wait"
        return self._in_time(now, line.span_s, line.enforced) | self._of_right(ledger, state)

    def _in_time(self, now: float, span_s: float, enforced: bool) -> int:
        if (span_s, enforced) not in self._by_time:
            ends_at = now + span_s
            self._by_time[span_s, enforced] = _bits(
                may_pass(b.starts_at, ends_at, enforced, promised=b.promised, slips=b.slips)
                for _, b in self._bookings
            )
        return self._by_time[span_s, enforced]

    def _of_right(self, ledger: Ledger, state: JobState) -> int:
        """By right; jobs with no booking in their queue share the answer where only what is before shares counts."""
        shared = ledger.accounts.order.before_share
        if shared is None or state.spec.queue in self._queues:
            return _bits(outranks(ledger, state, job) for job, _ in self._bookings)
        key = (state.position.key[:shared], ledger.accounts.is_due(state))
        if key not in self._by_right:
            self._by_right[key] = _bits(outranks(ledger, state, job) for job, _ in self._bookings)
        return self._by_right[key]


def _bits(flags: Iterable[bool]) -> int:
    return sum(flag << number for number, flag in enumerate(flags))


@contextmanager
def lifted(ledger: Ledger, owners: Sequence[str]) -> Iterator[Occupancy]:
    """The occupancy without what these hold; at the end they hold again what is free of it."""
    if not owners:
        yield ledger.rooms()
        return
    ledger.let_go(owners)
    try:
        yield ledger.rooms()
    finally:
        ledger.hold(owners=owners)
