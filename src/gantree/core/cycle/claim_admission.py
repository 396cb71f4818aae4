"""Claims at the beginning and at the end of a pass: met as soon as their room is free, dropped if they cannot be met.

Claims are made by `core.preemption.free_capacity` and `core.cycle.cell_scheduling`. A claimant starts unless its queue
no longer admits it.

Since the claim was made, a job of higher priority may have begun to wait: a victim of the claim that has it now, or a
job that arrived as the last victim left; or the priority of the claimant has fallen. If the claimant started first, it
would be preempted at once. So a claimant whose claim such a job could take over is deferred until after the walk, which
considers that job first. Only priority counts here. Other keys of the order (work left, GPU time) change by themselves,
and would make preemptions useless.
"""

from collections.abc import Iterable
from operator import attrgetter

from gantree.core.cycle.cell_plans import CellPlans
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, Claim, JobState
from gantree.core.lifecycle.lifecycle import start
from gantree.core.queue.cell_usage import any_cells
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.held_capacity import usable_holds, without_holds
from gantree.core.queue.job_variants import variant_admissions
from gantree.core.queue.node_gpus import free_gpus
from gantree.core.queue.preemption_rules import outranked_claims, outranks_claim
from gantree.core.reservations.selection import ADVANCING_FACTS
from gantree.model.facts import ClaimDropped, JobEnded, JobRequeued
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.placement.choice.search import find, fits
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.rules import Amounts
from gantree.policy.waiting_jobs import EquivalenceClass


class ClaimAdmission:
    """Starts claimants and drops claims."""

    def __init__(self, cells: CellPlans, preferences: PlacementPreferences) -> None:
        self._cells = cells
        self._preferences = preferences

    def admit(self, builder: DecisionBuilder, *, after_walk: bool = False) -> None:
        """Start claimants whose room is free; drop claims whose room is lost, or whose quota others have.

        after_walk: every job has been considered, so no claimant is deferred.
        """
        ledger = builder.ledger
        while True:  # a start frees the rest of a claim; each round ends one
            facts = len(builder.facts)
            waiting = [ledger.jobs[job] for job in ledger.claims]
            for state in sorted(waiting, key=attrgetter("position")):
                if state.phase is Phase.PENDING and state.job in ledger.claims:
                    self._admit(builder, state, after_walk=after_walk)
            if len(builder.facts) == facts:
                return

    def _admit(self, builder: DecisionBuilder, state: JobState, *, after_walk: bool) -> None:
        ledger, job, claim = builder.ledger, state.job, builder.ledger.claims[state.job]
        placement = self._free_placement(ledger, state)
        if placement is not None and self._may_start(ledger, state, placement):
            if not after_walk and _is_outranked(builder, state):
                return
            _drop(builder, job, "its room is free")
            start(builder, state, placement, at_home=claim.at_home)
        elif not (ledger.leaving if placement else _awaited_gangs(ledger, state, claim)):
            lost = "the room was lost" if placement is None else "others have its quota"
            _drop(builder, job, lost)

    def _free_placement(self, ledger: Ledger, state: JobState) -> Placement | None:
        """The free placement of a claimant: the one that it claimed if it must be that one, else the best."""
        if _lacks_gpus(ledger, state):
            return None
        claim = ledger.claims[state.job]
        with without_holds(ledger, (CLAIM + state.job,)) as rooms:
            if self._is_exact(ledger, state) or len(claim.placement.members) != state.spec.members:
                lost = any(not rooms.usable(node) for node in claim.placement.nodes)
                return None if lost or rooms.missing(claim.placement.members) else claim.placement
            if not fits(rooms, state.spec):
                return None
            return find(rooms, state.spec, self._preferences)

    def _is_exact(self, ledger: Ledger, state: JobState) -> bool:
        """Whether a claimant may only start at the placement that it claimed: its queue might not admit another one."""
        if state.moving is not None or ledger.claims[state.job].at_home:
            return True
        keeps_clear = not state.spec.preemptible and any_cells(ledger)
        return keeps_clear or chooses(state.spec) or ledger.accounts.guarantees.of_models

    def _may_start(self, ledger: Ledger, state: JobState, placement: Placement) -> bool:
        """Whether the queue admits a claimant: it may have waited for the quota of its victims, too."""
        if state.moving is not None or ledger.claims[state.job].at_home:
            return True
        return self.is_admitted_at(ledger, state, placement)

    def is_admitted_at(
        self,
        ledger: Ledger,
        state: JobState,
        placement: Placement,
        requested: Amounts | None = None,
    ) -> bool:
        """Whether the queue of a job admits a placement: its GPU models are known only now.

        requested: amounts that the queue has just admitted.
        """
        held = ledger.accounts.amounts.held(placement)
        if held != requested and ledger.accounts.admission(state, held).refused:
            return False
        return self._cells.keeps_cells_free(ledger, state, placement)


def _lacks_gpus(ledger: Ledger, state: JobState) -> bool:
    """Whether no GPU is held for a claimant yet, and no node has free ones enough for any of its members.

    It saves the search for thousands of claims whose victims have not left.
    """
    if state.spec.alternatives:
        return False
    rooms, least = ledger.rooms(), min(role.shape.gpus for role in state.spec.roles)
    held = rooms.owners.get(CLAIM + state.job, ())
    if not least or any(member.gpus for member in held):
        return False
    return int(free_gpus(rooms).max(initial=0)) < least


def _is_outranked(builder: DecisionBuilder, state: JobState) -> bool:
    """Whether a claim gives way to an eligible job of higher priority that would start with it."""
    return any(
        other.priority > state.priority
        and outranks_claim(builder.ledger, other, state)
        and _may_start_over_claims(builder, other)
        for other in _possible_rivals(builder, state)
    )


def _possible_rivals(builder: DecisionBuilder, state: JobState) -> Iterable[JobState]:
    """The eligible jobs that may have come to outrank a claimant, the first of each equivalence class.

    These are its victims, jobs that have just arrived or advanced, and jobs whose predecessor (`after`) has just ended;
    all jobs if its own priority has changed. Victims of other claims lost to those, whatever their priority.
    """
    ledger = builder.ledger
    jobs = [*ledger.claims[state.job].victims]
    for fact in builder.facts:
        if isinstance(fact, ADVANCING_FACTS) and not isinstance(fact, JobRequeued):
            jobs.append(fact.job)
        elif isinstance(fact, JobEnded):
            jobs += ledger.dependents_after(ledger.jobs[fact.job])
    if state.job in jobs:
        jobs += [each.job for eq_class in ledger.waiting for each in ledger.waiting[eq_class]]
    first_of_class: dict[EquivalenceClass, JobState] = {}
    for job in dict.fromkeys(jobs):
        other = ledger.jobs.get(job)  # some have been forgotten
        if other is None or other.phase is not Phase.PENDING or other.equivalence_class is None:
            continue
        if not eligible(ledger, other, builder.now):
            continue
        if (
            other.equivalence_class not in first_of_class
            or other.position < first_of_class[other.equivalence_class].position
        ):
            first_of_class[other.equivalence_class] = other
    return first_of_class.values()


def _may_start_over_claims(builder: DecisionBuilder, state: JobState) -> bool:
    """Whether a pending job fits if it takes over the claims that give way to it."""
    ledger = builder.ledger
    owners = [CLAIM + job for job in outranked_claims(ledger, state)]
    with without_holds(ledger, (*owners, *usable_holds(ledger, state, builder.now))) as rooms:
        variants = variant_admissions(ledger, state)
        return any(
            not admission.refused and fits(rooms, variant) for variant, admission in variants
        )


def _drop(builder: DecisionBuilder, job: str, reason: str) -> None:
    builder.record(ClaimDropped(at=builder.now, job=job, reason=reason))


def _awaited_gangs(ledger: Ledger, state: JobState, claim: Claim) -> list[str]:
    """The stopping gangs that a claim waits for; for a gang that moves, also others on its nodes."""
    leaving = [job for job in claim.victims if job in ledger.leaving]
    if leaving or state.moving is None:
        return leaving
    nodes = claim.placement.nodes.keys()
    return [
        job
        for job, other in ledger.leaving.items()
        if other.placement is not None and not other.placement.nodes.keys().isdisjoint(nodes)
    ]
