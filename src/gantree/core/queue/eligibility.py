"""Who waits, in which order, and for what other than room."""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.phases import Phase
from gantree.policy.queue_position import count_ahead
from gantree.policy.waiting_jobs import QueueEntry
from gantree.policy.walk import Ask, Choose, IsClosed, ShareOfQueue, Walk


def in_order(
    ledger: Ledger,
    now: float,
    ask: Ask | None = None,
    *,
    queues: Iterable[int] | None = None,
    choose: Choose | None = None,
    is_closed: IsClosed | None = None,
) -> Walk:
    """The waiting jobs, or those of some queues, in the order of the policy at a moment."""
    return Walk(
        ledger.waiting,
        ask or (lambda line, position: True),
        ledger.accounts.tree.parent,
        *_shares(ledger, now),
        queues=queues,
        choose=choose,
        is_closed=is_closed,
    )


def _shares(ledger: Ledger, now: float) -> tuple[ShareOfQueue | None, int]:
    """What decides between queues at a moment, None where nothing does, and how many numbers of a key come before."""
    accounts = ledger.accounts
    before = accounts.order.before_share
    if before is None:
        return None, 0
    return lambda queue: accounts.shares.share(queue, now), before


def eligible(ledger: Ledger, state: JobState, now: float) -> bool:
    """Whether a waiting job waits for nothing but its turn and room. A claimant has its room."""
    if state.held or state.job in ledger.claims or state.not_before > now:
        return False
    return all(ledger.jobs[name].phase is Phase.SUCCEEDED for name in state.spec.after)


def ahead_of(
    ledger: Ledger, state: JobState, now: float, queues: Iterable[int] | None = None
) -> Iterator[str]:
    """The waiting jobs that the next walk asks before this one, in order; queues: of these alone, its own too."""
    jobs = (position.job for _, position in in_order(ledger, now, queues=queues))
    return takewhile(lambda job: job != state.job, jobs)


def how_many_ahead(ledger: Ledger, state: JobState, now: float) -> int:
    """How many these are, of all queues, without going through them."""
    assert state.equivalence_class is not None, f"{state.job} does not wait"
    entry = QueueEntry(state.position, state.equivalence_class)
    return count_ahead(ledger.waiting, entry, ledger.accounts.tree.parent, *_shares(ledger, now))
