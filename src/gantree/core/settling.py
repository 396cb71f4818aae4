"""Claims that are settled: a claimant starts as soon as its room is free, and lets go of what it cannot have any more.

Who claims room was told so by `core.room` or `core.homes`. It starts unless its queue does not admit it any more.

Since it claimed somebody of a higher priority may have come: who was stopped for it and has that now, or who came in
the same moment in which the last of its victims left. Were it started first, it would be stopped again at once. So
where one of these has a place now if it takes over claims, they are put off until the next walk is over, in which it
is asked; what it does not take they have. Nobody is put off for what else the order reads: what is left to run, or was
served, changes by itself, and a gang that was stopped for it would have been stopped in vain.
"""

from collections.abc import Collection, Iterable

from gantree.core.desk import CAME
from gantree.core.draft import Draft
from gantree.core.guests import any_cells
from gantree.core.holds import lifted, passed_by
from gantree.core.homes import Homes
from gantree.core.ledger import Ledger
from gantree.core.lifecycle import start
from gantree.core.rights import overruled_by, overrules
from gantree.core.state import CLAIM, Claim, JobState
from gantree.core.waiting import eligible
from gantree.core.ways import answers
from gantree.model.facts import ClaimDropped
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.placement.search import find, fits
from gantree.placement.taste import Taste
from gantree.planning.rightsize import chooses
from gantree.policy.rules import Amounts


class Settling:
    """Settles claims, once for each state in which the room of one may be free or lost."""

    def __init__(self, homes: Homes, taste: Taste) -> None:
        self._homes = homes
        self._taste = taste
        self._settled_at: tuple[object, ...] = ()
        self._put_off: frozenset[str] = frozenset()

    def put_off(self, draft: Draft) -> None:
        """Put off the claimants before whom somebody is to be asked; a decision begins."""
        ledger = draft.ledger
        came = {fact.job for fact in draft.facts if isinstance(fact, CAME)} if ledger.claims else {}
        self._put_off = frozenset(
            job
            for job, claim in ledger.claims.items()
            if _goes_after_any(draft, ledger.jobs[job], (*claim.victims, *came))
        )

    def put_off_no_longer(self) -> bool:
        """These have been asked; whether anybody was put off."""
        if not self._put_off:
            return False
        self._put_off, self._settled_at = frozenset(), ()
        return True

    def settle(self, draft: Draft, newer: Collection[str] = ()) -> None:
        """Start claimants whose room is free; drop claims whose victims have left in vain: the room is no more, or
        somebody of a greater right has taken the quota meanwhile.

        newer: those that claimed since the last time.
        """
        ledger, at = draft.ledger, _unsettled(draft.ledger)
        if not ledger.claims or self._settled_at == at:
            return
        claimants: Collection[str] = ledger.claims
        if newer and self._settled_at == (*at[:-1], at[-1][: -len(newer)]):
            claimants = newer
        waiting = [
            job
            for job in claimants
            if ledger.jobs[job].phase is Phase.PENDING and job not in self._put_off
        ]
        for job in sorted(waiting, key=lambda name: ledger.jobs[name].position):
            state, claim = ledger.jobs[job], ledger.claims[job]
            placement = self._claimed(ledger, state)
            if placement is not None and self._may_start(ledger, state, placement):
                _drop(draft, job, "its room is free")
                start(draft, state, placement, at_home=claim.at_home)
            elif not (ledger.leaving if placement else _awaited(ledger, state, claim)):
                lost = "the room was lost" if placement is None else "others have its quota"
                _drop(draft, job, lost)
        self._settled_at = _unsettled(ledger)

    def _claimed(self, ledger: Ledger, state: JobState) -> Placement | None:
        """The place of a claimant, if its room is free: the very one where it was decided, else the best."""
        claim = ledger.claims[state.job]
        with lifted(ledger, (CLAIM + state.job,)) as rooms:
            if self._is_exact(ledger, state) or len(claim.placement.members) != state.spec.members:
                lost = any(not rooms.usable(node) for node in claim.placement.nodes)
                return None if lost or rooms.missing(claim.placement.members) else claim.placement
            if not fits(rooms, state.spec):
                return None
            return find(rooms, state.spec, self._taste)

    def _is_exact(self, ledger: Ledger, state: JobState) -> bool:
        """Whether a claimant may have the very place that it claims only: another one might not be admitted."""
        if state.moving is not None or ledger.claims[state.job].at_home:
            return True
        keeps_clear = not state.spec.preemptible and any_cells(ledger)
        return keeps_clear or chooses(state.spec) or ledger.accounts.rations_models

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
        held = ledger.accounts.held(placement)
        if held != admitted and ledger.accounts.admission(state, held).refused:
            return False
        return self._homes.spares_cells(ledger, state, placement)


def _goes_after_any(draft: Draft, state: JobState, others: Iterable[str]) -> bool:
    """Whether what a job claims gives way to one of these of a higher priority that waits for nothing but that."""
    ledger = draft.ledger
    waiting = (ledger.jobs[job] for job in others if job in ledger.jobs)  # some are forgotten
    return any(
        other.phase is Phase.PENDING
        and other.priority > state.priority
        and eligible(ledger, other, draft.now)
        and overrules(ledger, other, state)
        and _might_start(draft, other)
        for other in waiting
    )


def _might_start(draft: Draft, state: JobState) -> bool:
    """Whether a waiting job has a place if it takes over what is claimed for those that go after it."""
    ledger = draft.ledger
    owners = [CLAIM + job for job in overruled_by(ledger, state)]
    with lifted(ledger, (*owners, *passed_by(ledger, state, draft.now))) as rooms:
        ways = answers(ledger, state)
        return any(not admission.refused and fits(rooms, way) for way, admission in ways)


def _drop(draft: Draft, job: str, reason: str) -> None:
    draft.record(ClaimDropped(at=draft.now, job=job, reason=reason))


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


def _unsettled(ledger: Ledger) -> tuple[int, tuple[int, int], tuple[str, ...]]:
    """What is different whenever the room of a claim may be free, or lost, that was not before."""
    out_of_use = (len(ledger.unusable), ledger.site.version)
    return ledger.room_version, out_of_use, tuple(ledger.claims)
