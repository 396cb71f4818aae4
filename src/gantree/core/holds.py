"""Room that is held for gangs which are not placed yet: who may use it meanwhile, and how that is asked.

A claim is passed by nobody but its own job: its room is free in a moment. A booking is passed by its own job, by
every job that is gone before the reserved start (`planning.reserve.may_pass`), and, while it is an estimate only, by
jobs that go before it, and by jobs that are within their queue's guarantee where its own is not.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gantree.core.ledger import BOOKING, CLAIM, Ledger
from gantree.core.state import JobState
from gantree.planning.reserve import may_pass
from gantree.topology.occupancy import Occupancy


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


def outranks(ledger: Ledger, state: JobState, job: str) -> bool:
    """Whether a job may use the room reserved for another one (or itself) whenever it likes."""
    if job == state.job:
        return True
    if ledger.bookings[job].promised:
        return False
    other = ledger.jobs[job]
    return goes_before(ledger, state, other) or ledger.accounts.is_due_before(state, other)


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
