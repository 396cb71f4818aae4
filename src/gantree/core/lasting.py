"""Whether a gang keeps the room that others are stopped for: not where one that waits would stop it in turn, at once.

A gang that borrows may stop one of another queue that borrows, and yet get nothing for it: where the queue of that one
is guaranteed a part of what it holds, and another job of it waits that fits in that part, the guarantee takes the room
back. If that job may be stopped in turn by the first of its queue, the three go round for ever, each by a right of its
own. So nobody is stopped for a gang that would not stay.
"""

from collections.abc import Iterator, Sequence

from gantree.core.ledger import Ledger
from gantree.core.state import JobState
from gantree.core.waiting import eligible
from gantree.core.wanted import Wanted
from gantree.model.placements import Placement
from gantree.placement.search import fits
from gantree.planning.preempt import Plan, Victim
from gantree.topology.occupancy import Occupancy

GANG = "the gang that waits"


def without_spoilt(
    ledger: Ledger, victims: Sequence[Victim], spoilers: Sequence[JobState]
) -> list[Victim]:
    """Those of some victims whose end gives nothing back to whom these spoilers are owed it."""
    tops = {_top(ledger, each) for each in spoilers}
    return [each for each in victims if _top(ledger, ledger.jobs[each.owner]) not in tops]


def spoilers_of(
    ledger: Ledger, wanted: Wanted, plan: Plan, later: Occupancy, now: float
) -> list[JobState]:
    """Waiting jobs of other queues that would stop a gang at once, had these victims made room for it; [] if it stays.

    Each is owed what they give back, fits where the gang would be, and not beside it.
    """
    mine, accounts = wanted.state, ledger.accounts
    gone = [victim.owner for victim in plan.victims]
    tops = {_top(ledger, ledger.jobs[owner]) for owner in gone} - {_top(ledger, mine)}
    if not tops or not wanted.state.spec.preemptible:
        return []
    if accounts.admission(mine, accounts.held(plan.placement), gone).takes_back:
        return []
    owed = [
        state
        for state in _first_of_lines(ledger, tops, now)
        if accounts.admission(state, accounts.asked(state), gone).takes_back
    ]
    return [state for state in owed if _fits_only_instead(later, gone, plan.placement, state)]


def _first_of_lines(ledger: Ledger, tops: set[int], now: float) -> Iterator[JobState]:
    """Of each line below these children of the root that is guaranteed anything, the first that may start now."""
    for queue in ledger.lines.queues:
        if ledger.accounts.tree.path(queue)[-2] not in tops:
            continue
        if not ledger.accounts.is_guaranteed(queue):
            continue
        for line in ledger.lines.lines_in(queue):
            states = (ledger.jobs[position.job] for position in ledger.lines[line])
            first = next((state for state in states if eligible(ledger, state, now)), None)
            if first is not None:
                yield first


def _fits_only_instead(
    later: Occupancy, gone: Sequence[str], place: Placement, state: JobState
) -> bool:
    room = later.copy()
    for owner in gone:
        room.give_back(owner)
    if not fits(room, state.spec):
        return False
    room.take(GANG, place.members)
    return not fits(room, state.spec)


def _top(ledger: Ledger, state: JobState) -> int:
    """The child of the root that a job is counted below: what its queues are guaranteed together."""
    return ledger.accounts.tree.path(state.queue)[-2]
