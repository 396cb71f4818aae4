"""One walk over the waiting jobs: place what fits, make room for what may, and say nothing of the rest.

The walk goes in the order of the policy, over what is owed to queues first and then over everybody: what is borrowed
may be taken back at once. Every job is either placed, or given a claim on room that others are told to give up, or left
waiting; a gang behind one that waits may still start, on room that is neither claimed nor reserved. Placing and making
room happen in one walk, or a small job would be started on GPUs that the next step takes away again. Where room may be
made that could not be before, the walk begins anew. For each job, the gates in their order:

    held by hand, comes after others, backs off      it is not asked
    LIMIT, QUOTA      what its queue says (`policy.quota`); queues with cells come first (`core.cycle.cell_scheduling`)
    ROOM, CONTIGUITY  a place on what is free, and on reserved room that it has left by then
                      (`core.queue.held_capacity`)
    HARM              room that others give up, from least harm to most (`core.preemption.free_capacity`)

Then the first that still wait are told when they start (`core.reservations.selection`), and elastic gangs grow into
what is left (`core.cycle.growth`).

What was refused need not be asked again until something has changed that could change the answer: that is
`core.cycle.awake`, which may be forgotten at any time.

Room that is given up is held for its claimant; claims are settled before anything else is placed.
"""

from collections.abc import Collection, Iterable
from functools import partial
from math import inf

from gantree.core.cycle.awake import Awake
from gantree.core.cycle.cell_scheduling import Homes
from gantree.core.cycle.claim_admission import Settling
from gantree.core.cycle.drain import Drain
from gantree.core.cycle.growth import Growth
from gantree.core.cycle.moves import move_as_requested
from gantree.core.cycle.right_behind import RightBehind
from gantree.core.ledger.decision_builder import Draft
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import start
from gantree.core.lifecycle.replacing import Replacing
from gantree.core.preemption.candidates import Wanted
from gantree.core.preemption.free_capacity import NoRoom, make_room
from gantree.core.queue.eligibility import eligible, in_order
from gantree.core.queue.held_capacity import lifted, passed_by
from gantree.core.queue.job_variants import Ways
from gantree.core.reservations.selection import Desk
from gantree.model.facts import (
    CheckpointRequested,
    Fact,
    GangPreempted,
    PriorityChanged,
    RoomClaimed,
    StopDecided,
)
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.preferences import Taste
from gantree.placement.resize.elastic import best_size
from gantree.policy.boosts import boost_of, next_expiry
from gantree.policy.order import Line, Position, Standing
from gantree.policy.rules import Policy
from gantree.policy.walk import Ask, Looked, Walk

MOST_WALKS = 10_000
"""Walks of one decision. Each begins again only for a fact that the one before recorded, so this is never reached."""

CLAIMING = (RoomClaimed, GangPreempted, StopDecided, CheckpointRequested)
"""What is recorded where a job claims room that others are told to leave, and nothing else changes."""


class Cycle:
    """The walk, with what it remembers of earlier ones."""

    def __init__(self, policy: Policy, taste: Taste) -> None:
        self._policy = policy
        self._taste = taste
        self._in_turn = policy.backfill.overtake == "none"
        self._moves = policy.defragment == "apply"
        self._desk = Desk(policy, taste)
        self._awake = Awake(self._desk, forgets_rooms=self._moves)
        self._homes = Homes(policy, taste)
        self._claims = Settling(self._homes, taste)
        self._ways = Ways()
        self._behind = RightBehind(taste)
        self._growth = Growth(taste)
        self._drain = Drain(taste)
        self._replacing = Replacing(taste)
        self._came_here_at = -1
        self._over: set[Line] = set()
        self._closed: set[str] = set()
        self._boosted_until: float | None = None

    def run(self, draft: Draft) -> None:
        """Decide who starts now, who must make room, and who is told a start."""
        ledger = draft.ledger
        if ledger.occupancy is None:
            return
        self._end_boosts(draft)
        self._desk.begin(draft)
        self._claims.begin()
        self._claims.settle(draft)
        self._replacing.run(draft)
        self._drain.run(draft)
        self._homes.send(draft)
        walks = 0
        while self._brings_up_answers(draft) or move_as_requested(draft, self._taste):
            walks += 1
            assert walks < MOST_WALKS, "jobs stop each other for ever"
        self._awake.settle(draft)
        self._growth.grow(draft)

    def wake_at(self, ledger: Ledger, now: float) -> float | None:
        """The next moment after now at which time alone could change an answer."""
        moments = [moment for moment in self._awake.moments(ledger) if moment > now]
        moments += [self._desk.wake_at(ledger, now), next_expiry(self._policy, now)]
        moments += [self._growth.wake_at(ledger, now), self._drain.wake_at(ledger, now)]
        first = min(moments)
        return None if first == inf else first

    # ----- the walk

    def _brings_up_answers(self, draft: Draft) -> bool:
        """Walk, and make told starts anew; whether some may get another answer now.

        Room that was reserved when claims were settled may be free by now.
        """
        ledger = draft.ledger
        self._claims.settle(draft)
        facts, before, placings = len(draft.facts), self._awake.versions(ledger), ledger.placings
        if not self._walk(draft) or self._claims.all_were_asked() or self._desk.review(draft):
            return True
        if ledger.placings > placings and self._desk.found_none(ledger):
            return True
        if self._moves and len(draft.facts) > facts:
            return True
        if not ledger.lines.signatures:  # nobody waits
            return False
        return before != self._awake.versions(ledger)

    def _walk(self, draft: Draft) -> bool:
        """Ask every job that might start or make room, and tell the first that wait; False where it must begin again.

        It must where one who was told a start has started, so that the next is told one before others pass it; and
        where room might be made that could not be before, and somebody waits who would have been asked for it: whoever
        goes first is asked first.
        """
        ledger = draft.ledger
        self._desk.open(ledger)
        self._awake.begin(draft)
        grown = self._awake.grown(ledger)
        owed = [queue for queue in ledger.lines.queues if ledger.accounts.may_reclaim(queue)]
        return self._ask_owed(draft, owed, grown) and self._ask_all(draft, owed, grown)

    def _ask_owed(self, draft: Draft, queues: Collection[int], grown: int) -> bool:
        """Ask those whose queues are owed what they want; False where the walk must begin again.

        They could take it back from who borrows it: a gang that is started now would be told to leave at once.
        """
        if not queues:
            return True
        ledger, self._came_here_at = draft.ledger, -1
        self._over.clear()
        ask = self._goes_on if self._in_turn else self._is_owed  # in turn, nobody passes who waits
        walk = self._in_order(draft, partial(ask, draft), queues)
        for line, position in walk:
            state = ledger.jobs[position.job]
            if not eligible(ledger, state, draft.now):
                continue
            was_told, facts = state.job in ledger.bookings, len(draft.facts)
            if self._goes_first(draft, state) and self._awake.might(draft, line, state):
                self._ask(draft, line, state)
            self._close_behind(ledger, state)
            starts = state.phase is not Phase.PENDING
            if starts and was_told:
                return False
            if self._awake.grown(ledger) != grown:
                if self._awake.sleeps or (starts and walk.has_passed_any(partial(_is_due, ledger))):
                    return False
                if not starts and not self._would_come_here(draft, walk, facts):
                    return False
                grown = self._awake.grown(ledger)
            if starts:  # who was owed something may be no more, and what was claimed give way
                self._over.clear()
        return True

    def _would_come_here(self, draft: Draft, walk: Walk, facts: int) -> bool:
        """Whether a walk over what is owed that began anew would ask nobody before it is here again.

        facts: how many there were before a claim was made. Between queues shares decide, which no claim changes.
        """
        ledger, new = draft.ledger, draft.facts[facts:]
        if self._in_turn or not all(isinstance(fact, CLAIMING) for fact in new):
            return False
        before = ledger.applied - len(new)
        if ledger.bookings or not all(_only_reclaims(fact) for fact in new):
            self._over.clear()
        lately = self._came_here_at == before
        if walk.has_left_out_any(partial(self._first_to_ask, ledger), lately=lately):
            return False
        self._claims.settle(draft, [fact.job for fact in new if isinstance(fact, RoomClaimed)])
        self._awake.begin(draft)
        self._came_here_at = ledger.applied
        return len(draft.facts) == facts + len(new)

    def _first_to_ask(self, ledger: Ledger, line: Line) -> Position | None:
        """The first of a line who is owed what it asks for and might get another answer for a claim of somebody else.

        Not who has a claim, nor whose queue would say no if all were gone who may be stopped for it.
        """
        if line in self._over or not _is_due(ledger, line):
            return None
        return next((each for each in ledger.lines[line] if each.job not in ledger.claims), None)

    def _ask_all(self, draft: Draft, owed: Collection[int], grown: int) -> bool:
        """Ask everybody, and tell the first that wait; False where the walk must begin again.

        owed: the queues that were asked first, for what they are owed.
        """
        ledger, nobody_is_due = draft.ledger, False
        walk = self._in_order(draft, partial(self._goes_on, draft))
        for line, position in walk:
            state = ledger.jobs[position.job]
            if not eligible(ledger, state, draft.now):
                continue
            was_told = state.job in ledger.bookings
            place = self._behind.place(ledger, line, state.job)
            if place is not None:
                start(draft, state, place)
            elif self._awake.might(draft, line, state):
                self._ask(draft, line, state)
            self._close_behind(ledger, state)
            starts = state.phase is not Phase.PENDING
            if not starts:
                self._desk.consider(draft, state)
            elif was_told:
                return False
            else:
                self._behind.started(ledger, line, state)
            if self._awake.grown(ledger) != grown:
                nobody_is_due = nobody_is_due or (starts and not _is_any_due(ledger, owed))
                goes_on = starts and nobody_is_due and not self._awake.sleeps
                if not goes_on or walk.has_passed_any():
                    return False
                grown = self._awake.grown(ledger)
        return True

    def _in_order(self, draft: Draft, ask: Ask, queues: Collection[int] | None = None) -> Walk:
        """The walk over all queues, or over what is owed to some."""
        self._closed.clear()
        ledger = draft.ledger
        if self._in_turn:
            is_closed = partial(self._is_closed, ledger)
            return in_order(ledger, draft.now, ask, queues=queues, is_closed=is_closed)
        admits = _Admits(self._awake, self._behind, draft, due=queues is not None)
        among = self._awake.queues(ledger, ledger.lines.queues if queues is None else queues)
        return in_order(ledger, draft.now, ask, queues=among, admits=admits)

    def _close_behind(self, ledger: Ledger, state: JobState) -> None:
        """Where jobs of a queue go in turn, nobody passes one that still waits, but for those that can never start."""
        if not self._in_turn or state.phase is not Phase.PENDING or state.job in ledger.claims:
            return
        if self._awake.may_ever_start(ledger, state):
            self._closed.add(state.spec.queue)

    def _is_closed(self, ledger: Ledger, queue: int) -> bool:
        return ledger.accounts.tree.queue[queue] in self._closed

    def _goes_first(self, draft: Draft, state: JobState) -> bool:
        """Whether a job is owed what it wants, and nobody who goes before it in its queue might start now.

        Who does might stop it again: between the jobs of one queue its own order decides.
        """
        return draft.ledger.accounts.is_due(state) and not self._awake.is_behind_one_who_may_borrow(
            draft, state
        )

    def _goes_on(self, draft: Draft, line: Line, position: Position) -> bool:
        """Whether the next of a line is to be looked at."""
        if draft.ledger.jobs[position.job].spec.queue in self._closed:
            return False
        if self._behind.place(draft.ledger, line, position.job) is not None:
            return True
        if self._might(draft, line, position):
            return True
        if self._in_turn or self._desk.wants_more(draft.ledger):
            return True  # those behind the front were left out before
        return self._awake.is_told(line, position)

    def _might(self, draft: Draft, line: Line, position: Position) -> bool:
        """Whether the next of a line could get another answer than the last one."""
        return self._awake.might(draft, line, draft.ledger.jobs[position.job])

    def _is_owed(self, draft: Draft, line: Line, position: Position) -> bool:
        """The same in a walk over what is owed: what has started meanwhile may have used that up, for all of a line."""
        return draft.ledger.accounts.is_due(draft.ledger.jobs[position.job]) and self._might(
            draft, line, position
        )

    # ----- one job

    def _ask(self, draft: Draft, line: Line, state: JobState) -> None:
        """Start a job in the first way that has a place, or make room for it in the first that others give up."""
        ledger = draft.ledger
        ways = self._ways.answers(ledger, state)
        if self._awake.is_new(ledger, state, draft.now):
            if any(not one.refused and self._place(draft, state, way) for way, one in ways):
                return
            if not any(one.refused for _, one in ways):
                self._awake.no_place(ledger, state, draft.now)
            elif all(one.refused for _, one in ways):
                self._awake.over(ledger, line)
            else:
                self._awake.settled.over_in_part(line)
        standing = Standing(state.position, line)
        if self._awake.may_make_room(ledger, standing, draft.now):
            refusals: list[NoRoom] = []
            if ledger.leaving:
                ways = self._ways.answers(ledger, state, to_come=True)
            for way, admission in ways:
                if not admission.never:
                    wanted = Wanted(state, way, admission)
                    refusal = make_room(draft, wanted, self._taste, self._awake.prospects)
                    if refusal is None:
                        return
                    refusals.append(refusal)
            self._awake.no_room(ledger, standing, refusals, draft.now)
            if len(refusals) == len(ways) and all(refusal.over for refusal in refusals):
                self._over.add(line)

    def _place(self, draft: Draft, state: JobState, way: Job) -> bool:
        """Start a job if it has a place now that its queue admits."""
        owners = passed_by(draft.ledger, state, draft.now)
        if not owners:
            return self._place_there(draft, state, way)
        with lifted(draft.ledger, owners):
            return self._place_there(draft, state, way)

    def _place_there(self, draft: Draft, state: JobState, way: Job) -> bool:
        """Start a job if it has a place on what is free, as it is, that its queue admits."""
        ledger = draft.ledger
        placement = self._find(ledger, way)
        admitted = ledger.accounts.asked_on(state, way)
        if placement is None or not self._claims.admits(ledger, state, placement, admitted):
            return False
        start(draft, state, placement)
        return True

    def _find(self, ledger: Ledger, spec: Job) -> Placement | None:
        placement = find(ledger.rooms(), spec, self._taste)
        if placement is None and spec.elastic is not None and self._policy.elastic:
            sized = best_size(ledger.rooms(), spec, self._taste)
            placement = None if sized is None else sized[1]
        return placement

    # ----- boosts

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


def _only_reclaims(fact: Fact) -> bool:
    """Whether nobody is stopped but for what is owed: others who are owed something could stop the same ones."""
    return not isinstance(fact, GangPreempted) or fact.cause == "reclaim"


def _is_due(ledger: Ledger, line: Line) -> bool:
    """Whether the jobs of a line are owed what they ask for."""
    return ledger.accounts.is_due(ledger.jobs[ledger.lines[line][0].job])


def _is_any_due(ledger: Ledger, queues: Iterable[int]) -> bool:
    """Whether anybody of these queues waits for what it is owed."""
    return any(_is_due(ledger, line) for queue in queues for line in ledger.lines.lines_in(queue))


class _Admits:
    """Whom a walk looks at (`policy.walk.Admits`). due: only at what is owed."""

    def __init__(self, awake: Awake, behind: RightBehind, draft: Draft, *, due: bool) -> None:
        self._awake, self._behind, self._draft, self._due = awake, behind, draft, due

    @property
    def version(self) -> int:
        """Changes whenever somebody may be who was not before."""
        return self._awake.grown(self._draft.ledger)

    @property
    def moment(self) -> int:
        """Changes whenever anything was decided or learned."""
        return self._awake.moment(self._draft.ledger)

    def those_of(self, queue: int) -> Looked:
        """Those of a queue who are to be looked at."""
        return self._awake.those_of(self._draft, queue, due=self._due)

    def is_open(self, line: Line) -> bool:
        """Whether somebody of a line might start."""
        if self._behind.is_of(self._draft.ledger, line):
            return True
        return self._awake.is_open(self._draft, line)

    def still(self, standing: Standing) -> bool:
        """Whether one of these still is."""
        ledger = self._draft.ledger
        if self._behind.place(ledger, standing.line, standing.position.job) is not None:
            return True
        return self._awake.still(self._draft, standing)
