"""Moves of gangs so that a pending one fits: plans on request, carried out when an operator says so.

The policy makes no plans ("off"), shows them on request ("plan"), or applies them in the walk too ("apply",
`core.preemption.free_capacity`). A request carries the plan that the operator was shown: these moves are made, or none
if they are not possible any more, no longer gain, or are no longer needed. They are made before the walk, so that
nothing of the same decision comes between. A request without a plan is planned after the walk. Gangs that move save,
stop, and restart at a placement that is held for them; they use no eviction budget.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import PreemptionRequest, projected_occupancy
from gantree.core.preemption.free_capacity import claim_and_move, may_claim
from gantree.core.preemption.move_plans import defragmentation, gain_of_start, movable_gangs
from gantree.core.queue.cell_usage import runs_in_cells_only
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.job_variants import variant_admissions
from gantree.model.errors import NotFound
from gantree.model.events import DefragmentRequested
from gantree.model.gang_shapes import is_in_shape
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.model.placements import Placement, PlannedMove
from gantree.placement.choice.search import find
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.planning.defragmentation import PENDING, Move, MovePlan
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Moved:
    """A gang that would move: from where to where, and its loss in GPU-seconds."""

    job: str
    gpus: int
    source: Placement
    target: Placement
    cost_gpu_s: float


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """The placement of the pending gang, the moves for it, and their cost and gain in GPU-seconds: the gain is larger.

    proven: no plan costs less. digest is the same for the same moves and placements, whatever they cost.
    """

    job: str
    placement: Placement
    moves: tuple[Moved, ...]
    cost_gpu_s: float
    gain_gpu_s: float
    proven: bool

    @property
    def planned(self) -> tuple[PlannedMove, ...]:
        """The moves as a request carries them."""
        return tuple(PlannedMove(each.job, each.source, each.target) for each in self.moves)

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits."""
        moves = [(each.job, each.source.members, each.target.members) for each in self.moves]
        said = repr((self.job, self.placement.members, moves))
        return sha256(said.encode()).hexdigest()[:12]


def defragmentation_plan(
    ledger: Ledger, job: str, now: float, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> Defragmentation | None:
    """The moves by which a pending job could start now; None where none pay, or the policy makes no plans.

    It is carried out as it is if it is requested at once. Nothing is changed. Raises NotFound for a job that was never
    accepted.
    """
    state = ledger.jobs.get(job)
    if state is None:
        raise NotFound(f"there is no job {job}")
    found = _move_plan(ledger, state, now, preferences)
    if found is None:
        return None
    _, plan = found
    moves = tuple(
        _moved(ledger, ledger.jobs[each.owner], each.placement, now) for each in plan.moves
    )
    return Defragmentation(
        job, plan.placement, moves, plan.cost_gpu_s, plan.gain_gpu_s, plan.proven
    )


def move_as_planned(builder: DecisionBuilder, preferences: PlacementPreferences) -> None:
    """Make the moves that operators requested with their plans, before anything else is decided."""
    requested = [each for each in builder.moves_for if each.moves]
    builder.moves_for = [each for each in builder.moves_for if not each.moves]
    for event in requested:
        found = _requested_plan(builder.ledger, event, builder.now, preferences)
        if found is not None:
            claim_and_move(builder, *found)


def move_as_requested(builder: DecisionBuilder, preferences: PlacementPreferences) -> bool:
    """Plan and make the moves that operators requested without a plan, if they pay. Returns whether any was made."""
    requested, builder.moves_for = builder.moves_for, []
    carried_out = False
    for event in requested:
        state = builder.ledger.jobs[event.job]
        found = _move_plan(builder.ledger, state, builder.now, preferences)
        if found is not None:
            carried_out = claim_and_move(builder, *found) or carried_out
    return carried_out


def are_under_way(ledger: Ledger, plan: Defragmentation) -> bool:
    """Whether exactly these moves were begun for a job that claims its place, or are made already."""
    claim = ledger.claims.get(plan.job)
    place = ledger.jobs[plan.job].placement if claim is None else claim.placement
    return (
        place is not None
        and place.members == plan.placement.members
        and all(_moves_to(ledger.jobs[each.job], each.target) for each in plan.moves)
    )


def _moves_to(state: JobState, target: Placement) -> bool:
    """Whether a gang moves, or has moved."""
    is_there = state.placement is not None and state.placement.members == target.members
    return state.moving is not None or is_there


def _may_plan(ledger: Ledger, state: JobState, now: float) -> bool:
    """Whether moves may be planned for a job at all."""
    return (
        ledger.policy.defragment != "off"
        and ledger.occupancy is not None
        and state.phase is Phase.PENDING
        and eligible(ledger, state, now)
    )


def _move_plan(
    ledger: Ledger, state: JobState, now: float, preferences: PlacementPreferences
) -> tuple[PreemptionRequest, MovePlan] | None:
    """The request for the first variant of a pending job for which moves pay and may be made, with their plan."""
    if not _may_plan(ledger, state, now):
        return None
    later = projected_occupancy(ledger, state)
    for variant, admission in variant_admissions(ledger, state, projected=True):
        if not admission.refused:
            request = PreemptionRequest(state, variant, admission)
            plan = defragmentation(ledger, request, later, now, preferences)
            if plan is not None and may_claim(ledger, request, plan, now):
                return request, plan
    return None


def _requested_plan(
    ledger: Ledger, event: DefragmentRequested, now: float, preferences: PlacementPreferences
) -> tuple[PreemptionRequest, MovePlan] | None:
    """The plan of a request, for the variant that it is of; None if it does not hold any more."""
    state, placement = ledger.jobs[event.job], event.placement
    if placement is None or not _may_plan(ledger, state, now) or runs_in_cells_only(ledger, state):
        return None
    movable = {gang.owner: gang for gang in movable_gangs(ledger, now)}
    if any(not _stands(ledger, move, movable) for move in event.moves):
        return None
    later = projected_occupancy(ledger, state)
    if not _has_room(later, event.job, placement, event.moves):
        return None
    moves = tuple(Move(each.job, each.target) for each in event.moves)
    cost_gpu_s = sum(movable[each.job].cost_gpu_s for each in event.moves)
    for variant, admission in variant_admissions(ledger, state, projected=True):
        if admission.refused or not _is_of(ledger, variant, placement):
            continue
        if state.spec.alternatives and not is_in_shape(variant, placement):
            continue
        request = PreemptionRequest(state, variant, admission)
        gain_gpu_s = gain_of_start(ledger, request, now)
        if cost_gpu_s < gain_gpu_s and find(later, variant, preferences) is None:
            return request, MovePlan(placement, moves, cost_gpu_s, gain_gpu_s)
    return None


def _stands(ledger: Ledger, move: PlannedMove, movable: Collection[str]) -> bool:
    """Whether a gang of a plan may move, and is where the plan has it."""
    placement = ledger.jobs[move.job].placement if move.job in movable else None
    return placement is not None and placement.members == move.source.members


def _has_room(
    room: Occupancy, job: str, placement: Placement, moves: Sequence[PlannedMove]
) -> bool:
    """Whether a job and the gangs that move have their new places once these have left the old ones."""
    room = room.copy()
    for each in moves:
        room.give_back(each.job)
    for owner, target in ((PENDING + job, placement), *((each.job, each.target) for each in moves)):
        nodes = room.fabric.index_of_node
        if not all(node in nodes and room.usable(node) for node in target.nodes):
            return False
        if room.missing(target.members):
            return False
        room.take(owner, target.members)
    return True


def _is_of(ledger: Ledger, variant: Job, placement: Placement) -> bool:
    """Whether a placement is one of a variant: of its size, and on its models."""
    fabric = ledger.rooms().fabric
    models = {role.name: role.shape.models for role in variant.roles}
    return len(placement.members) == variant.members and all(
        not models[each.role]
        or fabric.machine_of_node(fabric.index_of_node[each.node]).gpu in models[each.role]
        for each in placement.members
    )


def _moved(ledger: Ledger, state: JobState, target: Placement, now: float) -> Moved:
    assert state.placement is not None, f"{state.job} holds no place"
    cost_gpu_s = state.gpu_s_at_stake(now) + ledger.policy.restart_s * state.gpus
    return Moved(state.job, state.gpus, state.placement, target, cost_gpu_s)
