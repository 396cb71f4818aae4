"""Which pending jobs are eligible, and their order."""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.policy.queue_position import count_ahead
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry
from gantree.policy.walk import Choose, IsCandidate, IsClosed, ShareOfQueue, Walk


def in_order(
    ledger: Ledger,
    now: float,
    is_candidate: IsCandidate | None = None,
    *,
    queues: Iterable[int] | None = None,
    choose: Choose | None = None,
    is_closed: IsClosed | None = None,
) -> Walk:
    """The pending jobs, or those of some queues, in policy order."""
    return Walk(
        ledger.waiting,
        is_candidate or (lambda eq_class, position: True),
        ledger.accounts.tree.parent,
        *_shares(ledger, now),
        queues=queues,
        choose=choose,
        is_closed=is_closed,
    )


def _shares(ledger: Ledger, now: float) -> tuple[ShareOfQueue | None, int]:
    """The shares of queues at a moment, None if the order has none, and the number of keys that come before shares."""
    accounts = ledger.accounts
    before = accounts.order.before_share
    if before is None:
        return None, 0
    return lambda queue: accounts.shares.share(queue, now), before


def eligible(ledger: Ledger, state: JobState, now: float) -> bool:
    """Whether a pending job waits for room and quota only. A job with a claim has its room."""
    if state.held or state.job in ledger.claims or state.not_before > now:
        return False
    return all(map(ledger.has_succeeded, state.spec.after))


def equivalence_class_of(state: JobState) -> EquivalenceClass:
    """The equivalence class of a pending job."""
    assert state.equivalence_class is not None, f"{state.job} does not wait"
    return state.equivalence_class


def ahead_of(
    ledger: Ledger, state: JobState, now: float, queues: Iterable[int] | None = None
) -> Iterator[str]:
    """The pending jobs before this one in policy order; queues: of these only, with its own queue."""
    jobs = (position.job for _, position in in_order(ledger, now, queues=queues))
    return takewhile(lambda job: job != state.job, jobs)


def how_many_ahead(ledger: Ledger, state: JobState, now: float) -> int:
    """The number of pending jobs of all queues before this one, without a walk; with the unsplit elements of arrays."""
    count = more = _count_ahead(ledger, state, now)
    for array in ledger.unsplit.values():
        if array.undecided and array.array != state.array:
            last = ledger.jobs[next(reversed(array.undecided))]
            more += array.unsplit if _count_ahead(ledger, last, now) < count else 0
    return more


def _count_ahead(ledger: Ledger, state: JobState, now: float) -> int:
    entry = QueueEntry(state.position, equivalence_class_of(state))
    return count_ahead(ledger.waiting, entry, ledger.accounts.tree.parent, *_shares(ledger, now))
