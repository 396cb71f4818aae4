"""One walk over the waiting jobs: place what fits, make room for what may, and say nothing of the rest.

The walk goes in the order of the policy. Every job is either placed, or given a claim on room that others are told to
give up, or left waiting; a gang behind one that waits may still start, on room that is neither claimed nor reserved.
Placing and making room happen in one walk and not in two, or a small job would be started on GPUs that the next step
takes away again. For each job, the gates in their order:

    held by hand, comes after others, backs off      it is not asked
    LIMIT, QUOTA      what its queue says (`policy.quota`); queues with cells are asked first (`core.homes`)
    ROOM, CONTIGUITY  a place on what is free, and on reserved room that it has left by then (`core.holds`)
    HARM              room that others give up, from least harm to most (`core.room`)

Then the first that still wait are told when they start (`core.bookings`), and elastic gangs grow into what is left
(`core.growth`).

What was refused need not be asked again until something has changed that could change the answer: within the walk room
only shrinks, and between walks `core.wakes` tells which lines might fit now. Jobs that are alike share the answer
(`policy.order`). All of that is memory of answers, never needed for correctness: a scheduler that forgets it decides
the same.

Room that is given up is held for its claimant; claims are settled before anything else is placed.
"""

from collections.abc import Hashable, Sequence
from functools import partial
from math import inf

from gantree.core.bookings import CAME, Desk
from gantree.core.draft import Draft
from gantree.core.freeable import Freeable
from gantree.core.growth import Growth
from gantree.core.holds import lifted, passed_by
from gantree.core.homes import Homes
from gantree.core.ledger import CLAIM, Ledger
from gantree.core.lifecycle import start
from gantree.core.moves import move_as_requested
from gantree.core.over import Over
from gantree.core.room import Wanted, make_room
from gantree.core.state import JobState
from gantree.core.waiting import eligible, in_order
from gantree.core.wakes import Wakes, last_of_lines
from gantree.core.ways import Ways, rations_models
from gantree.model.facts import ClaimDropped, PriorityChanged
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.placement.elastic import best_size
from gantree.placement.search import find, fits
from gantree.placement.taste import Taste
from gantree.planning.rightsize import chooses
from gantree.policy.boosts import boost_of, next_expiry
from gantree.policy.order import Line, Position, Standing
from gantree.policy.rules import Policy

MOST_WALKS = 10_000
"""Walks of one decision. Each begins again only for a fact that the one before recorded, so this is never reached."""
FRONT = 32
"""For so many at the front of each queue others are told to leave, and starts are told; who stands behind them waits
for its turn. Who is held, waits for other jobs or can never fit is not counted. All of a queue of thousands is looked
at for free room, but not for everybody's victims."""


class Cycle:
    """The walk, with what it remembers of earlier ones.

    _refused holds what found no place (signature, and what of held room it might pass), true while room_version stays;
    _retry_at holds the lines for which no room can be made, true while both versions stay and until that moment in
    seconds (None: whenever).
    """

    def __init__(self, policy: Policy, taste: Taste) -> None:
        self._policy = policy
        self._taste = taste
        self._in_turn = policy.backfill.overtake == "none"
        self._moves = policy.defragment == "apply"
        self._wakes = Wakes()
        self._desk = Desk(policy, taste)
        self._homes = Homes(policy, taste)
        self._models_rationed = rations_models(policy)
        self._versions = (-1, -1)
        self._refused: set[Hashable] = set()
        self._retry_at: dict[Line, float | None] = {}
        self._ways = Ways(policy)
        self._growth = Growth(taste)
        self._freeable = Freeable()
        self._over = Over()
        self._came: dict[Line, Position] = {}
        self._fronts: dict[int, tuple[int, float, int]] = {}
        self._quiet: dict[int, tuple[Hashable, float]] = {}
        self._ever_fits: dict[int, bool] = {}
        self._fabric: object = None
        self._settled_at = -1
        self._closed: set[str] = set()
        self._boosted_until: float | None = None

    def run(self, draft: Draft) -> None:
        """Decide who starts now, who must make room, and who is told a start."""
        ledger = draft.ledger
        if ledger.occupancy is None:
            return
        self._end_boosts(draft)
        self._settle_claims(draft)
        self._homes.send(draft)
        walks = 0
        while self._brings_up_answers(draft) or move_as_requested(draft, self._taste):
            walks += 1
            assert walks < MOST_WALKS, "jobs stop each other for ever"
        self._growth.grow(draft)

    def wake_at(self, ledger: Ledger, now: float) -> float | None:
        """The next moment after now at which time alone could change an answer."""
        self._forget_outdated(ledger)
        moments = [
            moment
            for line, moment in self._retry_at.items()
            if moment is not None and moment > now and line in ledger.lines
        ]
        moments += [self._desk.wake_at(ledger, now), next_expiry(self._policy, now)]
        moments.append(self._growth.wake_at(ledger, now))
        first = min(moments)
        return None if first == inf else first

    # ----- the walk

    def _brings_up_answers(self, draft: Draft) -> bool:
        """Walk, and make told starts anew; whether some may get another answer now.

        Room that was reserved when claims were settled may be free by now.
        """
        ledger = draft.ledger
        self._settle_claims(draft)
        if self._moves:  # whether moves pay changes with time, and with what is told and saved
            self._retry_at.clear()
            self._quiet.clear()
        facts, before = len(draft.facts), (ledger.room_version, self._freeable.grown(ledger))
        if not self._walk(draft) or self._desk.review(draft):
            return True
        if self._moves and len(draft.facts) > facts:
            return True
        if not ledger.lines.signatures:  # nobody waits
            return False
        return before != (ledger.room_version, self._freeable.grown(ledger))

    def _walk(self, draft: Draft) -> bool:
        """Ask every job that might start or make room, and tell the first that wait; False where it must begin again.

        It must where one who was told a start has started, so that the next is told one before others pass it; and
        where room might be made that could not be before: whoever goes first is asked first.
        """
        ledger = draft.ledger
        self._forget_outdated(ledger)
        self._closed.clear()
        self._desk.open(ledger)
        self._came = _lines_of_newcomers(draft)
        admits = None if self._in_turn else _Admits(self, draft)
        ask, grown = partial(self._goes_on, draft), self._freeable.grown(ledger)
        for line, position in in_order(ledger, draft.now, ask, admits=admits):
            state = ledger.jobs[position.job]
            if not eligible(ledger, state, draft.now):
                continue
            was_told = state.job in ledger.bookings
            if self._worth_asking(draft, line, state):
                self._ask(draft, line, state)
            if self._in_turn and state.phase is Phase.PENDING and state.job not in ledger.claims:
                self._closed.add(state.spec.queue)
            if state.phase is Phase.PENDING:
                self._desk.consider(draft, state)
            elif was_told:
                return False
            if self._freeable.grown(ledger) != grown:
                return False
        return True

    def awake_in(self, draft: Draft, queue: int) -> Sequence[Standing]:
        """Those of a queue who might get another answer as things are, or may be told a start."""
        ledger = draft.ledger
        all_of_queue = ledger.lines.in_queue(queue)
        front = self._awake_in_front(draft, queue)
        lines = {line for line in (*self._wakes.told, *self._came) if line.queue == queue}
        fitting = self._wakes.fitting_in(ledger, queue)
        if not lines and not fitting:
            return front
        chosen = [
            each for each in all_of_queue if each.line.signature in fitting or each.line in lines
        ]
        return sorted({*front, *chosen}) if front else chosen

    def _awake_in_front(self, draft: Draft, queue: int) -> list[Standing]:
        """Those at the front of a queue for whom room might be made, or who may be told a start."""
        ledger, now = draft.ledger, draft.now
        front = ledger.lines.in_queue(queue)[: self._front(ledger, queue, now)]
        if self._desk.wants_more(ledger):
            return list(front)
        key = (self._freeable.grown(ledger), ledger.lines.changes_in(queue))
        quiet = self._quiet.get(queue)
        if quiet is not None and quiet[0] == key and now < quiet[1]:
            return []
        awake = [each for each in front if self._may_make_room(ledger, each.line, now)]
        if not awake:
            moments = (self._retry_at.get(each.line) for each in front)
            until = min((moment for moment in moments if moment is not None), default=inf)
            self._quiet[queue] = (key, until)
        return awake

    def is_awake(self, draft: Draft, standing: Standing) -> bool:
        """Whether one of them still might."""
        ledger, line = draft.ledger, standing.line
        self._wakes.look(ledger)
        if self._wakes.is_told(line) or line in self._came:
            return True
        if self._wakes.may_fit(line, draft.now) and not self._over.is_over(ledger, line):
            return True
        if not self._stands_in_front(ledger, standing, draft.now):
            return False
        return self._desk.wants_more(ledger) or self._may_make_room(ledger, line, draft.now)

    def version(self, draft: Draft) -> int:
        """A number that changes whenever somebody might get another answer that could not before."""
        return self._freeable.grown(draft.ledger)

    def _goes_on(self, draft: Draft, line: Line, position: Position) -> bool:
        """Whether the next of a line is to be looked at."""
        ledger = draft.ledger
        state = ledger.jobs[position.job]
        if state.spec.queue in self._closed:
            return False
        if self._in_turn or self._desk.wants_more(ledger):
            return True  # those behind the front were left out before
        if self._worth_asking(draft, line, state):
            return True
        last = self._came.get(line)
        return self._wakes.is_told_behind(line, position) or (last is not None and position <= last)

    def _forget_outdated(self, ledger: Ledger) -> None:
        versions = (ledger.room_version, self._freeable.grown(ledger))
        if versions[0] != self._versions[0]:
            self._refused.clear()
        if versions != self._versions:
            self._retry_at.clear()
        self._versions = versions

    def _worth_asking(self, draft: Draft, line: Line, state: JobState) -> bool:
        """Whether a job could get another answer than the last one of its line."""
        ledger = draft.ledger
        self._forget_outdated(ledger)
        self._wakes.look(ledger)
        may_fit = self._wakes.is_told(line) or self._wakes.may_fit(line, draft.now)
        if (
            may_fit
            and not self._over.is_over(ledger, line)
            and self._key(ledger, state, draft.now) not in self._refused
        ):
            return True
        return self._may_make_room(ledger, line, draft.now)

    def _key(self, ledger: Ledger, state: JobState, now: float) -> Hashable:
        """What the answer of a search depends on beside the occupancy."""
        return state.signature, passed_by(ledger, state, now)

    def _front(self, ledger: Ledger, queue: int, now: float) -> int:
        """How many of a queue are its front: up to the last of FRONT that wait for room and might ever have it."""
        all_of_queue = ledger.lines.in_queue(queue)
        if len(all_of_queue) <= FRONT:
            return FRONT
        known = self._fronts.get(queue)
        changes = ledger.lines.changes_in(queue)
        if known is None or known[0] != changes or now >= known[1]:
            known = self._fronts[queue] = (changes, *self._counted(ledger, all_of_queue, now))
        return known[2]

    def _counted(
        self, ledger: Ledger, all_of_queue: Sequence[Standing], now: float
    ) -> tuple[float, int]:
        """(until when a front stays as it is, but for who comes and goes, how many it is)."""
        found = place = 0
        until = inf
        for place, each in enumerate(all_of_queue, 1):  # noqa: B007 - read after the loop
            state = ledger.jobs[each.position.job]
            if state.not_before > now:
                until = min(until, state.not_before)
            found += eligible(ledger, state, now) and self._may_ever_fit(ledger, state)
            if found == FRONT:
                break
        return until, place

    def _stands_in_front(self, ledger: Ledger, standing: Standing, now: float) -> bool:
        """Whether a job is in the front of its queue."""
        all_of_queue = ledger.lines.in_queue(standing.line.queue)
        front = self._front(ledger, standing.line.queue, now)
        return len(all_of_queue) <= front or standing <= all_of_queue[front - 1]

    def _may_ever_fit(self, ledger: Ledger, state: JobState) -> bool:
        """Whether the empty, healthy fabric holds a gang; of one with a choice of sizes or models that is not asked."""
        rooms, spec = ledger.rooms(), state.spec
        if self._fabric is not rooms.fabric:
            self._fabric = rooms.fabric
            self._ever_fits.clear()
            self._fronts.clear()
        if state.signature not in self._ever_fits:
            chosen = spec.elastic is not None or self._has_ways(spec)
            self._ever_fits[state.signature] = chosen or fits(rooms.emptied(), spec)
        return self._ever_fits[state.signature]

    def _may_make_room(self, ledger: Ledger, line: Line, now: float) -> bool:
        """Whether others might give up enough room for a line, as far as that is quickly told."""
        if line in self._retry_at:
            moment = self._retry_at[line]
            return moment is not None and moment <= now
        if not ledger.lines.stands_before(line, self._front(ledger, line.queue, now)):
            return False
        is_over = self._over.is_over(ledger, line)
        return self._freeable.may_make_room(ledger, line, is_over, self._wakes)

    # ----- one job

    def _ask(self, draft: Draft, line: Line, state: JobState) -> None:
        """Start a job in the first way that has a place, or make room for it in the first that others give up."""
        ledger = draft.ledger
        ways = self._ways.answers(ledger, state)
        key = self._key(ledger, state, draft.now)
        if key not in self._refused:
            if any(not one.refused and self._place(draft, state, way) for way, one in ways):
                return
            if not any(one.refused for _, one in ways):
                self._refused.add(key)
            elif all(one.refused for _, one in ways):
                self._over.refused(ledger, line)
        if self._may_make_room(ledger, line, draft.now):
            moments: list[float | None] = []
            for way, admission in ways:
                if not admission.never:
                    wanted = Wanted.of(ledger, state, way, admission)
                    made, retry_at = make_room(draft, wanted, self._taste)
                    if made:
                        return
                    moments.append(retry_at)
            later = [moment for moment in moments if moment is not None]
            self._retry_at[line] = min(later, default=None)

    def _place(self, draft: Draft, state: JobState, way: Job) -> bool:
        """Start a job if it has a place now that its queue admits."""
        ledger = draft.ledger
        with lifted(ledger, passed_by(ledger, state, draft.now)):
            placement = self._find(ledger, way)
            if placement is None or not self._admits(ledger, state, placement):
                return False
            start(draft, state, placement)
        return True

    def _find(self, ledger: Ledger, spec: Job) -> Placement | None:
        placement = find(ledger.rooms(), spec, self._taste)
        if placement is None and spec.elastic is not None and self._policy.elastic:
            sized = best_size(ledger.rooms(), spec, self._taste)
            placement = None if sized is None else sized[1]
        return placement

    def _admits(self, ledger: Ledger, state: JobState, placement: Placement) -> bool:
        """Whether its queue admits what the place really holds: models are known only now."""
        admission = ledger.accounts.admission(state, ledger.accounts.held(placement))
        return admission.state != "refused" and self._homes.spares_cells(ledger, state, placement)

    # ----- claims and boosts

    def _settle_claims(self, draft: Draft) -> None:
        """Start claimants whose room is free; drop claims whose victims have left in vain."""
        ledger = draft.ledger
        if not ledger.claims or self._settled_at == ledger.room_version:
            return
        waiting = [job for job in ledger.claims if ledger.jobs[job].phase is Phase.PENDING]
        for job in sorted(waiting, key=lambda name: ledger.jobs[name].position):
            state, claim = ledger.jobs[job], ledger.claims[job]
            placement = self._claimed(ledger, state)
            if placement is not None and self._may_start(ledger, state, placement):
                draft.record(ClaimDropped(at=draft.now, job=job, reason="its room is free"))
                start(draft, state, placement, at_home=claim.at_home)
            elif ledger.leaving.keys().isdisjoint(
                claim.victims if placement is None else ledger.leaving
            ):
                draft.record(ClaimDropped(at=draft.now, job=job, reason="the room was lost"))
        self._settled_at = ledger.room_version

    def _claimed(self, ledger: Ledger, state: JobState) -> Placement | None:
        """The place of a claimant, if its room is free: the very one where it was decided, else the best."""
        claim = ledger.claims[state.job]
        with lifted(ledger, (CLAIM + state.job,)) as rooms:
            exact = state.moving is not None or claim.at_home or self._has_ways(state.spec)
            if exact or len(claim.placement.members) != state.spec.members:
                lost = not ledger.unusable.keys().isdisjoint(claim.placement.nodes)
                return None if lost or rooms.missing(claim.placement.members) else claim.placement
            if not fits(rooms, state.spec):
                return None
            return find(rooms, state.spec, self._taste)

    def _has_ways(self, spec: Job) -> bool:
        return chooses(spec) or self._models_rationed

    def _may_start(self, ledger: Ledger, state: JobState, placement: Placement) -> bool:
        """Whether nothing but room kept a claimant waiting: some who leave may do so for its quota."""
        if state.moving is not None or ledger.claims[state.job].at_home:
            return True
        return self._admits(ledger, state, placement)

    def _end_boosts(self, draft: Draft) -> None:
        """Give every job the number that it has now, where a boost has expired since the last time."""
        if not self._policy.boosts or self._boosted_until == next_expiry(self._policy, draft.now):
            return
        self._boosted_until = next_expiry(self._policy, draft.now)
        for state in list(draft.ledger.jobs.values()):
            if state.ended_at is not None:
                continue
            number = self._policy.priority_of(state.spec.priority)
            number += boost_of(self._policy, state.spec, draft.now)
            if number != state.priority:
                draft.record(PriorityChanged(at=draft.now, job=state.job, priority=number))


def _lines_of_newcomers(draft: Draft) -> dict[Line, Position]:
    """The lines, and the last of each, of those who began to wait just now.

    Only where one of them may take the place of an estimated start.
    """
    ledger = draft.ledger
    if all(booking.promised for booking in ledger.bookings.values()):
        return {}
    came = (ledger.jobs[fact.job] for fact in draft.facts if isinstance(fact, CAME))
    return last_of_lines(state for state in came if state.phase is Phase.PENDING)


class _Admits:
    """Whom a walk looks at (`policy.walk.Admits`)."""

    def __init__(self, cycle: Cycle, draft: Draft) -> None:
        self._cycle, self._draft = cycle, draft

    @property
    def version(self) -> int:
        """Changes whenever somebody may be who was not before."""
        return self._cycle.version(self._draft)

    def those_of(self, queue: int) -> Sequence[Standing]:
        """Those of a queue who are to be looked at."""
        return self._cycle.awake_in(self._draft, queue)

    def still(self, standing: Standing) -> bool:
        """Whether one of these still is."""
        return self._cycle.is_awake(self._draft, standing)
