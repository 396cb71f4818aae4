"""One scheduling cycle: one pass over the heads of what waits, in the order of the policy.

A pass goes in the order of the policy, over what is guaranteed to queues first and then over everybody: what is borrowed may
be taken back at once. Every job is either placed, or given a claim on room that others are told to give up, or told a
start, or left waiting, before anybody behind it is asked. Placing and making room happen in one walk, or a small job
would be started on GPUs that the next step takes away again. The gates of each job, in their order:

    held, comes after others, backs off              it is not asked
    LIMIT, QUOTA      what its queue says (`policy.quota`); queues with cells come first (`core.cycle.cell_scheduling`)
    ROOM, CONTIGUITY  a place on what is free, and on reserved room that it has left by then
                      (`core.queue.held_capacity`)
    HARM              room that others give up, from least harm to most (`core.preemption.free_capacity`)

What a pass does, in this order:

    settle      claims whose room is free start, claims that hold no longer are dropped (`core.cycle.claim_admission`)
    replace     missing members get other places; gangs leave drained nodes; gangs go home to their cells
    review      starts that were told and do not stand are told anew, before anybody behind them is asked
    walk        the heads, in order
    grow        elastic gangs grow into what is left (`core.cycle.growth`)

A pass is bounded. It makes at most `preemption.plans` preemption plans; where that limit is hit, it stops, and the next
pass goes on with the same refusals behind it, as long as nothing has changed: that is the cursor. Room that is freed
within a pass goes to nobody in it. In both cases the scheduler asks to be called again at once. A pass records facts or
moves the cursor, so a moment has finitely many.

Nothing is remembered from one decision to the next but this: a pass that left no cursor and freed nothing leaves the
cycle parked. While nothing changes that could give anybody another answer, only those are asked who come.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import inf

from gantree.core.cycle.cell_scheduling import Homes
from gantree.core.cycle.claim_admission import ClaimAdmission
from gantree.core.cycle.drain import next_leaving, send_away
from gantree.core.cycle.growth import grow, next_growth
from gantree.core.cycle.moves import move_as_requested
from gantree.core.cycle.prefilter import Prefilter
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import RESERVATION, JobState
from gantree.core.lifecycle.lifecycle import start
from gantree.core.lifecycle.replacing import replace_missing
from gantree.core.preemption.candidates import PreemptionRequest
from gantree.core.preemption.free_capacity import free_capacity_for
from gantree.core.queue.cell_usage import any_cells
from gantree.core.queue.eligibility import eligible, in_order
from gantree.core.queue.heads import FeasibilityCache
from gantree.core.queue.held_capacity import usable_holds, without_holds
from gantree.core.queue.job_variants import JobVariants, VariantAdmission
from gantree.core.queue.preemption_rules import next_demotion
from gantree.core.queue.slot_demands import SlotDemands
from gantree.core.reservations.reservations import review
from gantree.core.reservations.selection import (
    ReservationSelector,
    drop_unfounded_promises,
    next_overdue,
)
from gantree.model.facts import (
    AttemptEnded,
    CheckpointRecorded,
    Fact,
    GangPlaced,
    GangRunning,
    GangWarned,
    JobAccepted,
    JobRejected,
    JobRequeued,
    JobsForgotten,
    PriorityChanged,
)
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.preferences import PlacementPreferences
from gantree.placement.resize.elastic import best_size
from gantree.policy.boosts import boost_of, next_expiry
from gantree.policy.order import Position
from gantree.policy.rules import Policy
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry
from gantree.policy.walk import Walk

ARRIVAL_FACTS = (JobAccepted, JobRequeued)
"""Facts by which a job first_stoppable to wait."""
NEUTRAL_FACTS = (JobAccepted, JobRejected, GangWarned, JobsForgotten)
"""Facts that give nobody who waits another answer, but for what the versions of the ledger tell."""


@dataclass(slots=True)
class _Pass:
    """What one pass knows, and every pass that goes on where it stopped. moments are those at which time alone may
    change a refusal."""

    prefilter: Prefilter
    selector: ReservationSelector
    plans: int = 0
    waits_for_quota: bool = False
    moments: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Where a pass stopped at its limit: it goes on while nothing was applied since, at the same moment."""

    run: _Pass
    applied: int
    now: float


@dataclass(frozen=True, slots=True)
class _Parked:
    """Nobody who waits gets another answer before `until`, while the ledger stays as the versions say.

    freed grows with all that is given back. Where what a gang gives back is held for others at once, it concerns only
    those who fit and were refused by their quota: waits_for_quota says whether there were any.
    """

    versions: object
    freed: object
    waits_for_quota: bool
    until: float


class Cycle:
    """The passes of one scheduler. _demands, _feasibility and _variants are caches over jobs and the fabric.

    _asks_all: whether an arrival may change what happens to other jobs: in queues in strict order, and with cells.
    """

    def __init__(self, policy: Policy, preferences: PlacementPreferences) -> None:
        self._policy = policy
        self._preferences = preferences
        self._in_turn = policy.backfill.overtake == "none"
        self._asks_all = self._in_turn or any(rule.cells for rule in policy.queues)
        self._homes = Homes(policy, preferences)
        self._claims = ClaimAdmission(self._homes, preferences)
        self._demands, self._feasibility, self._variants = (
            SlotDemands(),
            FeasibilityCache(),
            JobVariants(),
        )
        self._closed: set[str] = set()
        self._cursor: _Cursor | None = None
        self._parked: _Parked | None = None

    def run(self, builder: DecisionBuilder) -> None:
        """Decide who starts now, who must make room, and who is told a start."""
        if builder.ledger.occupancy is None:
            return
        if self._is_parked(builder) and not self._settles(builder):
            self._ask_newcomers(builder)
        else:
            self._run_pass(builder)

    def wake_at(self, ledger: Ledger, now: float) -> float | None:
        """The next moment at which time alone could change an answer; now, where a pass is to go on or begin."""
        if ledger.occupancy is None:
            return None
        if self._parked is None:
            return now
        return None if self._parked.until == inf else self._parked.until

    # ----- passes

    def _run_pass(self, builder: DecisionBuilder) -> None:
        """One pass from the top, or from where the last one stopped."""
        ledger, placings = builder.ledger, builder.ledger.placings
        cursor, self._cursor, self._parked = self._cursor, None, None
        if cursor is None or (cursor.applied, cursor.now) != (ledger.applied, builder.now):
            self._prepare(builder)
            run = self._new_pass(builder)
        else:
            run = cursor.run
            run.plans = 0
        applied, before = ledger.applied, (_versions(ledger), _freed(ledger))
        refusals = run.prefilter.refusals
        if not self._walk(builder, run):
            if ledger.applied == applied:
                assert run.prefilter.refusals > refusals, (
                    "a pass neither decided nor refused anything"
                )
                self._cursor = _Cursor(run, applied, builder.now)
            return
        self._claims.settle(builder, all_were_asked=True)
        moved = move_as_requested(builder, self._preferences)
        grow(builder, self._preferences)
        retries_reservations = ledger.placings > placings and run.selector.should_retry(ledger)
        if not moved and not retries_reservations and before == (_versions(ledger), _freed(ledger)):
            self._park(builder, run)

    def _prepare(self, builder: DecisionBuilder) -> None:
        """All that comes before anybody who waits for room is asked."""
        _end_boosts(builder)
        drop_unfounded_promises(builder)
        self._claims.settle(builder)
        replace_missing(builder, self._preferences)
        send_away(builder, self._preferences)
        self._homes.send(builder)
        review(builder, self._preferences)

    def _new_pass(self, builder: DecisionBuilder, only: frozenset[str] | None = None) -> _Pass:
        """A pass over all that waits, or only over these jobs."""
        ledger = builder.ledger
        prefilter = Prefilter(ledger, builder.now, self._demands, self._feasibility, only)
        return _Pass(prefilter, ReservationSelector(ledger, self._preferences))

    def _is_parked(self, builder: DecisionBuilder) -> bool:
        """Whether only those need be asked who have just come."""
        parked, ledger = self._parked, builder.ledger
        if parked is None or builder.now >= parked.until or builder.moves_for:
            return False
        if self._asks_all and any(isinstance(fact, ARRIVAL_FACTS) for fact in builder.facts):
            return False
        if not self._are_harmless(ledger, builder.facts) or parked.versions != _versions(ledger):
            return False
        return not parked.waits_for_quota or parked.freed == _freed(ledger)

    def _settles(self, builder: DecisionBuilder, *, all_were_asked: bool = False) -> bool:
        """Whether a claim was settled, now that a gang has left."""
        facts = len(builder.facts)
        if any(isinstance(fact, AttemptEnded) for fact in builder.facts):
            self._claims.settle(builder, all_were_asked=all_were_asked)
        return len(builder.facts) > facts

    def _are_harmless(self, ledger: Ledger, facts: Iterable[Fact]) -> bool:
        """Whether facts change no job's answer.

        Where gangs may grow or move, a checkpoint changes what that costs, and a gang that runs may do so itself. The
        end of a gang that runs is known better, so a job may get a reservation; in some orders the gang demotions back.
        """
        weighs = self._policy.defragment == "apply" or bool(ledger.accounts.elastic)
        harmless = [*NEUTRAL_FACTS]
        if not weighs:
            harmless.append(CheckpointRecorded)
            if not self._policy.falls_back and not ReservationSelector(
                ledger, self._preferences
            ).may_reserve_more(ledger):
                harmless.append(GangRunning)
        awaited = {
            job for reservation in ledger.reservations.values() for job in reservation.waits_for
        }
        return all(
            isinstance(fact, tuple(harmless))
            or (isinstance(fact, AttemptEnded | JobRequeued) and fact.job not in awaited)
            for fact in facts
        )

    def _ask_newcomers(self, builder: DecisionBuilder) -> None:
        """Ask those who have just come; all others have the answer of the moment."""
        assert self._parked is not None
        until, waits_for_quota = self._parked.until, self._parked.waits_for_quota
        facts = len(builder.facts)
        jobs = [fact.job for fact in builder.facts if isinstance(fact, ARRIVAL_FACTS)]
        if not jobs:
            return
        run, self._parked = self._new_pass(builder, frozenset(jobs)), None
        run.waits_for_quota = waits_for_quota
        if not self._walk(builder, run):
            return
        self._settles(builder, all_were_asked=True)
        new = builder.facts[facts:]
        tells = self._policy.spares_for_a_time or self._policy.backfill.overtake == "promised"
        if not new or (not tells and all(isinstance(fact, GangPlaced) for fact in new)):
            self._park(builder, run, until)

    def _park(self, builder: DecisionBuilder, run: _Pass, until: float = inf) -> None:
        """Everybody has an answer that stands until something changes, or a moment comes, `until` at the latest."""
        ledger, now = builder.ledger, builder.now
        later = [
            moment for moment in (until, *run.moments, *ledger.resting.values()) if moment > now
        ]
        later += [
            next_demotion(ledger, now),
            next_overdue(ledger, now),
            next_expiry(self._policy, now),
        ]
        later += [next_growth(ledger, now), next_leaving(ledger, now)]
        self._parked = _Parked(_versions(ledger), _freed(ledger), run.waits_for_quota, min(later))

    # ----- the walk

    def _walk(self, builder: DecisionBuilder, run: _Pass) -> bool:
        """Ask every head that might start or make room, and tell the first that wait; False at the limit.

        What is guaranteed comes first: who asks for it could take it back, and a gang that is started now would be told to
        leave at once.
        """
        may_reclaim = builder.ledger.accounts.guarantees.may_reclaim
        any_owed = any(map(may_reclaim, run.prefilter.queues))
        goes_on = not any_owed or self._ask_in_order(builder, run, due=True)
        return goes_on and self._ask_in_order(builder, run, due=False)

    def _ask_in_order(self, builder: DecisionBuilder, run: _Pass, *, due: bool) -> bool:
        """Ask those who wait in the order of the policy; due: such as are guaranteed what they ask for."""
        ledger = builder.ledger
        self._closed.clear()
        for _, position in self._in_order(builder, run, due=due):
            state = ledger.jobs[position.job]
            if not eligible(ledger, state, builder.now):
                continue
            if run.plans >= self._policy.preemption.plans:
                return False
            if not due or self._goes_first(builder, run, state):
                self._ask(builder, run, state)
            self._close_behind(builder, run, state)
            if not due and state.phase is Phase.PENDING and run.prefilter.may_be_told(state):
                run.selector.consider(builder, state)
        return True

    def _in_order(self, builder: DecisionBuilder, run: _Pass, *, due: bool) -> Walk:
        ledger, names = builder.ledger, builder.ledger.accounts.tree.queue

        def goes_on(eq_class: EquivalenceClass, position: Position) -> bool:
            return self._goes_on(builder, run, eq_class, position, due=due)

        if self._in_turn:
            is_closed = lambda queue: names[queue] in self._closed  # noqa: E731 - asked for each job
            queues: Collection[int] = run.prefilter.queues
            if due:
                queues = list(filter(ledger.accounts.guarantees.may_reclaim, queues))
            return in_order(ledger, builder.now, goes_on, queues=queues, is_closed=is_closed)

        def with_heads() -> bool:
            return not due and run.selector.may_reserve_more(ledger)

        def choose(queue: int) -> Iterable[QueueEntry]:
            return run.prefilter.visits(queue, due=due, with_heads=with_heads)

        queues = run.prefilter.queues_to_visit(due=due, with_heads=with_heads())
        return in_order(ledger, builder.now, goes_on, queues=queues, choose=choose)

    def _goes_on(
        self,
        builder: DecisionBuilder,
        run: _Pass,
        eq_class: EquivalenceClass,
        position: Position,
        *,
        due: bool,
    ) -> bool:
        """Whether the next of a line is to be looked at."""
        ledger = builder.ledger
        state = ledger.jobs[position.job]
        if state.spec.queue in self._closed:
            return False
        if self._in_turn:
            return True  # nobody passes who waits
        if due and not ledger.accounts.guarantees.asks_within(state):
            return False
        if run.prefilter.may_start(state) or run.prefilter.may_make_room(state):
            return True
        if not due and run.selector.may_reserve_more(ledger):
            return True
        return run.prefilter.is_told_behind(eq_class, position)

    def _goes_first(self, builder: DecisionBuilder, run: _Pass, state: JobState) -> bool:
        """Whether a job is guaranteed what it wants, and nobody who goes before it in its queue might start now.

        Who does might stop it again: between the jobs of one queue its own order decides.
        """
        ledger = builder.ledger
        if not ledger.accounts.guarantees.asks_within(state):
            return False
        for other in run.prefilter.heads_of(state.queue):
            if other.position >= state.position:
                break
            waits = other.phase is Phase.PENDING and other.job not in ledger.claims
            if waits and run.prefilter.may_borrow_now(other):
                return False
        return True

    def _close_behind(self, builder: DecisionBuilder, run: _Pass, state: JobState) -> None:
        """Where jobs of a queue go in turn, nobody passes one that still waits, but for those that can never start."""
        if (
            not self._in_turn
            or state.phase is not Phase.PENDING
            or state.job in builder.ledger.claims
        ):
            return
        if not run.prefilter.is_feasible(state):
            return
        if not all(
            admission.never for _, admission in self._variants.admissions(builder.ledger, state)
        ):
            self._closed.add(state.spec.queue)

    # ----- one job

    def _ask(self, builder: DecisionBuilder, run: _Pass, state: JobState) -> None:
        """Start a job in the first variant that has a place, or make room for it in the first that others give up."""
        ledger, prefilter = builder.ledger, run.prefilter
        variants = self._variants.admissions(ledger, state)
        if prefilter.may_start(state):
            if any(
                not one.refused and self._place(builder, run, state, variant)
                for variant, one in variants
            ):
                return
            run.waits_for_quota |= any(one.refused for _, one in variants)
            if not any(one.refused for _, one in variants):
                prefilter.no_place(state)
            elif all(one.refused for _, one in variants):
                prefilter.no_quota(state)
        if prefilter.may_make_room(state):
            if ledger.leaving:
                variants = self._variants.admissions(ledger, state, projected=True)
            self._make_room(builder, run, state, variants)

    def _make_room(
        self,
        builder: DecisionBuilder,
        run: _Pass,
        state: JobState,
        variants: Iterable[VariantAdmission],
    ) -> None:
        """Let others give up room for a job, in the first variant in which they do."""
        for variant, admission in variants:
            if admission.never:
                continue
            run.plans += 1
            refusal = free_capacity_for(
                builder,
                PreemptionRequest(state, variant, admission),
                self._preferences,
                run.prefilter.rooms,
                self._demands,
            )
            if refusal is None:
                return
            if refusal.retry_at is not None:
                run.moments.append(refusal.retry_at)
        run.prefilter.no_room(state)

    def _place(self, builder: DecisionBuilder, run: _Pass, state: JobState, variant: Job) -> bool:
        """Start a job if it has a place now that its queue admits."""
        owners = usable_holds(builder.ledger, state, builder.now)
        if not owners:
            return self._place_there(builder, run, state, variant)
        with without_holds(builder.ledger, owners):
            return self._place_there(builder, run, state, variant)

    def _place_there(
        self, builder: DecisionBuilder, run: _Pass, state: JobState, variant: Job
    ) -> bool:
        """Start a job if it has a place on what is free, as it is, that its queue admits."""
        ledger = builder.ledger
        placement = self._find(ledger, variant)
        admitted = ledger.accounts.amounts.asked_on(state, variant)
        if placement is None:
            return False
        if not self._claims.admits(ledger, state, placement, admitted):
            run.waits_for_quota = True
            return False
        start(builder, state, placement)
        return True

    def _find(self, ledger: Ledger, spec: Job) -> Placement | None:
        placement = find(ledger.rooms(), spec, self._preferences)
        if placement is None and spec.elastic is not None and self._policy.elastic:
            sized = best_size(ledger.rooms(), spec, self._preferences)
            placement = None if sized is None else sized[1]
        return placement


def _versions(ledger: Ledger) -> object:
    """What is different whenever room, quota, a claim or a told start has changed such that somebody who waits might
    get another answer. Room that a reservation gains counts: its job may start on it, or claim the rest."""
    accounts, policy, owners = ledger.accounts, ledger.policy, ledger.rooms().owners
    return (
        ledger.free_version,
        ledger.holders_version,
        ledger.placings if policy.spares_for_a_time or any_cells(ledger) else 0,
        accounts.freed_anywhere()[1],
        accounts.pushed_out(),
        tuple(ledger.claims),
        tuple(
            (job, reservation.starts_at, owners.get(RESERVATION + job))
            for job, reservation in ledger.reservations.items()
        ),
        len(ledger.unusable),
        ledger.site.version,
        len(ledger.gapped),
    )


def _freed(ledger: Ledger) -> object:
    """What is different whenever room or quota was given back, be it for those who have claimed it."""
    return ledger.room_version, ledger.accounts.freed_anywhere()[0]


def _end_boosts(builder: DecisionBuilder) -> None:
    """Give every job the number that it has now, where a boost has expired."""
    policy = builder.ledger.policy
    if not policy.boosts:
        return
    for state in list(builder.ledger.jobs.values()):
        if state.ended_at is not None:
            continue
        number = policy.priority_of(state.spec.priority) + boost_of(policy, state.spec, builder.now)
        if number != state.priority:
            builder.record(PriorityChanged(at=builder.now, job=state.job, priority=number))
