"""Another size for a gang that runs: the place that it would go on at, as somebody asks for it or a node is drained.

Who may shrink for whom is `core.preemption.free_capacity`, who grows into idle room `core.cycle.growth`. Nothing here
changes anything.
"""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.cell_usage import spares_cells
from gantree.core.queue.job_variants import running_variant
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.preferences import PlacementPreferences
from gantree.placement.resize.elastic import best_size, grown, resized, shrunk
from gantree.topology.occupancy.occupancy import Occupancy


def place_at_size(
    ledger: Ledger, state: JobState, members: int, preferences: PlacementPreferences
) -> Placement | None:
    """Where a running gang would go on with so many members; None where there is no room, or its queue says no.

    It stays where it is as far as it may; from a node on which nothing new may start it goes.
    """
    assert state.placement is not None
    gang = running_variant(ledger, state)
    if stands_on_cordoned(ledger, state):
        if state.at_home:
            return None
        placement = find(without(ledger, state), resized(gang, members), preferences)
    elif members < len(state.placement.members):
        placement = shrunk(ledger.rooms(), gang, state.placement, members)
    elif state.at_home:
        return None
    else:
        placement = grown(ledger.rooms(), gang, state.placement, members)
    return placement if placement is not None and may_hold(ledger, state, placement) else None


def place_elsewhere(
    ledger: Ledger, state: JobState, preferences: PlacementPreferences
) -> Placement | None:
    """Where a running gang would go on if it left where it is: at its size, else at the best that has room."""
    rooms, gang = without(ledger, state), running_variant(ledger, state)
    placement = find(rooms, gang, preferences)
    if placement is None and gang.elastic is not None and ledger.policy.elastic:
        sized = best_size(rooms, gang, preferences)
        placement = None if sized is None else sized[1]
    return placement if placement is not None and may_hold(ledger, state, placement) else None


def without(ledger: Ledger, state: JobState) -> Occupancy:
    """The rooms as they are but for what the gang holds itself."""
    rooms = ledger.rooms().copy()
    rooms.give_back(state.job)
    return rooms


def may_hold(ledger: Ledger, state: JobState, placement: Placement) -> bool:
    """Whether a gang that holds a place may hold this one instead, by its queue and by what cells need."""
    amounts = ledger.accounts.amounts.held(placement)
    return ledger.accounts.admits_instead(state, amounts) and spares_cells(ledger, state, placement)


def stands_on_cordoned(ledger: Ledger, state: JobState) -> bool:
    """Whether a gang holds something on a node on which nothing new may start."""
    cordoned = ledger.site.cordoned.keys()
    return state.placement is not None and not cordoned.isdisjoint(state.placement.nodes)
