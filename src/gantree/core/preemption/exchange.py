"""Gangs within their guarantee that stop in place of gangs of their queue that borrow.

A gang that reclaims a guarantee needs room in one domain, and the gangs that borrow it may be scattered over many. Then
others of their queues stop, within limits that leave each queue what it is guaranteed: those of a queue hold together
no more than those of it that borrow and stay. Which gangs of a queue run is its own affair, so gangs of other queues,
even of one below or above it, are never exchanged for them.
"""

from collections.abc import Iterable, Mapping

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import NOBODY


def exchangeable_gangs(ledger: Ledger, borrowing: Mapping[str, JobState]) -> Mapping[str, JobState]:
    """The other gangs of the queues that these gangs are of."""
    queues = frozenset(state.spec.queue for state in borrowing.values())
    return {
        job: state
        for job, state in (ledger.holding if queues else NOBODY).items()
        if state.spec.queue in queues and job not in borrowing and not state.at_home
    }


def is_fair_exchange(
    ledger: Ledger,
    victims: Iterable[str],
    borrowing: Mapping[str, JobState],
    exchanged: Mapping[str, JobState],
) -> bool:
    """Whether those of the victims that do not borrow hold no more, queue by queue, than those that borrow and stay."""
    gone = frozenset(victims)
    left: dict[str, list[int]] = {}
    staying = {job: state for job, state in borrowing.items() if job not in gone}
    leaving = {job: state for job, state in exchanged.items() if job in gone}
    for sign, gangs in ((1, staying), (-1, leaving)):
        for job, state in gangs.items():
            held = ledger.accounts.quota.ticks_held(job)[:-1]  # the last is the number of jobs
            has = left.get(state.spec.queue) or [0] * len(held)
            left[state.spec.queue] = [
                one + sign * more for one, more in zip(has, held, strict=True)
            ]
    return all(amount >= 0 for has in left.values() for amount in has)
