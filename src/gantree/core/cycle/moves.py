"""Moves of gangs so that a pending one fits: plans on request, carried out when an operator says so.

The policy makes no plans ("off"), shows them on request ("plan"), or applies them in the walk too ("apply",
`core.preemption.free_capacity`). A plan that an operator applies is made again first; if it no longer gains, nothing
happens. Gangs that move save, stop, and restart at a placement that is held for them; they use no eviction budget.
"""

from dataclasses import dataclass

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import PreemptionRequest, projected_occupancy
from gantree.core.preemption.free_capacity import claim_and_move, defragmentation
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.job_variants import variant_admissions
from gantree.model.errors import NotFound
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.planning.defragmentation import MovePlan


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

    proven: no plan costs less.
    """

    job: str
    placement: Placement
    moves: tuple[Moved, ...]
    cost_gpu_s: float
    gain_gpu_s: float
    proven: bool


def defragmentation_plan(
    ledger: Ledger, job: str, now: float, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> Defragmentation | None:
    """The moves by which a pending job could start now; None where none pay, or the policy makes no plans.

    Nothing is changed. Raises NotFound for a job that was never accepted.
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


def move_as_requested(builder: DecisionBuilder, preferences: PlacementPreferences) -> bool:
    """Apply the plans that operators requested in this batch, if they still pay. Returns whether any was applied."""
    requested, builder.moves_for = builder.moves_for, []
    carried_out = False
    for job in requested:
        found = _move_plan(builder.ledger, builder.ledger.jobs[job], builder.now, preferences)
        if found is not None:
            carried_out = claim_and_move(builder, *found) or carried_out
    return carried_out


def _move_plan(
    ledger: Ledger, state: JobState, now: float, preferences: PlacementPreferences
) -> tuple[PreemptionRequest, MovePlan] | None:
    """The request for the first variant of a pending job for which moves pay, with their plan."""
    if (
        ledger.policy.defragment == "off"
        or ledger.occupancy is None
        or state.phase is not Phase.PENDING
    ):
        return None
    if not eligible(ledger, state, now):
        return None
    later = projected_occupancy(ledger, state)
    for variant, admission in variant_admissions(ledger, state, projected=True):
        if not admission.refused:
            request = PreemptionRequest(state, variant, admission)
            plan = defragmentation(ledger, request, later, now, preferences)
            if plan is not None:
                return request, plan
    return None


def _moved(ledger: Ledger, state: JobState, target: Placement, now: float) -> Moved:
    assert state.placement is not None, f"{state.job} holds no place"
    cost_gpu_s = state.gpu_s_at_stake(now) + ledger.policy.restart_s * state.gpus
    return Moved(state.job, state.gpus, state.placement, target, cost_gpu_s)
