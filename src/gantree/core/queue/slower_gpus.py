"""A place for a placed gang on a slower GPU model that its job accepts. Nothing is changed here."""

from collections.abc import Iterator
from dataclasses import replace

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.scaling import may_hold, without
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.topology.hardware.constants import traits


def place_on_slower_gpus(
    ledger: Ledger, state: JobState, preferences: PlacementPreferences
) -> Placement | None:
    """The place of a gang at its present size on the slowest GPU model of its list that has room.

    None where its job lists no slower model than it holds, none has room, or its queue refuses all of them.
    """
    rooms = without(ledger, state)
    for variant in _slower(ledger, state):
        placement = find(rooms, variant, preferences)
        if placement is not None and may_hold(ledger, state, placement):
            return placement
    return None


def _slower(ledger: Ledger, state: JobState) -> Iterator[Job]:
    """The job on each model that all its roles list and that is slower than all that it holds, the slowest first."""
    assert state.placement is not None
    fabric, present = ledger.rooms().fabric, state.present
    machines = [
        fabric.machine_of_node(fabric.index_of_node[node]) for node in state.placement.nodes
    ]
    held = min((_speed(machine.gpu) for machine in machines if machine.gpu), default=0.0)
    roles = [role for role in present.roles if role.shape.on_gpus]
    listed = set.intersection(*({*role.shape.models} for role in roles)) if roles else set()
    for model in sorted(
        (one for one in listed if _speed(one) < held), key=lambda one: (_speed(one), one)
    ):
        yield replace(
            present,
            roles=tuple(
                replace(role, shape=replace(role.shape, models=(model,)))
                if role.shape.on_gpus
                else role
                for role in present.roles
            ),
        )


def _speed(model: str) -> float:
    return traits(model).peak_TFLOPS
