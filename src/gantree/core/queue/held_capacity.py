"""Room that is held for pending gangs, and which pending jobs may use it meanwhile.

Claimed room may be used by its own job only: it is free in a moment. Reserved room may be used by its own job, by a job
that ends before the reserved start (`planning.reservations.reserve.may_backfill`), and, if the reservation is an
estimate, by a job that goes first, or that is within its queue's guarantee while the reservation's job is not. Who goes
first follows the policy order as it is now: with "share" in it, an estimate gives way to a queue that has a smaller
share than its own, whenever it was made.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState, Reservation
from gantree.core.queue.eligibility import equivalence_class_of
from gantree.planning.reservations.reserve import may_backfill
from gantree.topology.occupancy.occupancy import Occupancy


def usable_holds(ledger: Ledger, state: JobState, now: float) -> tuple[str, ...]:
    """The owners of held room that a pending job may use."""
    own = (CLAIM + state.job,) if state.job in ledger.claims else ()
    if not ledger.reservations:
        return own
    eq_class = equivalence_class_of(state)
    ends_at = now + eq_class.span_s
    usable = tuple(
        RESERVATION + job
        for job, reservation in ledger.reservations.items()
        if outranks_reservation(ledger, state, job)
        or may_backfill(
            reservation.starts_at,
            ends_at,
            eq_class.enforced,
            promised=reservation.promised,
            slips=reservation.slips,
        )
    )
    return own + usable


def outranks_reservation(
    ledger: Ledger, state: JobState, job: str, *, within_guarantee: bool | None = None
) -> bool:
    """Whether a job may use the room of a reservation at any time: its own, or an estimate of a job that it outranks.

    within_guarantee: whether the job is assumed to be within its guarantee; by default its admission decides.
    """
    if job == state.job:
        return True
    if ledger.reservations[job].promised:
        return False
    accounts, other = ledger.accounts, ledger.jobs[job]
    return accounts.comes_first(state, other) or accounts.guarantees.goes_before(
        state, other, within_guarantee
    )


class UsableReservations:
    """As `usable_holds`, for many jobs: a bit for each reservation, the oldest lowest; cached until a fact is applied.

    A job may backfill by the time it holds a placement (`by_time`), or outrank the reservation (`by_rank`).
    """

    def __init__(self) -> None:
        self._at: tuple[object, ...] = ()
        self._reservations: list[tuple[str, Reservation]] = []
        self._queues: frozenset[str] = frozenset()
        self._by_time: dict[tuple[float, bool], int] = {}
        self._by_rank: dict[Hashable, int] = {}

    def mask(self, ledger: Ledger, state: JobState, now: float) -> int:
        """A mask of the reservations whose room a pending job may use."""
        if not ledger.reservations:
            return 0
        eq_class = equivalence_class_of(state)
        by_time = self.by_time(ledger, now, eq_class.span_s, enforced=eq_class.enforced)
        return by_time | self.by_rank(
            ledger, state, now, within_guarantee=ledger.accounts.guarantees.asks_within(state)
        )

    def _refresh(self, ledger: Ledger, now: float) -> None:
        if self._at != (ledger.applied, now):
            self._at = (ledger.applied, now)
            self._reservations = list(ledger.reservations.items())
            self._queues = frozenset(ledger.jobs[job].spec.queue for job in ledger.reservations)
            self._by_time.clear()
            self._by_rank.clear()

    def by_time(self, ledger: Ledger, now: float, span_s: float, *, enforced: bool) -> int:
        """A mask of the reservations that a job may backfill if it holds a placement for so long."""
        self._refresh(ledger, now)
        if (span_s, enforced) not in self._by_time:
            ends_at = now + span_s
            self._by_time[span_s, enforced] = _bits(
                may_backfill(b.starts_at, ends_at, enforced, promised=b.promised, slips=b.slips)
                for _, b in self._reservations
            )
        return self._by_time[span_s, enforced]

    def by_rank(
        self, ledger: Ledger, state: JobState, now: float, *, within_guarantee: bool
    ) -> int:
        """A mask of the reservations that a job outranks, if it is, or is not, within its guarantee.

        Jobs without a reservation in their queue share a mask where only the keys before shares, and shares, count.
        """
        self._refresh(ledger, now)
        shared = ledger.accounts.order.before_share
        alone = shared is None or state.spec.queue in self._queues
        rank = state.position if alone else (state.position.key[:shared], state.queue)
        key = (rank, within_guarantee)
        if key not in self._by_rank:
            self._by_rank[key] = _bits(
                outranks_reservation(ledger, state, job, within_guarantee=within_guarantee)
                for job, _ in self._reservations
            )
        return self._by_rank[key]


def _bits(flags: Iterable[bool]) -> int:
    return sum(flag << number for number, flag in enumerate(flags))


@contextmanager
def without_holds(ledger: Ledger, owners: Sequence[str]) -> Iterator[Occupancy]:
    """The occupancy without these owners; at the end they get back what is still free of their room."""
    if not owners:
        yield ledger.rooms()
        return
    ledger.let_go(owners)
    try:
        yield ledger.rooms()
    finally:
        ledger.hold(owners=owners)
