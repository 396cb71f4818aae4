"""The state of a node's GPUs after a member released its part."""

from collections.abc import Sequence
from dataclasses import replace

from gantree.model.placements import MemberPlacement, MigPart, SharePart
from gantree.topology.occupancy.gpus.gpu_state import PLAIN, REMAINDER, GpuStates, millionths_of
from gantree.topology.occupancy.gpus.mig_cut import as_cut
from gantree.topology.occupancy.gpus.node_state import NodeState


def given_back(state: NodeState, member: MemberPlacement) -> GpuStates:
    """States of a node after a member left. AssertionError where it did not hold what it says."""
    states = given_back_whole(state.gpus, member.gpus)
    for part in member.mig:
        states = given_back_instance(states, part)
    states = states if member.share is None else given_back_share(states, member.share)
    if any(states[gpu].cut for gpu in member.parts):
        table = state.rules.table
        states = tuple(
            as_cut(table, one) if n in member.parts else one for n, one in enumerate(states)
        )
    return states


def given_back_whole(states: GpuStates, gpus: Sequence[int]) -> GpuStates:
    """States after these GPUs, which were held whole, are free."""
    changed = list(states)
    for gpu in gpus:
        assert changed[gpu].whole, f"GPU {gpu} is not held whole"
        changed[gpu] = changed[gpu].cut or PLAIN
    return tuple(changed)


def given_back_instance(states: GpuStates, part: MigPart) -> GpuStates:
    """States after a held instance became idle, or is gone where it was kept only."""
    state = states[part.gpu]
    held = next((o for o in state.instances if o.start == part.start and o.held), None)
    assert held is not None and part.profile in (held.profile, REMAINDER), f"{part} is not held"
    after = () if part.profile == REMAINDER else (held.idle,)
    idle = tuple(sorted((*(one for one in state.instances if one is not held), *after)))
    return (
        *states[: part.gpu],
        replace(state, instances=idle),
        *states[part.gpu + 1 :],
    )


def given_back_share(states: GpuStates, part: SharePart) -> GpuStates:
    """States after a tenant left, or compute is no longer kept."""
    state = states[part.gpu]
    if part.isolation == REMAINDER:
        after = replace(state, kept=state.kept - millionths_of(part))
        assert after.kept >= 0, f"{part} is not kept"
    else:
        tenants = list(state.tenants)
        assert part in tenants, f"{part} is not held"
        tenants.remove(part)
        after = replace(state, tenants=tuple(tenants))
    return (*states[: part.gpu], after, *states[part.gpu + 1 :])
