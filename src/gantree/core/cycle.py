"""One walk over the waiting jobs: place what fits, make room for what may, and say nothing of the rest.

The walk goes in the order of the queue. Every job is either placed, or given a claim on room that lower-priority
gangs are told to leave, or left waiting; a gang behind one that waits may still start, on room that is not
claimed. Placing and making room happen in one walk and not in two, or a small job would be started on GPUs that
the next step takes away again.

What was refused need not be asked again until room appears: within the walk room only shrinks, and between walks
`Ledger.room_version` tells. Jobs that are alike share the answer (`policy.order`).

Room that victims leave is held for its claimant (`core.room`); claims are settled before anything else is placed.
"""

from collections.abc import Hashable

from gantree.core.draft import Draft
from gantree.core.ledger import CLAIM, JobState, Ledger
from gantree.core.lifecycle import start
from gantree.core.room import find_victims, make_room
from gantree.model.facts import ClaimDropped
from gantree.model.phases import Phase
from gantree.placement.search import find, fits
from gantree.placement.taste import Taste
from gantree.policy.order import Position
from gantree.policy.rules import Policy


class Cycle:
    """The walk, with what it remembers of earlier ones: derived memory, never needed for correctness.

    _refused holds signatures without a place, true while room_version stays; _retry_at holds what no room can be
    made for, true while both versions stay and until that moment in seconds (None: whenever).
    """

    def __init__(self, policy: Policy, taste: Taste) -> None:
        self._policy = policy
        self._taste = taste
        self._versions = (-1, -1)
        self._refused: set[Hashable] = set()
        self._retry_at: dict[tuple[Hashable, int], float | None] = {}
        self._settled_at = -1

    def run(self, draft: Draft) -> None:
        """Decide who starts now and who must make room."""
        if draft.ledger.occupancy is None:
            return
        self._settle_claims(draft)
        walk = draft.ledger.lines.walk(
            lambda signature, position: self._worth_asking(draft, signature, position)
        )
        for signature, position in walk:
            state = draft.ledger.jobs[position.job]
            if _eligible(draft, state):
                self._place_or_make_room(draft, signature, state)

    def wake_at(self, ledger: Ledger, now: float) -> float | None:
        """The next moment after now at which a gang becomes old enough to be stopped for one that waits."""
        self._forget_outdated(ledger)
        moments = [
            moment
            for (signature, priority), moment in self._retry_at.items()
            if moment is not None and moment > now and ledger.lines.waits(signature, priority)
        ]
        return min(moments, default=None)

    def _forget_outdated(self, ledger: Ledger) -> None:
        versions = (ledger.room_version, ledger.holders_version)
        if versions[0] != self._versions[0]:
            self._refused.clear()
        if versions != self._versions:
            self._retry_at.clear()
        self._versions = versions

    def _worth_asking(self, draft: Draft, signature: Hashable, position: Position) -> bool:
        """Whether the rest of a line could get another answer than its last one."""
        self._forget_outdated(draft.ledger)
        if signature not in self._refused:
            return True
        return self._may_make_room(draft, signature, -position.minus_priority)

    def _may_make_room(self, draft: Draft, signature: Hashable, priority: int) -> bool:
        ledger = draft.ledger
        hopeless = ledger.lowest_priority() >= priority and not ledger.leaving and not ledger.claims
        if self._policy.preemption.by == "none" or hopeless:
            return False
        if (signature, priority) not in self._retry_at:
            return True
        moment = self._retry_at[signature, priority]
        return moment is not None and moment <= draft.now

    def _place_or_make_room(self, draft: Draft, signature: Hashable, state: JobState) -> None:
        if signature not in self._refused:
            placement = find(draft.ledger.rooms(), state.spec, self._taste)
            if placement is not None:
                start(draft, state, placement)
                return
            self._refused.add(signature)
        if self._may_make_room(draft, signature, state.priority):
            plan, retry_at = find_victims(draft.ledger, state, draft.now, self._policy, self._taste)
            if plan is None:
                self._retry_at[signature, state.priority] = retry_at
            else:
                make_room(draft, state, plan, self._policy, self._taste)

    def _settle_claims(self, draft: Draft) -> None:
        """Start claimants whose room is free; drop claims whose victims have left in vain."""
        ledger = draft.ledger
        if not ledger.claims or self._settled_at == ledger.room_version:
            return
        for job in sorted(ledger.claims, key=lambda name: ledger.jobs[name].position):
            state, claim = ledger.jobs[job], ledger.claims[job]
            hypothetical = ledger.rooms().copy()
            hypothetical.give_back(CLAIM + job)
            if fits(hypothetical, state.spec):
                _start_claimant(draft, state, self._taste)
            elif ledger.leaving.keys().isdisjoint(claim.victims):
                draft.record(ClaimDropped(at=draft.now, job=job, reason="the room was lost"))
        self._settled_at = ledger.room_version


def _eligible(draft: Draft, state: JobState) -> bool:
    """Whether the job waits for nothing but room. Claimants were looked at before."""
    ledger = draft.ledger
    if state.not_before > draft.now or state.job in ledger.claims:
        return False
    return all(ledger.jobs[name].phase is Phase.SUCCEEDED for name in state.spec.after)


def _start_claimant(draft: Draft, state: JobState, taste: Taste) -> None:
    draft.record(ClaimDropped(at=draft.now, job=state.job, reason="its room is free"))
    placement = find(draft.ledger.rooms(), state.spec, taste)
    assert placement is not None, f"{state.job}: the room held for it does not hold it"
    start(draft, state, placement)
