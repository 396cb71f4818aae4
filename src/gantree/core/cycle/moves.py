"""Moving gangs so that a waiting one fits: the plan for whoever asks, carried out when an operator says so.

The policy says whether plans are made at all ("off"), told when asked for ("plan"), or also applied by the walk itself
("apply", `core.preemption.free_capacity`). What an operator asked for is planned anew when it is applied: if it no
longer gains, nothing happens. Everybody who moves saves and stops, and goes on at a place that is held for it; it uses
up no eviction.
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
from gantree.placement.request.preferences import DEFAULT_PREFERENCES, PlacementPreferences
from gantree.planning.defragmentation import MovePlan


@dataclass(frozen=True, slots=True)
class Moved:
    """One gang that would move: from where to where, and what it loses by that, in GPU-seconds."""

    job: str
    gpus: int
    source: Placement
    target: Placement
    cost_gpu_s: float


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """Where the waiting gang would go, who moves for it, and the sum, in GPU-seconds: it gains more than it costs.

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
    """The moves that would let a waiting job start now; None where there are none that gain, or policy makes no plans.

    Nothing is changed. Raises NotFound for a job that was never taken in.
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
    """Carry out the plans that operators asked for in this batch, where they still gain; whether anything was."""
    asked, builder.moves_for = builder.moves_for, []
    carried_out = False
    for job in asked:
        found = _move_plan(builder.ledger, builder.ledger.jobs[job], builder.now, preferences)
        if found is not None:
            carried_out = claim_and_move(builder, *found) or carried_out
    return carried_out


def _move_plan(
    ledger: Ledger, state: JobState, now: float, preferences: PlacementPreferences
) -> tuple[PreemptionRequest, MovePlan] | None:
    """The first variant of a waiting job for which moves gain, as it asks for room, with the plan."""
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
