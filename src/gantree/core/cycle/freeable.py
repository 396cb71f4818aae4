"""What others could give up at most, for a line that asks: bounds before any plan is made.

For a whole class of lines GPUs are counted by node (`core.cycle.bounds`). For a line they are counted all together: of
gangs of lower priority or behind it in the order (`core.cycle.behind`), of gangs that borrow, of those that leave or
hold room for others that gives way. Then all of these leave a copy of the occupancy, one for all lines that may have
the same, and it is looked whether the line's gang fits, once for each signature, and again only if somebody stays no
more beside whom it did not (`core.cycle.stayers`). No bound is ever too low: whoever might be told to leave counts with
all it holds, whatever else forbids it. Room of a promised start is in none, as it gives way to its own gang alone,
which is asked about by itself.

Counted anew when somebody has taken a place or begun to leave one, nodes are lost, or starts were told. By one who has
left when told to they are less at most: that is counted only where it matters (`Freeable.count_who_left`). Who could
get no room needs not be asked again until more might be given up (`Freeable.grown`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import attrgetter

from gantree.core.cycle.behind import Behind, Ranks
from gantree.core.cycle.bounds import Bounds, Places
from gantree.core.cycle.over import Over
from gantree.core.cycle.stayers import Beside, Stayers
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import BOOKING, CLAIM, JobState
from gantree.core.preemption.candidates import Prospects
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.fit_bound import Wakes
from gantree.core.queue.held_capacity import outranked
from gantree.core.queue.job_variants import answers
from gantree.core.queue.preemption_rules import SETTLED_S, borrowers, overruled_by
from gantree.placement.choice.search import fits
from gantree.planning.rightsize import chooses
from gantree.policy.order import Line, Position
from gantree.policy.rules import Preemption
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class _Victims:
    """Who might be stopped, the GPUs of them all, and a number that is the same for the same ones."""

    number: int
    jobs: tuple[str, ...]
    gpus: int


NOBODY = _Victims(0, (), 0)


class Freeable:
    """The bounds of the moment, by priority, queue and what gives way; filled when asked."""

    def __init__(self) -> None:
        self.prospects = Prospects()
        self._looked_at = self._applied = -1
        self._grown = 0
        self._causes: tuple[object, ...] = ()
        self._versions: tuple[object, ...] = ()
        self._in_vain: dict[Line, str] = {}
        self._places: Places | None = None
        self._bounds: Bounds | None = None
        self._of_kind: dict[tuple[int, int], tuple[bool, bool]] = {}
        self._gpus_of_all = 0
        self._stay: list[JobState] = []
        self._stay_in_queue: dict[str, list[JobState]] = {}
        self._ranks = Ranks()
        self._now = 0.0
        self.next_fall = inf
        self._answers: dict[Line, tuple[str, bool]] = {}
        self._not_owed: list[JobState] | None = None
        self._victims: dict[Hashable, _Victims] = {}
        self._number_of_victims: dict[tuple[str, ...], int] = {}
        self._in_any_case = 0
        self._elastic = 0
        self._estimates: dict[str, int] = {}
        self._passed_by: dict[Position, tuple[str, ...]] = {}
        self._of_others: dict[int, int] = {}
        self._owed_lines: dict[Hashable, bool] = {}
        self._stayers = Stayers()
        self._beside: dict[Hashable, Beside] = {}
        self._emptied: dict[Hashable, Occupancy] = {}
        self._claims = self._left_at = 0
        self._next: tuple[int, Line] | None = None

    def grown(self, ledger: Ledger) -> int:
        """A number that changes whenever room might be made for somebody for whom it could not before.

        That somebody takes a place is no such cause: who might be stopped has what was free. It is one where others
        are then no longer owed theirs. Nor is one more claim: it only takes, but for whom it gives way to, and these
        might have claimed that room before. Who is told to leave for it is a cause by itself. A start that is told
        is one: what its job was told before it was told as one of its line.
        """
        if self._looked_at != ledger.applied:
            self._looked_at = ledger.applied
            accounts = ledger.accounts
            told = tuple((job, accounts.is_due(ledger.jobs[job])) for job in ledger.bookings)
            lost = accounts.pushed_out(), accounts.claims_lost()
            causes = (ledger.holders_version, told, *lost)
            if causes != self._causes:
                self._causes = causes
                self._grown += 1
                self._in_vain.clear()
            if ledger.policy.spares_for_a_time:  # who was placed brings a moment to ask at
                self._in_vain.clear()
        return self._grown

    def count_who_left(self, ledger: Ledger) -> None:
        """Count anew if anybody has left who was to: what others might give up is the same then, or less."""
        if self._left_at != ledger.room_version:
            self._applied, self._versions = -1, ()

    def pass_time(self, ledger: Ledger, now: float) -> None:
        """A walk begins: gangs that have fallen back in the order since the last one may be stopped for others now.

        At the very moment of a fall it may be seen or not.
        """
        if self._now < now >= self.next_fall - 2 * SETTLED_S:
            self._applied, self._looked_at, self._causes = -1, -1, ()
            self._ranks.forget()
        self._now, self.next_fall = now, self._ranks.next_fall(ledger, now)

    def may_make_room(
        self, ledger: Ledger, line: Line, wakes: Wakes, over: Over, now: float
    ) -> bool:
        """Whether others might give up enough for a line.

        A no is kept if its first may start: who takes free room takes it from one that may not, and might be stopped.
        """
        self.grown(ledger)
        self._now = now
        head = ledger.lines[line][0].job
        if self._in_vain.get(line) == head:
            return False
        if self._follows_a_claim(ledger, line):
            return True
        may = self.is_in_bounds(ledger, line, wakes, over)
        if not may and eligible(ledger, ledger.jobs[head], now):
            self._in_vain[line] = head
        return may

    def is_in_bounds(self, ledger: Ledger, line: Line, wakes: Wakes, over: Over) -> bool:
        """Whether others might give up enough for a line as far as bounds tell, now or at any moment: else no moment is
        one to ask again at, as long as nothing else changes.
        """
        self._count(ledger)
        return self._judge(ledger, line, wakes, over)

    def _follows_a_claim(self, ledger: Ledger, line: Line) -> bool:
        """Whether a line is the next to ask since room was claimed.

        Where one queue takes back what it lent, the next mostly does. Its plan costs less than bounds that its own
        claim would outdate.
        """
        if self._next == (ledger.applied, line):
            return True
        if self._applied == ledger.applied or len(ledger.claims) <= self._claims:
            return False
        self._claims, self._next = len(ledger.claims), (ledger.applied, line)
        return True

    def _judge(self, ledger: Ledger, line: Line, wakes: Wakes, over: Over) -> bool:
        if ledger.policy.defragment == "apply":  # anybody might move
            may = wakes.suffices(ledger, line, self._gpus_of_all)
        else:
            may = self._might_leave(ledger, line, wakes)
        if not may or ledger.leaving:  # who leaves may do so for its quota
            return may
        return not over.is_over(ledger, line) or self.may_stop(ledger, line)

    def _might_leave(self, ledger: Ledger, line: Line, wakes: Wakes) -> bool:
        """Whether a line might fit where all who might leave for it have left."""
        head = ledger.lines[line][0].job
        known = self._answers.get(line)
        if known is None or known[0] != head:
            known = self._answers[line] = (head, self._might(ledger, line, wakes))
        return known[1]

    def _might(self, ledger: Ledger, line: Line, wakes: Wakes) -> bool:
        """The same, from the cheap to the dear: by order mostly nobody is behind who waits, by priority many are."""
        by_order = ledger.policy.preemption.by == "order"
        if not by_order and not self._in_bounds(ledger, line, wakes):
            return False
        gpus = self.by(ledger, line)
        if not gpus or not wakes.suffices(ledger, line, gpus):
            return False
        return (not by_order or self._in_bounds(ledger, line, wakes)) and self.may_fit(ledger, line)

    def _in_bounds(self, ledger: Ledger, line: Line, wakes: Wakes) -> bool:
        """Whether a line might fit by counts of GPUs alone; not to be asked of a job that was told a start."""
        head = ledger.jobs[ledger.lines[line][0].job]
        due = self._may_be_due(ledger, line)
        need = wakes.need(ledger, line.signature)
        return self._bounds_of(ledger).may_fit(head, need, due=due)

    def may_make_room_for_any(
        self, ledger: Ledger, lines: Sequence[Line], wakes: Wakes
    ) -> list[bool]:
        """For each of some lines of one queue whether others might give up enough, by one bound for all queues.

        Whether one might take anything back is asked only where that would make it fit. Not to be asked where gangs
        move: anybody might then.
        """
        self._count(ledger)
        queue, jobs = lines[0].queue, ledger.jobs
        if self._bounds_of(ledger).are_apart(jobs[ledger.lines[lines[0]][0].job].spec.queue):
            return [True] * len(lines)
        reclaims, known, might = ledger.accounts.may_reclaim(queue), self._of_kind, []
        for line in lines:
            kind = line.signature, line.priority
            if kind not in known:
                known[kind] = self._bounds_of_kind(ledger, line, wakes)
            anyhow, if_due = known[kind]
            might.append(anyhow or (if_due and reclaims and self._may_be_due(ledger, line)))
        return might

    def _bounds_of_kind(self, ledger: Ledger, line: Line, wakes: Wakes) -> tuple[bool, bool]:
        """Whether a line of any queue might fit, as it is, and if it might take back what its queue has lent."""
        head, need = ledger.jobs[ledger.lines[line][0].job], wakes.need(ledger, line.signature)
        bounds = self._bounds_of(ledger)
        anyhow = bounds.may_fit_any(head, need, due=False)
        return anyhow, anyhow or bounds.may_fit_any(head, need, due=True)

    def _bounds_of(self, ledger: Ledger) -> Bounds:
        """The bounds of the moment."""
        fabric = ledger.rooms().fabric
        if self._places is None or self._places.fabric is not fabric:
            self._places = Places(fabric)
        if self._bounds is None:
            self._places.forget(ledger.holding)
            not_owed = self._that_are_not_owed(ledger)
            self._bounds = Bounds(ledger, self._stay, not_owed, self._places)
        return self._bounds

    def _may_be_due(self, ledger: Ledger, line: Line) -> bool:
        """Whether a line might take back what its queue has lent, now or when those have left who leave.

        A gang with several ways might in any of them.
        """
        accounts, head = ledger.accounts, ledger.jobs[ledger.lines[line][0].job]
        if not accounts.may_reclaim(line.queue):
            return False
        several = chooses(head.spec) or head.spec.elastic is not None or accounts.rations_models
        if several or accounts.is_due(head):
            return True
        return bool(ledger.leaving) and accounts.may_be_owed_to_come(head)

    def by(self, ledger: Ledger, line: Line) -> int:
        """GPUs that might become free for a line beside what is free now; what is reserved for jobs of it, too."""
        self._count(ledger)
        gpus = self._in_any_case + self._elastic + self._stopped(ledger, line)
        if self._estimates:
            head = ledger.jobs[ledger.lines[line][0].job]
            gpus += sum(self._estimates[job] for job in self._passed(ledger, head))
        return gpus

    def may_stop(self, ledger: Ledger, line: Line) -> bool:
        """Whether anybody at all might be stopped for a line: nothing else makes room in its quota."""
        self._count(ledger)
        return self._stopped(ledger, line) > 0

    def may_fit(self, ledger: Ledger, line: Line) -> bool:
        """Whether the gangs of a line might fit where all who might leave for them have left.

        Gangs of several sizes or models are not looked at, nor any where nodes are kept as spares: there more free
        nodes are not always more room.
        """
        self._count(ledger)
        head = ledger.jobs[ledger.lines[line][0].job]
        several = head.spec.elastic is not None or chooses(head.spec)
        if several or ledger.rooms().keeps_spares:
            return True
        key = self._who_leaves(ledger, line, head)
        return self._fits_beside(ledger, key, head, partial(self._leavers, ledger, line))

    def may_fit_told(self, ledger: Ledger, state: JobState) -> bool:
        """As `may_fit`, for a job that was told a start, which may also have what is reserved for it."""
        self._count(ledger)
        several = state.spec.elastic is not None or chooses(state.spec)
        if several or ledger.rooms().keeps_spares or ledger.policy.defragment == "apply":
            return True
        leavers = partial(self._leavers_for_told, ledger, state)
        return self._fits_beside(ledger, state.job, state, leavers)

    def _fits_beside(
        self, ledger: Ledger, who: Hashable, state: JobState, leavers: Callable[[], Iterable[str]]
    ) -> bool:
        """Whether a waiting gang fits where these have left; who is the same where the same ones might."""
        if who not in self._beside:
            self._beside[who] = self._stayers.beside(ledger, state, leavers())
        beside, signature = self._beside[who], state.signature
        if signature not in beside.fitting and signature not in beside.refused:
            if who not in self._emptied:
                self._emptied[who] = self._without(ledger, state, leavers())
            has_place = fits(self._emptied[who], state.spec)
            (beside.fitting if has_place else beside.refused).add(signature)
        return signature in beside.fitting

    # ----- who might leave

    def _stopped(self, ledger: Ledger, line: Line) -> int:
        """GPUs of gangs that might be stopped for a line."""
        return self._below(ledger, line).gpus + self._borrowed(ledger, line)

    def _below(self, ledger: Ledger, line: Line) -> "_Victims":
        """Those who might be stopped for a line by priority or order."""
        rules = ledger.policy.preemption
        if rules.by == "none":
            return NOBODY
        head = ledger.jobs[ledger.lines[line][0].job]
        behind = self._behind(ledger, head)
        key = (line.queue, line.priority, behind)
        if key not in self._victims:
            jobs = tuple(state.job for state in self._by_right(ledger, line, behind))
            number = self._number_of_victims.setdefault(jobs, 1 + len(self._number_of_victims))
            gpus = sum(ledger.jobs[job].touched_gpus for job in jobs)
            self._victims[key] = _Victims(number, jobs, gpus)
        return self._victims[key]

    def _behind(self, ledger: Ledger, state: JobState) -> Behind | None:
        """Who is behind a waiting job, where gangs are stopped by order."""
        if ledger.policy.preemption.by != "order":
            return None
        return self._ranks.behind(ledger, state, self._now)

    def _by_right(self, ledger: Ledger, line: Line, behind: Behind | None) -> Iterable[JobState]:
        """Gangs of which none is left out that might be stopped for a line by right.

        Not one that is owed its place, nor its equal, in another queue.
        """
        rules = ledger.policy.preemption
        if behind is not None:
            return self._ranks.those(behind)
        in_queue = self._stay_in_queue.get(ledger.jobs[ledger.lines[line][0].job].spec.queue, ())
        mine = _lesser(in_queue, line.priority, rules, or_equal=rules.gain > 0)
        if rules.by == "priority":
            mine = [s for s in mine if s.priority < line.priority or s.spec.expected_s is not None]
        if not rules.across:
            return mine
        others = _lesser(self._that_are_not_owed(ledger), line.priority, rules)
        return [*mine, *(state for state in others if state.queue != line.queue)]

    def _that_are_not_owed(self, ledger: Ledger) -> list[JobState]:
        """Those who might be stopped for other queues than theirs."""
        if self._not_owed is None:
            self._not_owed = ledger.accounts.not_owed(self._stay)
        return self._not_owed

    def _passed(self, ledger: Ledger, head: JobState) -> tuple[str, ...]:
        """The estimated starts that give way to a job."""
        if not self._estimates:
            return ()
        if head.position not in self._passed_by:
            self._passed_by[head.position] = outranked(ledger, head)
        return self._passed_by[head.position]

    def _borrowed(self, ledger: Ledger, line: Line) -> int:
        """GPUs of gangs that run on what a line's queue is guaranteed; 0 where the line would have to borrow itself."""
        if not ledger.accounts.may_reclaim(line.queue):
            return 0
        gpus = self._lent(ledger, line.queue)
        return gpus if gpus and self._is_owed(ledger, line) else 0

    def _lent(self, ledger: Ledger, queue: int) -> int:
        """GPUs of gangs that run on what a queue is guaranteed."""
        if queue not in self._of_others:
            gpus = sum(ledger.jobs[owner].touched_gpus for owner in borrowers(ledger, queue))
            self._of_others[queue] = gpus
        return self._of_others[queue]

    def _is_owed(self, ledger: Ledger, line: Line) -> bool:
        """Whether a gang of a line takes back what others borrow: some way of it is within its queue's guarantee."""
        head = ledger.jobs[ledger.lines[line][0].job]
        if chooses(head.spec):  # its ways are many
            return True
        key = (line.queue, line.signature, line.preemptible, head.job if ledger.claims else None)
        if key not in self._owed_lines:
            told = answers(ledger, head, to_come=True)
            self._owed_lines[key] = any(admission.takes_back for _, admission in told)
        return self._owed_lines[key]

    def _who_leaves(self, ledger: Ledger, line: Line, head: JobState) -> Hashable:
        """The same for all lines for which the same owners might leave."""
        reclaims = line.queue if self._borrowed(ledger, line) else None
        claims = overruled_by(ledger, head)
        passed = self._passed(ledger, head)
        return self._below(ledger, line).number, reclaims, claims, passed

    def _without(self, ledger: Ledger, state: JobState, leavers: Iterable[str]) -> Occupancy:
        """The occupancy without any of them."""
        room = self.prospects.room_to_come.of(ledger, state).copy()
        for owner in leavers:
            room.give_back(owner)
        return room

    def _leavers(self, ledger: Ledger, line: Line) -> Iterator[str]:
        yield from self._below(ledger, line).jobs
        yield from ledger.accounts.elastic
        if self._borrowed(ledger, line):
            yield from borrowers(ledger, line.queue)

    def _leavers_for_told(self, ledger: Ledger, state: JobState) -> Iterator[str]:
        assert state.line is not None, f"{state.job} does not wait"
        if ledger.policy.preemption.by != "none":
            for other in self._by_right(ledger, state.line, self._behind(ledger, state)):
                yield other.job
        yield from ledger.accounts.elastic
        told = answers(ledger, state, to_come=True)
        if any(admission.takes_back for _, admission in told):
            yield from borrowers(ledger, state.queue)

    def _count(self, ledger: Ledger) -> None:
        if self._applied == ledger.applied:
            return
        self._applied, self._claims = ledger.applied, len(ledger.claims)
        told = tuple(
            (job, told.made_at, ledger.jobs[job].position) for job, told in ledger.bookings.items()
        )
        claims = tuple((job, ledger.jobs[job].position) for job in ledger.claims)
        out_of_use = (len(ledger.unusable), ledger.site.version)
        freed = self.grown(ledger), ledger.free_version
        versions = (*freed, ledger.placings, told, claims, out_of_use)
        if versions == self._versions:
            return
        self._versions, self._left_at = versions, ledger.room_version
        self._forget()
        stay = (s for s in ledger.holding.values() if not s.leaving and s.spec.preemptible)
        self._stay = sorted(stay, key=lambda state: state.priority)
        self._stayers.look(ledger)
        self._stay_in_queue.clear()
        for state in self._stay:
            self._stay_in_queue.setdefault(state.spec.queue, []).append(state)
        not_owed = partial(self._that_are_not_owed, ledger)
        self._ranks.count(ledger, self._stay_in_queue, not_owed)
        self._estimates = {
            job: _held(ledger, BOOKING + job)
            for job, booking in ledger.bookings.items()
            if not booking.promised
        }
        claimed = sum(_held(ledger, CLAIM + job) for job in ledger.claims)
        self._in_any_case = claimed + sum(state.touched_gpus for state in ledger.leaving.values())
        self._elastic = sum(ledger.jobs[job].touched_gpus for job in ledger.accounts.elastic)
        self._gpus_of_all = sum(state.touched_gpus for state in self._stay)
        self._gpus_of_all += self._in_any_case + self._elastic + sum(self._estimates.values())

    def _forget(self) -> None:
        self._answers.clear()
        self._passed_by.clear()
        self._bounds = None
        self._of_kind.clear()
        self._of_others.clear()
        self._beside.clear()
        self._emptied.clear()
        self._not_owed = None
        self._owed_lines.clear()
        self._victims.clear()
        self._number_of_victims.clear()


def _lesser(
    by_priority: Sequence[JobState], priority: int, rules: Preemption, *, or_equal: bool = False
) -> Sequence[JobState]:
    """Those of some gangs, the lowest priority first, that one might stop by its own; all where that is not asked."""
    if rules.by != "priority":
        return by_priority
    end = bisect_right if or_equal else bisect_left
    return by_priority[: end(by_priority, priority, key=attrgetter("priority"))]


def _held(ledger: Ledger, owner: str) -> int:
    """GPUs that are held for somebody, and 1 for each member, which may hold something else."""
    return sum(1 + len(member.gpus) for member in ledger.rooms().owners.get(owner, ()))
