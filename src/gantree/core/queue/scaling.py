"""Another size or placement for a placed gang, on request or because its node is drained. Nothing is changed here.

Shrinking for other gangs is in `core.preemption.free_capacity`, growth into idle room in `core.cycle.growth`.
"""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.cell_usage import keeps_cells_free
from gantree.core.queue.job_variants import running_variant
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.placement.resize.elastic import best_size, grown, resized, shrunk
from gantree.topology.occupancy.occupancy import Occupancy


def place_at_size(
    ledger: Ledger, state: JobState, members: int, preferences: PlacementPreferences
) -> Placement | None:
    """The placement of a placed gang at another size; None where there is no room, or its queue refuses it.

    It keeps as much of its placement as it may; a gang on a cordoned node moves.
    """
    assert state.placement is not None
    gang = running_variant(ledger, state)
    if is_on_cordoned_node(ledger, state):
        if state.at_home:
            return None
        placement = find(without(ledger, state), resized(gang, members), preferences)
    elif members < len(state.placement.members):
        placement = shrunk(ledger.rooms(), gang, state.placement, members)
    elif state.at_home:
        return None
    else:
        placement = grown(ledger.rooms(), gang, state.placement, members, preferences)
    return placement if placement is not None and may_hold(ledger, state, placement) else None


def place_elsewhere(
    ledger: Ledger, state: JobState, preferences: PlacementPreferences
) -> Placement | None:
    """Another placement for a placed gang: at its present size, else at the best size that fits."""
    rooms, gang = without(ledger, state), running_variant(ledger, state)
    placement = find(rooms, gang, preferences)
    if placement is None and gang.elastic is not None and ledger.policy.elastic:
        sized = best_size(rooms, gang, preferences)
        placement = None if sized is None else sized[1]
    return placement if placement is not None and may_hold(ledger, state, placement) else None


def without(ledger: Ledger, state: JobState) -> Occupancy:
    """The occupancy without a gang."""
    rooms = ledger.rooms().copy()
    rooms.give_back(state.job)
    return rooms


def may_hold(ledger: Ledger, state: JobState, placement: Placement) -> bool:
    """Whether a gang may hold a placement in exchange for its present one, by its queue and by the needs of cells."""
    amounts = ledger.accounts.amounts.held(placement)
    return ledger.accounts.admits_instead(state, amounts) and keeps_cells_free(
        ledger, state, placement
    )


def is_on_cordoned_node(ledger: Ledger, state: JobState) -> bool:
    """Whether a gang is on a cordoned node."""
    cordoned = ledger.site.cordoned.keys()
    return state.placement is not None and not cordoned.isdisjoint(state.placement.nodes)
