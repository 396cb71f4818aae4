"""The job that would reclaim the room of a preemption at once. A gang that would borrow does not preempt for such room.

The test is coarse: it counts whole GPUs by node, so a job that would not fit in the end delays the gang, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, JobState
from gantree.core.preemption.candidates import PreemptionRequest
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.guarantee_test import GuaranteeTest
from gantree.core.queue.node_gpus import NodeGpus, add_gpus, free_gpus
from gantree.core.queue.preemption_rules import claims_taken_over
from gantree.core.queue.slot_demands import SlotDemand, SlotDemands, SlotDemandTable
from gantree.core.queue.waiting_rows import WaitingRows
from gantree.model.phases import StopCause
from gantree.planning.preemption.plan import Plan
from gantree.policy.rules import Amounts
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.occupancy.occupancy import Occupancy


def find_reclaimer(
    ledger: Ledger,
    request: PreemptionRequest,
    plan: Plan,
    projected: Occupancy,
    demands: SlotDemands,
    now: float,
) -> JobState | None:
    """The job that would reclaim the room of a plan, if the gang of the plan would borrow; None where there is none.

    It would be within its guarantee without the victims and without the claims that the plan takes over; and it may fit
    there, but not beside the gang of the plan. It is pending, or is being preempted and will be pending again, or holds
    one of these claims. None also for a plan on free room.
    """
    claims = claims_taken_over(ledger, request.state, plan.placement)
    if not plan.victims and not claims:
        return None
    accounts, gone = ledger.accounts, [victim.owner for victim in plan.victims]
    held = accounts.amounts.held(plan.placement)
    if accounts.projected_admission(request.state, held, gone).state != "borrowed":
        return None
    gpus = free_gpus(projected)
    for owner in gone:
        add_gpus(gpus, projected.fabric, projected.owners.get(owner, ()))
    taken = np.zeros_like(gpus)
    add_gpus(taken, projected.fabric, plan.placement.members)
    vacated, remaining = NodeGpus(projected.fabric, gpus), NodeGpus(projected.fabric, gpus - taken)
    fits = _fits_only_without(demands.table(ledger), vacated, remaining)
    waiting = _waiting_reclaimers(ledger, fits, gone, now)
    claimants = _displaced_claimants(ledger, claims, gpus - taken)
    leavers = _leaving_reclaimers(ledger, vacated, remaining)
    without = (*gone, *(CLAIM + job for job in claims))
    for state in chain(claimants, leavers, waiting):
        if state is not request.state:
            amounts = _requested_amounts(ledger, state)
            if accounts.projected_admission(state, amounts, without).within_guarantee:
                return state
    return None


def _requested_amounts(ledger: Ledger, state: JobState) -> Amounts:
    """The request of a job, or its claim: an elastic gang may claim less."""
    claim, amounts = ledger.claims.get(state.job), ledger.accounts.amounts
    return amounts.requested(state) if claim is None else amounts.held(claim.placement)


def _fits_only_without(table: SlotDemandTable, vacated: NodeGpus, remaining: NodeGpus) -> BoolArray:
    """A mask by signature: the gangs that may fit the vacated GPUs, but not the remaining ones."""
    fits: BoolArray = vacated.most_slots(table)[table.shape_tier] >= table.slots
    fits &= remaining.most_slots(table)[table.shape_tier] < table.slots
    return fits & table.is_bounded


def _displaced_claimants(
    ledger: Ledger, claims: Iterable[str], gpus: IntArray
) -> Iterator[JobState]:
    """The jobs of these claims whose claimed GPUs are not all left."""
    for job in claims:
        claimed = np.zeros_like(gpus)
        add_gpus(claimed, ledger.rooms().fabric, ledger.claims[job].placement.members)
        if (claimed > gpus).any():
            yield ledger.jobs[job]


def _leaving_reclaimers(
    ledger: Ledger, vacated: NodeGpus, remaining: NodeGpus
) -> Iterator[JobState]:
    """The gangs that are being preempted, as `_fits_only_without`."""
    rooms, may_reclaim = ledger.rooms(), ledger.accounts.guarantees.may_reclaim
    leavers = [
        state
        for state in ledger.leaving.values()
        if may_reclaim(state.queue) and state.stop_cause is StopCause.PREEMPTED
    ]
    if leavers:
        demands = {
            at: SlotDemand.of(rooms, state.spec, shape_tier=at) for at, state in enumerate(leavers)
        }
        table = SlotDemandTable.of(rooms.fabric, demands, len(leavers))
        yield from compress(leavers, _fits_only_without(table, vacated, remaining).tolist())


def _waiting_reclaimers(
    ledger: Ledger, fits: BoolArray, gone: Sequence[str], now: float
) -> Iterator[JobState]:
    """Eligible jobs that may be within their guarantee, of signatures that fit: the first of each queue and request."""
    if not fits.any():
        return
    rows = WaitingRows.of(
        ledger.waiting, filter(ledger.accounts.guarantees.may_reclaim, ledger.waiting.queues)
    )
    guaranteed = GuaranteeTest(ledger, rows.queues, gone).may_be_within(
        rows.queue_index, rows.signature
    )
    kinds: set[tuple[int, int, bool]] = set()
    for row in np.flatnonzero(guaranteed & fits[rows.signature]).tolist():
        eq_class = rows.entry[row].equivalence_class
        kind = eq_class.queue, eq_class.signature, eq_class.preemptible
        if kind in kinds:
            continue
        state = ledger.jobs[rows.entry[row].position.job]
        if eligible(ledger, state, now):
            kinds.add(kind)
            yield state
