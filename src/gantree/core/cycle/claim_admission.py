"""Claims that are settled: a claimant starts as soon as its room is free, and lets go of what it cannot have any more.

Who claims room was told so by `core.preemption.free_capacity` or `core.cycle.cell_scheduling`. It starts unless its
queue does not admit it any more.

Since it claimed somebody of a higher priority may have come to wait: who was stopped for it and has that now, or who
came in the same moment in which the last of its victims left; or its own has fallen. Were it started
first, it would be stopped again at once. So where one of these has a place now if it takes over claims, the claimant is
put off until the walk is over, in which the other one is asked; what that does not take it has. Nobody is put off
for what else the order reads: what is left to run, or was served, changes by itself, and a gang that was stopped for it
would have been stopped in vain.
"""

from collections.abc import Iterable
from operator import attrgetter

from gantree.core.cycle.cell_scheduling import Homes
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, Claim, JobState
from gantree.core.lifecycle.lifecycle import start
from gantree.core.queue.cell_usage import any_cells
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.held_capacity import usable_holds, without_holds
from gantree.core.queue.job_variants import variant_admissions
from gantree.core.queue.preemption_rules import outranked_claims, outranks_claim
from gantree.core.reservations.selection import ADVANCING_FACTS
from gantree.model.facts import ClaimDropped, JobEnded, JobRequeued
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.placement.choice.search import find, fits
from gantree.placement.request.preferences import PlacementPreferences
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.rules import Amounts
from gantree.policy.waiting_jobs import EquivalenceClass


class ClaimAdmission:
    """Settles claims."""

    def __init__(self, homes: Homes, preferences: PlacementPreferences) -> None:
        self._homes = homes
        self._preferences = preferences

    def settle(self, builder: DecisionBuilder, *, all_were_asked: bool = False) -> None:
        """Start claimants whose room is free; drop claims whose victims have left in vain: the room is no more, or
        somebody of a greater right has taken the quota meanwhile.

        all_were_asked: everybody has been who may go before a claimant, so nobody is put off.
        """
        ledger = builder.ledger
        while True:  # whoever starts lets go of what else was held for it; each round ends a claim
            facts = len(builder.facts)
            waiting = [ledger.jobs[job] for job in ledger.claims]
            for state in sorted(waiting, key=attrgetter("position")):
                if state.phase is Phase.PENDING and state.job in ledger.claims:
                    self._settle(builder, state, all_were_asked=all_were_asked)
            if len(builder.facts) == facts:
                return

    def _settle(self, builder: DecisionBuilder, state: JobState, *, all_were_asked: bool) -> None:
        ledger, job, claim = builder.ledger, state.job, builder.ledger.claims[state.job]
        placement = self._claimed(ledger, state)
        if placement is not None and self._may_start(ledger, state, placement):
            if not all_were_asked and _is_overtaken(builder, state):
                return
            _drop(builder, job, "its room is free")
            start(builder, state, placement, at_home=claim.at_home)
        elif not (ledger.leaving if placement else _awaited(ledger, state, claim)):
            lost = "the room was lost" if placement is None else "others have its quota"
            _drop(builder, job, lost)

    def _claimed(self, ledger: Ledger, state: JobState) -> Placement | None:
        """The place of a claimant, if its room is free: the very one where it was decided, else the best."""
        claim = ledger.claims[state.job]
        with without_holds(ledger, (CLAIM + state.job,)) as rooms:
            if self._is_exact(ledger, state) or len(claim.placement.members) != state.spec.members:
                lost = any(not rooms.usable(node) for node in claim.placement.nodes)
                return None if lost or rooms.missing(claim.placement.members) else claim.placement
            if not fits(rooms, state.spec):
                return None
            return find(rooms, state.spec, self._preferences)

    def _is_exact(self, ledger: Ledger, state: JobState) -> bool:
        """Whether a claimant may have the very place that it claims only: another one might not be admitted."""
        if state.moving is not None or ledger.claims[state.job].at_home:
            return True
        keeps_clear = not state.spec.preemptible and any_cells(ledger)
        return keeps_clear or chooses(state.spec) or ledger.accounts.guarantees.of_models

    def _may_start(self, ledger: Ledger, state: JobState, placement: Placement) -> bool:
        """Whether nothing but room kept a claimant waiting: some who leave may do so for its quota."""
        if state.moving is not None or ledger.claims[state.job].at_home:
            return True
        return self.admits(ledger, state, placement)

    def admits(
        self, ledger: Ledger, state: JobState, placement: Placement, admitted: Amounts | None = None
    ) -> bool:
        """Whether its queue admits what the place really holds: models are known only now.

        admitted: amounts that it has admitted just now.
        """
        held = ledger.accounts.amounts.held(placement)
        if held != admitted and ledger.accounts.admission(state, held).refused:
            return False
        return self._homes.spares_cells(ledger, state, placement)


def _is_overtaken(builder: DecisionBuilder, state: JobState) -> bool:
    """Whether what a job claims gives way to one of a higher priority that waits for nothing but that."""
    return any(
        other.priority > state.priority
        and outranks_claim(builder.ledger, other, state)
        and _might_start(builder, other)
        for other in _who_may_go_first(builder, state)
    )


def _who_may_go_first(builder: DecisionBuilder, state: JobState) -> Iterable[JobState]:
    """Those who wait and may go before a claimant now though they did not when it claimed, the first of each line: who
    was stopped for it, who came just now or has waited for a job that ended just now; anybody, if its own priority has
    changed. Who was stopped for another one has lost to that, whatever its priority.
    """
    ledger = builder.ledger
    jobs = [*ledger.claims[state.job].victims]
    for fact in builder.facts:
        if isinstance(fact, ADVANCING_FACTS) and not isinstance(fact, JobRequeued):
            jobs.append(fact.job)
        elif isinstance(fact, JobEnded):
            jobs += ledger.dependents.get(fact.job, ())
    if state.job in jobs:
        jobs += [each.job for eq_class in ledger.waiting for each in ledger.waiting[eq_class]]
    firsts: dict[EquivalenceClass, JobState] = {}
    for job in dict.fromkeys(jobs):
        other = ledger.jobs.get(job)  # some are forgotten
        if other is None or other.phase is not Phase.PENDING or other.equivalence_class is None:
            continue
        if not eligible(ledger, other, builder.now):
            continue
        if (
            other.equivalence_class not in firsts
            or other.position < firsts[other.equivalence_class].position
        ):
            firsts[other.equivalence_class] = other
    return firsts.values()


def _might_start(builder: DecisionBuilder, state: JobState) -> bool:
    """Whether a waiting job has a place if it takes over what is claimed for those that go after it."""
    ledger = builder.ledger
    owners = [CLAIM + job for job in outranked_claims(ledger, state)]
    with without_holds(ledger, (*owners, *usable_holds(ledger, state, builder.now))) as rooms:
        variants = variant_admissions(ledger, state)
        return any(
            not admission.refused and fits(rooms, variant) for variant, admission in variants
        )


def _drop(builder: DecisionBuilder, job: str, reason: str) -> None:
    builder.record(ClaimDropped(at=builder.now, job=job, reason=reason))


def _awaited(ledger: Ledger, state: JobState, claim: Claim) -> list[str]:
    """Who leaves the room of a claim; for a gang that moves also those of whom its claim does not tell."""
    leaving = [job for job in claim.victims if job in ledger.leaving]
    if leaving or state.moving is None:
        return leaving
    nodes = claim.placement.nodes.keys()
    return [
        job
        for job, other in ledger.leaving.items()
        if other.placement is not None and not other.placement.nodes.keys().isdisjoint(nodes)
    ]
