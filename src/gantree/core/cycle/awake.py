"""Who of those that wait might get another answer: memory of answers, and what tells that they are outdated.

What was refused need not be asked again until something has changed that could change the answer. Within a walk room
only shrinks; so what found no place finds none until some room is freed, and room that others would not give up they
will not give up until more of them might (`core.cycle.freeable`), or until a moment that was told with the refusal.
Jobs that are alike share an answer: those of one line, and in a search all of one signature that may use the same
reserved room.

Questions go from the cheap to the dear, and each is asked of as many as it can be at once:

    of a signature    is there a place for it, free or reserved         `core.queue.fit_bound`
    of a queue        has its quota refused as little before            `core.cycle.over`
    of a class        could all who might leave for it leave enough     `core.cycle.bounds`
    of a line         who would leave, and would it fit then            `core.cycle.freeable`

Nothing here is needed for correctness: a scheduler that forgets it all decides the same, and a test holds it to that.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, compress, takewhile
from math import inf

from gantree.core.cycle.freeable import Freeable
from gantree.core.cycle.fronts import Fronts
from gantree.core.cycle.no_room_yet import NoRoomYet
from gantree.core.cycle.over import Over
from gantree.core.cycle.settled import Settled
from gantree.core.ledger.decision_builder import Draft
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.free_capacity import NoRoom
from gantree.core.queue.cell_usage import any_cells, only_at_home
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.fit_bound import Wakes, last_of_lines
from gantree.core.queue.held_capacity import Passing
from gantree.core.queue.job_variants import answers
from gantree.core.reservations.selection import CAME, Desk
from gantree.model.phases import Phase
from gantree.policy.order import Line, Position, Standing
from gantree.policy.walk import Looked

FEW = 4
"""So few of a front are asked each by itself at once."""


class Awake:
    """What is remembered of answers.

    _refused holds what found no place (signature, and which reserved room it might use), true while free_version stays;
    _no_room_yet holds for whom nobody makes room, true while that does not grow (where gangs are spared for a time,
    each that is placed brings a new moment to ask at); _quiet the queues in whose fronts nobody can have room made, in
    the same way.
    _alike_in are those of each front, by what they ask for and by what right. _front_of_queue are those of whom a walk
    was told that others might make room for them. sleeps says whether a walk looks only at queues that have changed, as
    all others have the answer of the moment (settled).
    """

    def __init__(self, desk: Desk, *, forgets_rooms: bool) -> None:
        """forgets_rooms: whether moves pay, which changes with time and with what is told and saved."""
        self._desk = desk
        self._forgets_rooms = forgets_rooms
        self._wakes = Wakes()
        self._over = Over()
        self._fronts = Fronts()
        self._freeable = Freeable()
        self.prospects = self._freeable.prospects
        self._passing = Passing()
        self._came: dict[str, JobState] = {}
        self._came_of_line: dict[Line, Position] = {}
        self._versions = (-1, -1, -1)
        self._refused: set[Hashable] = set()
        self._no_room_yet = NoRoomYet()
        self._front_of_queue: dict[int, frozenset[Standing]] = {}
        self.settled = Settled(self._wakes, self._over)
        self.sleeps = False
        self._quiet: dict[int, tuple[Hashable, float]] = {}
        self._alike_in: dict[int, tuple[Hashable, list[list[Standing]]]] = {}
        self._learned = 0
        self._might_at: tuple[object, ...] = ()
        self._might = False
        self._looked_at: tuple[object, ...] = ()
        self._looked_at_in: dict[int, Looked] = {}
        self._open_at: tuple[object, ...] = ()
        self._open_of_signature: dict[int, dict[Line, bool]] = {}

    def begin(self, draft: Draft) -> None:
        """A walk begins."""
        if self._forgets_rooms:
            self._no_room_yet.forget()
            self._quiet.clear()
        self._no_room_yet.follow(draft)
        self._learned += 1
        self._open_of_signature.clear()
        self._freeable.pass_time(draft.ledger, draft.now)
        self._came = _newcomers(draft)
        self._came_of_line = last_of_lines(self._came.values())
        self.forget_outdated(draft.ledger)
        self.sleeps = self._is_settled(draft)
        if not self.sleeps:
            self.settled.ask_all()

    def settle(self, draft: Draft) -> None:
        """Everybody has the answer of the moment, and nothing was decided since."""
        ledger = draft.ledger
        later = (moment for moment in self.moments(ledger) if moment > draft.now)
        until = min(later, default=inf) if self._is_firm(ledger) else draft.now
        moment = self._no_room_yet.settled(ledger, draft.now)
        self.settled.settle(ledger, self._state(ledger), draft.now, until, moment)

    def _is_firm(self, ledger: Ledger) -> bool:
        """Whether time alone gives nobody another answer. As it passes fewer may use reserved room: then less is free,
        but for nodes that are kept as spares only while they are empty.
        """
        if ledger.bookings and ledger.rooms().keeps_spares:
            return False
        return self._no_room_yet.is_firm

    def _is_settled(self, draft: Draft) -> bool:
        """Whether none of those who waited at the last decision could get another answer than then."""
        ledger = draft.ledger
        if self._forgets_rooms or self._desk.wants_more(ledger):
            return False
        moment = self._no_room_yet.moment(ledger, draft.now)
        return self.settled.holds(ledger, self._state(ledger), moment)

    def _state(self, ledger: Ledger) -> tuple[object, ...]:
        """What changes whenever somebody who waits might get another answer, time and other waiting jobs aside."""
        return *self.versions(ledger), tuple(ledger.bookings), tuple(ledger.claims)

    def moment(self, ledger: Ledger) -> int:
        """A number that changes whenever anything was decided or learned."""
        return ledger.applied + self._learned

    def grown(self, ledger: Ledger) -> int:
        """A number that changes whenever room might be made for somebody for whom it could not before."""
        return self._freeable.grown(ledger)

    def versions(self, ledger: Ledger) -> tuple[int, int, int]:
        """Numbers of which one changes whenever somebody might get another answer, or be told another moment."""
        timed = ledger.placings if ledger.policy.spares_for_a_time else 0
        return ledger.free_version, self.grown(ledger), timed

    def forget_outdated(self, ledger: Ledger) -> None:
        """Forget what is no longer true."""
        versions = self.versions(ledger)
        if versions[0] != self._versions[0]:
            self._refused.clear()
            self._open_of_signature.clear()
        if versions[1:] != self._versions[1:]:
            self._no_room_yet.forget()
            self._quiet.clear()
        self._versions = versions

    def moments(self, ledger: Ledger) -> Iterable[float]:
        """Moments at which time alone could change an answer."""
        self.forget_outdated(ledger)
        if ledger.lines.signatures:
            yield self._freeable.next_fall
        later = list(self._no_room_yet.moments(ledger))
        if later:
            self._wakes.look(ledger)
            self._freeable.count_who_left(ledger)
        for asked, moment in later:
            if self._is_in_bounds(ledger, asked) and not self._is_closed_to(ledger, asked, moment):
                yield moment

    def _is_in_bounds(self, ledger: Ledger, asked: Line | str) -> bool:
        """Whether bounds would let somebody of a line, or who was told a start, be asked for room, as things are.

        If not, no moment changes that: one that is remembered was told before others claimed room, or to the next after
        a claim, who is asked without a look at the bounds.
        """
        if asked in ledger.bookings:
            return self._freeable.may_fit_told(ledger, ledger.jobs[asked])
        line = ledger.jobs[asked].line if isinstance(asked, str) else asked
        assert line is not None, f"{asked} waits in no line"
        return self._freeable.is_in_bounds(ledger, line, self._wakes, self._over)

    def _is_closed_to(self, ledger: Ledger, asked: Line | str, at: float) -> bool:
        """Whether jobs of a queue go in turn, and one that goes before who was told a moment will still wait then."""
        if ledger.policy.backfill.overtake != "none":
            return False
        job = asked if isinstance(asked, str) else ledger.lines[asked][0].job
        waiting = ledger.lines.in_queue(ledger.jobs[job].queue)
        ahead = takewhile(lambda each: each.position.job != job, waiting)
        states = (ledger.jobs[each.position.job] for each in ahead)
        return any(
            state.job not in ledger.claims
            and eligible(ledger, state, at)
            and self.may_ever_start(ledger, state)
            for state in states
        )

    # ----- whom a walk looks at

    def queues(self, ledger: Ledger, among: Iterable[int]) -> Iterable[int]:
        """Those of some queues in which anybody might get another answer, or may lose the start that he was told: where
        all had theirs, such as have changed, and where somebody has come who may go before him.
        """
        if not self.sleeps:
            return among
        told = {ledger.jobs[job].queue for job in ledger.bookings} if self._came else set[int]()
        return [
            queue for queue in among if queue in told or self.settled.has_changed(ledger, queue)
        ]

    def those_of(self, draft: Draft, queue: int, *, due: bool = False) -> Looked:
        """Those of a queue who might get another answer as things are, or may be told a start; due: of what is owed."""
        ledger = draft.ledger
        if self.sleeps and not self.settled.has_changed(ledger, queue):
            return Looked(() if due else self._singled_out(ledger, queue))
        looked = self._looked(draft, queue)
        if not due:
            return looked
        kinds: dict[tuple[int, bool], Line] = {}
        for line in (*looked.lines, *(each.line for each in looked.alone)):
            kinds.setdefault((line.signature, line.preemptible), line)
        is_due = {
            kind: ledger.accounts.is_due(ledger.jobs[ledger.lines[line][0].job])
            for kind, line in kinds.items()
        }
        if not any(is_due.values()):
            return Looked()
        lines = [line for line in looked.lines if is_due[line.signature, line.preemptible]]
        return Looked(
            [each for each in looked.alone if is_due[each.line.signature, each.line.preemptible]],
            lines,
        )

    def _looked(self, draft: Draft, queue: int) -> Looked:
        """Those of a queue who might get another answer; the same until anything is decided or learned."""
        ledger = draft.ledger
        at = ledger.applied, draft.now, self._learned, self._desk.wants_more(ledger)
        if self._looked_at != at:
            self._looked_at = at
            self._looked_at_in.clear()
        looked = self._looked_at_in.get(queue)
        if looked is None:
            alone = self._alone(draft, queue)
            looked = self._looked_at_in[queue] = Looked(alone, self._open_lines(draft, queue))
        return looked

    def _alone(self, draft: Draft, queue: int) -> Sequence[Standing]:
        """The front of a queue, and those of whose lines the others are not looked at for the same cause."""
        ledger = draft.ledger
        front = self._in_front(draft, queue)
        self._front_of_queue[queue] = frozenset(front)
        singled_out = self._singled_out(ledger, queue)
        return sorted({*front, *singled_out}) if singled_out else front

    def _singled_out(self, ledger: Ledger, queue: int) -> list[Standing]:
        """Those of a queue who were told a start, or may take the place of one who was, in order."""
        return sorted(
            Standing(state.position, state.line)
            for state in map(ledger.jobs.__getitem__, {**ledger.bookings, **self._came})
            if state.queue == queue and state.line is not None and state.phase is Phase.PENDING
        )

    def _open_lines(self, draft: Draft, queue: int) -> Sequence[Line]:
        """The lines of a queue of which somebody might find a place that its queue admits."""
        ledger = draft.ledger
        fitting = self._wakes.fitting_in(ledger, queue)
        return [
            line
            for signature in sorted(fitting)
            for line in ledger.lines.alike_in(queue, signature)
            if self.is_open(draft, line)
        ]

    def is_open(self, draft: Draft, line: Line) -> bool:
        """Whether somebody of a line might find a place that its queue admits, as far as is known."""
        ledger = draft.ledger
        at = ledger.applied, draft.now
        if self._open_at != at:
            self._open_at = at
            self._open_of_signature.clear()
        open_of_line = self._open_of_signature.setdefault(line.signature, {})
        known = open_of_line.get(line)
        if known is None:
            known = (
                line in ledger.lines
                and self._wakes.may_fit(line, draft.now)
                and not self._over.is_over(ledger, line)
                and not self._all_refused(ledger, line, draft.now)
            )
            open_of_line[line] = known
        return known

    def _all_refused(self, ledger: Ledger, line: Line, now: float) -> bool:
        """Whether a search for one alike has refused all of a line.

        Whoever stands before another in a line may use all reserved room that the other may; so where the first and the
        last may use the same, all may.
        """
        if not self._refused:
            return False
        positions = ledger.lines[line]
        first = self._key(ledger, ledger.jobs[positions[0].job], now)
        if first not in self._refused:
            return False
        return len(positions) == 1 or first == self._key(
            ledger, ledger.jobs[positions[-1].job], now
        )

    def _in_front(self, draft: Draft, queue: int) -> Sequence[Standing]:
        """Those at the front of a queue for whom room might be made, or who may be told a start.

        As far as is quickly told: of each it is asked more closely when the walk has come there, and of most it has not
        to.
        """
        ledger, now = draft.ledger, draft.now
        front = self._fronts.of(ledger, queue, now)
        heads = self._heads_of(ledger, front)
        if len(heads) == len(front):
            return heads
        key = (self.grown(ledger), ledger.lines.changes_in(queue))
        quiet = self._quiet.get(queue)
        if quiet is not None and quiet[0] == key and now < quiet[1]:
            return heads
        likely = self._likely(ledger, queue, front)
        if not likely:
            moments = (*self._moments_of(ledger, front, now), self._freeable.next_fall)
            self._quiet[queue] = (key, min(moments))
        return sorted({*heads, *likely}) if heads else likely

    def _heads_of(self, ledger: Ledger, front: Sequence[Standing]) -> Sequence[Standing]:
        """Those of a front who may be told a start, if there is one to tell."""
        if not self._desk.wants_more(ledger):
            return []
        lacks_room = self._desk.waits_for_other_things
        return [each for each in front if not lacks_room(ledger, each)]

    def _likely(self, ledger: Ledger, queue: int, front: Sequence[Standing]) -> Sequence[Standing]:
        """Those of a front for whom room might be made as far as one bound for all queues tells."""
        if self._forgets_rooms or len(front) <= FEW:
            return front
        key = (ledger.lines.changes_in(queue), len(front))
        if queue not in self._alike_in or self._alike_in[queue][0] != key:
            self._alike_in[queue] = (key, _alike(front))
        alike = self._alike_in[queue][1]
        first = [those[0].line for those in alike]
        might = self._freeable.may_make_room_for_any(ledger, first, self._wakes)
        return sorted(chain.from_iterable(compress(alike, might)))

    def _moments_of(self, ledger: Ledger, front: Iterable[Standing], now: float) -> Iterable[float]:
        """Later moments at which somebody of a front is to be asked again."""
        for each in front:
            yield from self._no_room_yet.moments_of(ledger, each)
            not_before = ledger.jobs[each.position.job].not_before
            if not_before > now:
                yield not_before

    def still(self, draft: Draft, standing: Standing) -> bool:
        """Whether one of them still might."""
        ledger, line = draft.ledger, standing.line
        self._wakes.look(ledger)
        if self._is_singled_out(ledger, standing.position.job):
            return True
        if self.is_open(draft, line) and self.is_new(
            ledger, ledger.jobs[standing.position.job], draft.now
        ):
            return True
        if standing not in self._front_of_queue.get(line.queue, ()):
            return False
        if self._heads_of(ledger, (standing,)):
            return True
        return self.may_make_room(ledger, standing, draft.now)

    def _is_singled_out(self, ledger: Ledger, job: str) -> bool:
        """Whether a job was told a start, or may take the place of one who was."""
        return job in ledger.bookings or job in self._came

    def is_told(self, line: Line, position: Position) -> bool:
        """Whether a job of a line at a position or behind it was told a start, or may take the place of one who was."""
        last = self._came_of_line.get(line)
        return self._wakes.is_told_behind(line, position) or (last is not None and position <= last)

    # ----- one job

    def might(self, draft: Draft, line: Line, state: JobState) -> bool:
        """Whether a job could get another answer than the last one of its line."""
        ledger = draft.ledger
        if self.sleeps and not self.settled.has_changed(ledger, state.queue):
            return False
        at = state.job, self.moment(ledger), draft.now
        if self._might_at != at:  # a walk asks before it gives a job, and who takes it asks again
            self.forget_outdated(ledger)
            self._wakes.look(ledger)
            self._might = self.may_start(ledger, state, draft.now) or self.may_make_room(
                ledger, Standing(state.position, line), draft.now
            )
            self._might_at = at
        return self._might

    def may_start(self, ledger: Ledger, state: JobState, now: float) -> bool:
        """Whether a job might find a place that its queue admits."""
        line = state.line
        assert line is not None, f"{state.job} waits in no line"
        may_fit = self._wakes.is_told(line) or self._wakes.may_fit(line, now)
        return may_fit and not self._over.is_over(ledger, line) and self.is_new(ledger, state, now)

    def is_new(self, ledger: Ledger, state: JobState, now: float) -> bool:
        """Whether nobody alike has been looked for a place in vain."""
        return not self._refused or self._key(ledger, state, now) not in self._refused

    def may_make_room(self, ledger: Ledger, standing: Standing, now: float) -> bool:
        """Whether others might give up enough room for a job, as far as that is quickly told."""
        in_front = self._fronts.has_any_of(ledger, standing.line, now)
        return in_front and self._may_make_room(ledger, standing, now)

    def _may_make_room(self, ledger: Ledger, standing: Standing, now: float) -> bool:
        """The same for one of whose line somebody is in the front of its queue."""
        if self._no_room_yet.has_said(ledger, standing):
            return not self._no_room_yet.stands(ledger, standing, now)
        job = standing.position.job
        if job in ledger.bookings:
            return self._freeable.may_fit_told(ledger, ledger.jobs[job])
        return self._freeable.may_make_room(ledger, standing.line, self._wakes, self._over, now)

    def may_ever_start(self, ledger: Ledger, state: JobState) -> bool:
        """Whether the empty cluster would hold a job, and its queue admit it, in some way."""
        if not self._fronts.may_ever_fit(ledger, state):
            return False
        return not all(admission.never for _, admission in answers(ledger, state))

    def is_behind_one_who_may_borrow(self, draft: Draft, state: JobState) -> bool:
        """Whether somebody who stands before a job in its queue might start now, on more than the queue is owed."""
        ledger = draft.ledger
        fitting = self._wakes.fitting_in(ledger, state.queue)
        if not fitting:
            return False
        waiting = ledger.lines.in_queue(state.queue)
        ahead = takewhile(lambda each: each.position.job != state.job, waiting)
        return any(
            each.line.signature in fitting and self._might_borrow(draft, each) for each in ahead
        )

    def _might_borrow(self, draft: Draft, standing: Standing) -> bool:
        """Whether a job might start now on more than its queue is owed."""
        ledger, state = draft.ledger, draft.ledger.jobs[standing.position.job]
        if ledger.accounts.is_due(state) or not eligible(ledger, state, draft.now):
            return False
        if not self._wakes.may_fit(standing.line, draft.now):
            return False
        if self._over.is_over(ledger, standing.line):
            return False
        return not ledger.accounts.admission(state, ledger.accounts.asked(state)).refused

    # ----- what is remembered

    def no_place(self, ledger: Ledger, state: JobState, now: float) -> None:
        """A job and all that are alike have no place."""
        self._learned += 1
        self._refused.add(self._key(ledger, state, now))
        self._open_of_signature.pop(state.signature, None)

    def over(self, ledger: Ledger, line: Line) -> None:
        """The quota has said no to every way of a line."""
        self._learned += 1
        self._over.refused(ledger, line)
        self._open_of_signature.clear()

    def no_room(
        self, ledger: Ledger, standing: Standing, refusals: Sequence[NoRoom], now: float
    ) -> None:
        """Nobody makes room for a job in any of its ways, nor for those behind it in its line."""
        self._learned += 1
        self._no_room_yet.say(ledger, standing, refusals, now)

    def _key(self, ledger: Ledger, state: JobState, now: float) -> Hashable:
        """What the answer of a search depends on beside the occupancy: who may never leave keeps clear of cells."""
        kept_to = "" if state.spec.preemptible else _kept_to(ledger, state)
        return state.signature, self._passing.mask(ledger, state, now), kept_to


def _newcomers(draft: Draft) -> dict[str, JobState]:
    """Those who began to wait just now; only where one of them may take the place of an estimated start."""
    ledger = draft.ledger
    if all(booking.promised for booking in ledger.bookings.values()):
        return {}
    came = (ledger.jobs[fact.job] for fact in draft.facts if isinstance(fact, CAME))
    return {state.job: state for state in came if state.phase is Phase.PENDING}


def _alike(front: Iterable[Standing]) -> list[list[Standing]]:
    """Those of a front that ask for the same with the same right."""
    found: dict[Hashable, list[Standing]] = {}
    for each in front:
        line = each.line
        found.setdefault((line.signature, line.priority, line.preemptible), []).append(each)
    return list(found.values())


def _kept_to(ledger: Ledger, state: JobState) -> str:
    """Which part of the cluster a gang that is never preempted may have."""
    if not any_cells(ledger):
        return ""
    return "its cells" if only_at_home(ledger, state) else "what no cell needs"
