"""Which job would reclaim the room of a preemption at once: a gang that would borrow stops nobody for that.

The test is coarse: it counts whole GPUs by node, so a job that would not fit in the end keeps the gang waiting, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, JobState
from gantree.core.preemption.candidates import PreemptionRequest
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.needs import Need, Needs, NeedTable
from gantree.core.queue.node_gpus import NodeGpus, add_gpus, free_gpus
from gantree.core.queue.owed_rows import OwedTest
from gantree.core.queue.preemption_rules import claims_taken_over
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
    later: Occupancy,
    needs: Needs,
    now: float,
) -> JobState | None:
    """A job that waits, or is preempted and will wait again, and would be owed what it asks for with the victims of a
    plan and the claims that give way to it gone, and may fit there then, but not beside the gang of the plan: it would
    reclaim that room. It may be a claimant itself. So a gang that would borrow stops nobody and takes over no claim
    while there is one. None for a gang that is owed its place, or that takes free room.
    """
    overtaken = claims_taken_over(ledger, request.state, plan.placement)
    if not plan.victims and not overtaken:
        return None
    accounts, gone = ledger.accounts, [victim.owner for victim in plan.victims]
    held = accounts.amounts.held(plan.placement)
    if accounts.projected_admission(request.state, held, gone).state != "borrowed":
        return None
    gpus = free_gpus(later)
    for owner in gone:
        add_gpus(gpus, later.fabric, later.owners.get(owner, ()))
    taken = np.zeros_like(gpus)
    add_gpus(taken, later.fabric, plan.placement.members)
    room, beside = NodeGpus(later.fabric, gpus), NodeGpus(later.fabric, gpus - taken)
    fits = _fits_instead(needs.table(ledger), room, beside)
    waiting = _first_that_might_be_owed(ledger, fits, gone, now)
    claimants = _claimants_without_room(ledger, overtaken, gpus - taken)
    leavers = _leavers_that_fit_instead(ledger, room, beside)
    without = (*gone, *(CLAIM + job for job in overtaken))
    for state in chain(claimants, leavers, waiting):
        if state is not request.state:
            amounts = _amounts_wanted(ledger, state)
            if accounts.projected_admission(state, amounts, without).state == "owed":
                return state
    return None


def _amounts_wanted(ledger: Ledger, state: JobState) -> Amounts:
    """What a job asks for, or has claimed: an elastic one may claim less."""
    claim, amounts = ledger.claims.get(state.job), ledger.accounts.amounts
    return amounts.asked(state) if claim is None else amounts.held(claim.placement)


def _fits_instead(table: NeedTable, room: NodeGpus, beside: NodeGpus) -> BoolArray:
    """Mask by signature: whether a gang may fit this room, but not what another gang leaves of it."""
    fits: BoolArray = room.most_slots(table)[table.where] >= table.slots
    fits &= beside.most_slots(table)[table.where] < table.slots
    return fits & table.is_counted


def _claimants_without_room(
    ledger: Ledger, overtaken: Iterable[str], gpus: IntArray
) -> Iterator[JobState]:
    """Those of some claimants whose claimed GPUs, by node, are not all left."""
    for job in overtaken:
        claimed = np.zeros_like(gpus)
        add_gpus(claimed, ledger.rooms().fabric, ledger.claims[job].placement.members)
        if (claimed > gpus).any():
            yield ledger.jobs[job]


def _leavers_that_fit_instead(
    ledger: Ledger, room: NodeGpus, beside: NodeGpus
) -> Iterator[JobState]:
    """As `_fits_instead`, the gangs that are being preempted and will wait again."""
    rooms, may_reclaim = ledger.rooms(), ledger.accounts.guarantees.may_reclaim
    leavers = [
        state
        for state in ledger.leaving.values()
        if may_reclaim(state.queue) and state.stop_cause is StopCause.PREEMPTED
    ]
    if leavers:
        needs = {at: Need.of(rooms, state.spec, where=at) for at, state in enumerate(leavers)}
        table = NeedTable.of(rooms.fabric, needs, len(leavers))
        yield from compress(leavers, _fits_instead(table, room, beside).tolist())


def _first_that_might_be_owed(
    ledger: Ledger, fits: BoolArray, gone: Sequence[str], now: float
) -> Iterator[JobState]:
    """Of each queue that is guaranteed anything, the first of all that ask alike, of signatures that fit."""
    if not fits.any():
        return
    rows = WaitingRows.of(
        ledger.waiting, filter(ledger.accounts.guarantees.may_reclaim, ledger.waiting.queues)
    )
    owed = OwedTest(ledger, rows.queues, gone).may_be_owed(rows.queue_index, rows.signature)
    kinds: set[tuple[int, int, bool]] = set()
    for row in np.flatnonzero(owed & fits[rows.signature]).tolist():
        eq_class = rows.entry[row].equivalence_class
        kind = eq_class.queue, eq_class.signature, eq_class.preemptible
        if kind in kinds:
            continue
        state = ledger.jobs[rows.entry[row].position.job]
        if eligible(ledger, state, now):
            kinds.add(kind)
            yield state
