"""Room that is held for gangs which are not placed yet: who may use it meanwhile, and how that is asked.

A claim is passed by nobody but its own job: its room is free in a moment. A reservation is passed by its own job, by
every job that is gone before the reserved start (`planning.reservations.reserve.may_pass`), and, while it is an
estimate only, by jobs that go before it, and by jobs that are within their queue's guarantee where its own is not.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState, Reservation
from gantree.planning.reservations.reserve import may_pass
from gantree.topology.occupancy.occupancy import Occupancy


def passed_by(ledger: Ledger, state: JobState, now: float) -> tuple[str, ...]:
    """The owners of held room that a waiting job may use."""
    own = (CLAIM + state.job,) if state.job in ledger.claims else ()
    if not ledger.reservations:
        return own
    eq_class = state.equivalence_class
    assert eq_class is not None, f"{state.job} does not wait"
    ends_at = now + eq_class.span_s
    passed = tuple(
        RESERVATION + job
        for job, reservation in ledger.reservations.items()
        if outranks(ledger, state, job)
        or may_pass(
            reservation.starts_at,
            ends_at,
            eq_class.enforced,
            promised=reservation.promised,
            slips=reservation.slips,
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
        for job, told in ledger.reservations.items()
        if not told.promised and outranks(ledger, state, job)
    )


def outranks(ledger: Ledger, state: JobState, job: str, *, is_due: bool | None = None) -> bool:
    """Whether a job may use the room reserved for another one (or itself) whenever it likes.

    is_due: whether it is taken to be owed what it asks for; by default as it is.
    """
    if job == state.job:
        return True
    if ledger.reservations[job].promised:
        return False
    other = ledger.jobs[job]
    return goes_before(ledger, state, other) or ledger.accounts.guarantees.goes_before(
        state, other, is_due
    )


class Passing:
    """Which reserved room waiting jobs may use at a moment: a bit for each reservation, the first made the lowest.

    As `passed_by`, for many jobs: by time it depends on how long they hold a place, by right on where they stand.
    """

    def __init__(self) -> None:
        self._at: tuple[object, ...] = ()
        self._reservations: list[tuple[str, Reservation]] = []
        self._queues: frozenset[str] = frozenset()
        self._by_time: dict[tuple[float, bool], int] = {}
        self._by_right: dict[Hashable, int] = {}

    def mask(self, ledger: Ledger, state: JobState, now: float) -> int:
        """The reservations whose room a waiting job may use."""
        if not ledger.reservations:
            return 0
        eq_class = state.equivalence_class
        assert eq_class is not None, f"{state.job} does not wait"
        by_time = self.by_time(ledger, now, eq_class.span_s, enforced=eq_class.enforced)
        return by_time | self.by_right(
            ledger, state, now, is_due=ledger.accounts.guarantees.asks_within(state)
        )

    def _follow(self, ledger: Ledger, now: float) -> None:
        if self._at != (ledger.applied, now):
            self._at = (ledger.applied, now)
            self._reservations = list(ledger.reservations.items())
            self._queues = frozenset(ledger.jobs[job].spec.queue for job in ledger.reservations)
            self._by_time.clear()
            self._by_right.clear()

    def by_time(self, ledger: Ledger, now: float, span_s: float, *, enforced: bool) -> int:
        """The reservations whose room anybody may use who holds a place for so long."""
        self._follow(ledger, now)
        if (span_s, enforced) not in self._by_time:
            ends_at = now + span_s
            self._by_time[span_s, enforced] = _bits(
                may_pass(b.starts_at, ends_at, enforced, promised=b.promised, slips=b.slips)
                for _, b in self._reservations
            )
        return self._by_time[span_s, enforced]

    def by_right(self, ledger: Ledger, state: JobState, now: float, *, is_due: bool) -> int:
        """The reservations whose room a job may use at any time, were it owed what it asks for, or not.

        Jobs with no reservation in their queue share the answer where only what is before shares counts.
        """
        self._follow(ledger, now)
        shared = ledger.accounts.order.before_share
        alone = shared is None or state.spec.queue in self._queues
        key = (state.position if alone else state.position.key[:shared], is_due)
        if key not in self._by_right:
            self._by_right[key] = _bits(
                outranks(ledger, state, job, is_due=is_due) for job, _ in self._reservations
            )
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
