"""Plans of moves for a pending gang: which gangs may move, what that costs them, and what a start now gains.

Nothing is decided here: `free_capacity` carries plans out, `core.cycle.moves` those that an operator requests.
"""

from gantree.core.ledger.ledger import Ledger
from gantree.core.preemption.candidates import PreemptionRequest
from gantree.core.queue.cell_usage import runs_in_cells_only
from gantree.core.queue.job_variants import running_variant
from gantree.core.queue.preemption_rules import stoppable_at
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.planning.defragmentation import Movable, MovePlan, plan_defragment
from gantree.topology.occupancy.occupancy import Occupancy


def defragmentation(
    ledger: Ledger,
    request: PreemptionRequest,
    projected: Occupancy,
    now: float,
    preferences: PlacementPreferences,
) -> MovePlan | None:
    """The plan that moves gangs for a pending one; None where none pays.

    The gain is the time until the reserved start of the gang; without a reservation, the time it has waited so far.
    """
    gain_gpu_s = gain_of_start(ledger, request, now)
    return cheapest_moves(ledger, request, projected, now, preferences, gain_gpu_s)


def gain_of_start(ledger: Ledger, request: PreemptionRequest, now: float) -> float:
    """The GPU-seconds that are gained if a pending gang starts now."""
    reservation = ledger.reservations.get(request.state.job)
    waits_s = (reservation.starts_at - now) if reservation else now - request.state.submitted_at
    return max(0.0, waits_s) * max(1, request.spec.gpus)


def cheapest_moves(
    ledger: Ledger,
    request: PreemptionRequest,
    projected: Occupancy,
    now: float,
    preferences: PlacementPreferences,
    gain_gpu_s: float,
) -> MovePlan | None:
    """The plan that costs least, if it costs less than it gains; it has at least one move."""
    if runs_in_cells_only(ledger, request.state):
        return None
    plan = plan_defragment(
        projected,
        request.spec,
        movable_gangs(ledger, now),
        preferences,
        gain_gpu_s=gain_gpu_s,
        exact_s=ledger.policy.exact_s,
    )
    return plan if plan is not None and plan.moves else None  # without a move it is no plan


def movable_gangs(ledger: Ledger, now: float) -> list[Movable]:
    """The running gangs that may move now, each with what it would lose. Replicas stay: they answer requests."""
    return [
        Movable(
            other.job,
            running_variant(ledger, other),
            other.gpu_s_at_stake(now) + ledger.policy.restart_s * other.gpus,
        )
        for other in ledger.holding.values()
        if other.running_at is not None
        and not other.leaving
        and other.moving is None
        and not other.at_home
        and other.spec.preemptible
        and other.spec.service is None
        and stoppable_at(other, ledger.policy) <= now
    ]
