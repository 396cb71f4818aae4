"""Queues that own cells: their jobs go home first, and run as guests elsewhere where they cannot.

A job of such a queue that is at home is guaranteed its place; as a guest it may be told to leave at any time, like everybody
who borrows. Before the walk, every queue's jobs that are not at home, waiting ones and guests alike, are sent home in
the order of the queue: what a private cluster of its cells would start now is started now. Where guests of others are
in the way they are told to leave, whatever they have run and however often they were told before: the guarantee
outranks both. A guest whose place can be a cell of its own queue stays; another one moves.

A guest of the job's own queue leaves, too, and so does a claim, but not for a job that it could stop in turn: between
the jobs of one queue its own order decides, and the two would stop each other for ever. Nor does the claim of one that
goes before it and may be at home, too.

Which cells, and what keeps them safe, is `planning.cells.home`; how they stand in the ledger is
`core.queue.cell_usage`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import merge
from operator import attrgetter

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.core.lifecycle.lifecycle import save_then_stop, start
from gantree.core.preemption.free_capacity import gangs_leaving, move
from gantree.core.queue.cell_usage import any_cells, cell_domains_of, seen, spares_cells
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.held_capacity import without_holds
from gantree.core.queue.preemption_rules import rank_blocker
from gantree.model.facts import (
    CellBound,
    CellReleased,
    ClaimDropped,
    GangAtHome,
    GangPreempted,
    RoomClaimed,
)
from gantree.model.phases import Phase, StopCause
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.request.preferences import DEFAULT_PREFERENCES, PlacementPreferences
from gantree.planning.cells.home import (
    CellDomains,
    CellView,
    HomePlan,
    Rebind,
    at_home_in_place,
    home,
    releasable,
    view_of,
)
from gantree.policy.cells import Cell
from gantree.policy.order import Position
from gantree.policy.rules import Policy
from gantree.topology.fabric.fabric import Fabric

_WAIT_AGAIN = (StopCause.PREEMPTED, StopCause.DRAINED)
"""Causes after which a gang that leaves will want to go home."""


class Homes:
    """The cells of a policy on the fabric of the moment.

    _ever_home tells of jobs, by queue, signature and size, whether the empty private cluster would hold them. _plain
    is the view of the moment _plain_at, which is asked about every job until something is decided. One without a guest
    is of use to that guest alone, and as large: none is kept.
    """

    def __init__(self, policy: Policy, preferences: PlacementPreferences) -> None:
        self._policy = policy
        self._preferences = preferences
        self._fabric: Fabric | None = None
        self._cell_domains: CellDomains | None = None
        self._queues = tuple(rule.path for rule in policy.queues if rule.cells)
        self._ever_home: dict[tuple[str, int, int], bool] = {}
        self._plain: CellView | None = None
        self._plain_at = (-1, 0.0)

    def send(self, builder: DecisionBuilder) -> None:
        """Release cells that nobody uses; send home who can go, in the order of each queue."""
        if not self._queues:
            return
        self._release(builder)
        facts = -1
        while len(builder.facts) != facts:  # who is at home now may have left room to one before it
            facts = len(builder.facts)
            for queue in self._queues:
                self._send_of(builder, queue)

    def _send_of(self, builder: DecisionBuilder, queue: str) -> None:
        """Send home who of a queue can go, in its order."""
        ledger = builder.ledger
        for job in self._away(ledger, queue, builder.now):
            state = ledger.jobs[job]
            if not self._send(builder, queue, state) and self._closes(ledger, queue, state):
                break

    def spares_cells(self, ledger: Ledger, state: JobState, placement: Placement) -> bool:
        """As `guests.spares_cells`, with the cells at hand."""
        return spares_cells(ledger, state, placement, self._cell_domains_of(ledger))

    # ----- what is remembered

    def _cell_domains_of(self, ledger: Ledger) -> CellDomains:
        """The cells on the fabric of the moment."""
        rooms = ledger.rooms()
        if self._cell_domains is None or self._fabric is not rooms.fabric:
            self._fabric = rooms.fabric
            self._cell_domains = cell_domains_of(ledger)
            self._ever_home.clear()
            self._plain = None
        return self._cell_domains

    def _closes(self, ledger: Ledger, queue: str, state: JobState) -> bool:
        """Whether nobody of the queue passes a job that cannot go home now: not where it never can."""
        if self._policy.backfill.overtake != "none" or not self.may_ever(ledger, queue, state):
            return False
        return not ledger.accounts.limits(state, ledger.accounts.amounts.asked(state)).never

    def may_ever(self, ledger: Ledger, queue: str, state: JobState) -> bool:
        """Whether the empty private cluster of a queue would hold a job."""
        cell_domains, spec = self._cell_domains_of(ledger), state.present
        key = queue, state.signature, spec.members
        if key not in self._ever_home:
            empty = view_of(ledger.rooms().emptied(), cell_domains, {}, {}, {})
            self._ever_home[key] = home(empty, queue, spec, self._preferences) is not None
        return self._ever_home[key]

    # ----- one view, one job

    def _view(
        self,
        ledger: Ledger,
        now: float,
        without: tuple[str, ...] = (),
        kept: frozenset[str] = frozenset(),
    ) -> CellView:
        """How the cells stand when everybody has left who leaves, and these; claims and reservations are guests."""
        cell_domains = self._cell_domains_of(ledger)
        if without or kept:
            return seen(ledger, cell_domains, now, without, kept)
        if self._plain is None or self._plain_at != (ledger.applied, now):
            self._plain, self._plain_at = seen(ledger, cell_domains, now), (ledger.applied, now)
        return self._plain

    def _away(self, ledger: Ledger, queue: str, now: float) -> Iterator[str]:
        """Jobs of a queue that are not at home, in the order of the queue: those that wait, and its guests.

        Whoever waits, is a guest or claims now; those who wait are looked at one by one, as most often few are sent.
        """
        order, tree = ledger.accounts.order, ledger.accounts.tree
        nodes = [node for node in ledger.waiting.queues if tree.queue[node] == queue]
        waiting = [map(attrgetter("position"), [*ledger.waiting.in_queue(node)]) for node in nodes]
        guests = [
            Position(order.key(state.order_factors(now)), state.seq, state.job)
            for state in ledger.holding.values()
            if state.spec.queue == queue
            and not state.at_home
            and state.moving is None
            and (not state.leaving or state.stop_cause in _WAIT_AGAIN)
        ]
        claims, are_guests = frozenset(ledger.claims), {position.job for position in guests}
        for _, _, job in merge(*waiting, sorted(guests)):
            if job in are_guests or (job not in claims and eligible(ledger, ledger.jobs[job], now)):
                yield job

    def _send(self, builder: DecisionBuilder, queue: str, state: JobState) -> bool:
        """Send one job home; False where its queue's cells have no room for it."""
        ledger = builder.ledger
        if state.leaving:  # evicted, and soon to wait again: nobody overtakes it on the way home
            return False
        if state.phase is not Phase.PENDING:
            stays = at_home_in_place(self._view(ledger, builder.now), queue, state.job)
            if stays is not None:
                self._bind(builder, queue, stays)
                builder.record(GangAtHome(at=builder.now, job=state.job, attempt=state.attempt))
                return True
        plan = self.plan(ledger, queue, state, builder.now)
        if plan is not None:
            self._take_home(builder, queue, state, plan)
        return plan is not None

    def plan(self, ledger: Ledger, queue: str, state: JobState, now: float) -> HomePlan | None:
        """A place at home for a job; None where there is none, or none without somebody who could stop it in turn.

        The limits of its queue hold at home, too.
        """
        plan = self._place(ledger, queue, state, now)
        if plan is None:
            return None
        gone = [owner for owner in (state.job, *plan.evict) if owner in ledger.holding]
        amounts = ledger.accounts.amounts.held(plan.placement)
        return None if ledger.accounts.limits(state, amounts, gone).refused else plan

    def _place(self, ledger: Ledger, queue: str, state: JobState, now: float) -> HomePlan | None:
        without = () if state.phase is Phase.PENDING else (state.job,)
        plan = home(self._view(ledger, now, without), queue, state.present, self._preferences)
        if plan is None or not self._kept(ledger, state, plan.evict, now):
            return plan
        claims = (CLAIM + job for job in ledger.claims)
        kept = self._kept(ledger, state, (*claims, *ledger.holding), now)
        plan = home(self._view(ledger, now, without, kept), queue, state.present, self._preferences)
        return plan if plan is not None and kept.isdisjoint(plan.evict) else None

    def _kept(
        self, ledger: Ledger, state: JobState, owners: Iterable[str], now: float
    ) -> frozenset[str]:
        """Those of some gangs and claims of its own queue that a job does not send away."""
        kept: list[str] = []
        for owner in owners:
            other = ledger.jobs.get(owner.removeprefix(CLAIM))
            if other is None or other is state or other.spec.queue != state.spec.queue:
                continue
            its = _as_if_it_waited(ledger, other, now)
            first = owner.startswith(CLAIM) and self._goes_home_first(ledger, state, its, now)
            if first or not rank_blocker(ledger, its, state, now)[0]:
                kept.append(owner)
        return frozenset(kept)

    def _goes_home_first(
        self, ledger: Ledger, state: JobState, other: JobState, now: float
    ) -> bool:
        """Whether another job of the queue goes before one, and may go home as soon as it holds what it has claimed."""
        before = ledger.accounts.goes_before(other, _as_if_it_waited(ledger, state, now))
        return before and self.may_ever(ledger, state.spec.queue, other)

    def _take_home(
        self, builder: DecisionBuilder, queue: str, state: JobState, plan: HomePlan
    ) -> None:
        """Bind the cells of a plan and start its job there; or claim the place, if guests have to leave it first."""
        ledger = builder.ledger
        self._bind(builder, queue, plan.bind)
        guests = [owner for owner in plan.evict if owner in ledger.holding]
        for owner in plan.evict:
            if owner.startswith(CLAIM):
                self._drop_claim(builder, owner.removeprefix(CLAIM), state)
        if state.phase is not Phase.PENDING:
            move(builder, state, plan.placement, StopCause.MOVED, at_home=True)
        elif not guests and _is_free(ledger, plan.placement):
            start(builder, state, plan.placement, at_home=True)
        else:
            place = plan.placement
            victims = (*guests, *gangs_leaving(ledger, place))
            builder.record(
                RoomClaimed(
                    at=builder.now, job=state.job, placement=place, victims=victims, at_home=True
                )
            )
        for owner in guests:
            self._tell_to_leave(builder, ledger.jobs[owner], state)

    def _tell_to_leave(self, builder: DecisionBuilder, guest: JobState, state: JobState) -> None:
        builder.record(
            GangPreempted(
                at=builder.now,
                job=guest.job,
                attempt=guest.attempt,
                by=state.job,
                cause="reclaim",
            )
        )
        save_then_stop(builder, guest, StopCause.PREEMPTED, self._policy)

    def _drop_claim(self, builder: DecisionBuilder, job: str, state: JobState) -> None:
        reason = f"{state.job} goes home"
        builder.record(ClaimDropped(at=builder.now, job=job, reason=reason))

    # ----- cells

    def _bind(self, builder: DecisionBuilder, queue: str, cells: tuple[Rebind, ...]) -> None:
        for tier, number, domain in cells:
            builder.record(
                CellBound(at=builder.now, queue=queue, tier=tier, number=number, domain=domain)
            )

    def _release(self, builder: DecisionBuilder) -> None:
        """Let go of cells in which nobody is at home any more, not even to stop, nor has a claim."""
        ledger = builder.ledger
        if not ledger.bound:
            return
        idle = releasable(self._view(ledger, builder.now))
        if idle and ledger.leaving:
            now = releasable(seen(ledger, self._cell_domains_of(ledger), builder.now, left=False))
            idle = tuple(cell for cell in idle if cell in now)
        for cell in idle:
            builder.record(
                CellReleased(at=builder.now, queue=cell.queue, tier=cell.tier, number=cell.number)
            )


def lost_cells(ledger: Ledger) -> tuple[Cell, ...]:
    """The cells of all queues that have no place now: nodes are out of use, or who may not be stopped is there."""
    if ledger.occupancy is None or not any_cells(ledger):
        return ()
    return seen(ledger, cell_domains_of(ledger), 0.0).lost


def refused_at_home(ledger: Ledger, state: JobState, now: float) -> Refused | None:
    """Why a gang that runs at home only does not start there; None where it would."""
    queue, homes = state.spec.queue, Homes(ledger.policy, DEFAULT_PREFERENCES)
    if homes.plan(ledger, queue, state, now) is not None:
        return None
    owned = next(rule.cells for rule in ledger.policy.queues if rule.path == queue)
    cells = ", ".join(f"{tier}: {count}" for tier, count in owned)
    never = not homes.may_ever(ledger, queue, state)
    why = "would not hold it if they were empty" if never else "have no room for it now"
    told = f"is never preempted, so it runs in the cells of its queue only ({cells}), and these"
    return Refused(Gate.QUOTA, f"Waiting: {told} {why}.", never=never)


def never_at_home(ledger: Ledger, state: JobState) -> bool:
    """Whether the cells of its queue would not hold a job if they were empty."""
    return not Homes(ledger.policy, DEFAULT_PREFERENCES).may_ever(ledger, state.spec.queue, state)


def _is_free(ledger: Ledger, placement: Placement) -> bool:
    """Whether a place is free but for room that is reserved: a home job has that at once."""
    with without_holds(ledger, [RESERVATION + job for job in ledger.reservations]) as rooms:
        return not rooms.missing(placement.members)


def _as_if_it_waited(ledger: Ledger, other: JobState, now: float) -> JobState:
    """A job, order_key_of where it would if it were a gang that had to wait again."""
    if other.phase is Phase.PENDING:
        return other
    key = ledger.accounts.order.key(other.order_factors(now))
    return replace(other, position=Position(key, other.seq, other.job))
