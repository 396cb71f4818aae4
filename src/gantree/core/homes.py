"""Queues that own cells: their jobs go home first, and run as guests elsewhere where they cannot.

A job of such a queue that is at home is owed its place; as a guest it may be told to leave at any time, like everybody
who borrows. Before the walk, every queue's jobs that are not at home, waiting ones and guests alike, are sent home in
the order of the queue: what a private cluster of its cells would start now is started now. Where guests of others are
in the way they are told to leave, whatever they have run and however often they were told before: the guarantee
outranks both. A guest whose place can be a cell of its own queue stays; another one moves.

Which cells, and what keeps them safe, is `planning.cells`.
"""

from gantree.core.draft import Draft
from gantree.core.ledger import BOOKING, CLAIM, Ledger
from gantree.core.lifecycle import save_then_stop, start
from gantree.core.room import move
from gantree.core.state import JobState
from gantree.core.waiting import eligible, in_order
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
from gantree.placement.taste import Taste
from gantree.planning.cells import (
    CellBook,
    CellView,
    HomePlan,
    Rebind,
    at_home_in_place,
    home,
    keeps_cells,
    look,
    releasable,
)
from gantree.policy.cells import Cell
from gantree.policy.rules import Policy
from gantree.topology.fabric import Fabric


class Homes:
    """The cells of a policy on the fabric of the moment. _idle_at is the state in which nobody could go home."""

    def __init__(self, policy: Policy, taste: Taste) -> None:
        self._policy = policy
        self._taste = taste
        self._fabric: Fabric | None = None
        self._book: CellBook | None = None
        self._queues = tuple(rule.path for rule in policy.queues if rule.cells)
        self._idle_at: tuple[int, ...] | None = None

    def send(self, draft: Draft) -> None:
        """Release cells that nobody uses; send home who can go, in the order of each queue."""
        ledger = draft.ledger
        state = _state(ledger)
        if not self._queues or self._idle_at == state:
            return
        self._release(draft)
        for queue in self._queues:
            for job in self._away(ledger, queue, draft.now):
                sent = self._send(draft, queue, ledger.jobs[job])
                if not sent and self._policy.backfill.overtake == "none":
                    break
        self._idle_at = _state(ledger)

    def spares_cells(self, ledger: Ledger, state: JobState, placement: Placement) -> bool:
        """Whether a gang may be placed where it is nobody's guest: one that can never be told to leave keeps clear."""
        if not self._queues or state.spec.preemptible:
            return True
        if state.spec.queue in self._queues:
            return False
        return keeps_cells(self._view(ledger, 0.0), placement.members)

    # ----- one view, one job

    def _view(self, ledger: Ledger, now: float, without: tuple[str, ...] = ()) -> CellView:
        """How the cells stand when everybody has left who leaves, and these; claims and bookings are guests."""
        rooms = ledger.rooms()
        if self._book is None or self._fabric is not rooms.fabric:
            self._fabric = rooms.fabric
            self._book = CellBook.of(self._policy.queues, rooms.fabric, check=False)
        return _seen(ledger, self._book, now, without)

    def _away(self, ledger: Ledger, queue: str, now: float) -> list[str]:
        """Jobs of a queue that are not at home, in the order of the queue: those that wait, and its guests."""
        order = ledger.accounts.order
        queues = [node for node in ledger.lines.queues if ledger.accounts.tree.queue[node] == queue]
        waiting = [position.job for _, position in in_order(ledger, now, queues=queues)]
        away = [
            (ledger.jobs[job].position.key, ledger.jobs[job].seq, job)
            for job in waiting
            if eligible(ledger, ledger.jobs[job], now)
        ]
        away += [
            (order.key(state.merits(now)), state.seq, state.job)
            for state in ledger.holding.values()
            if state.spec.queue == queue
            and not state.at_home
            and not state.leaving
            and state.moving is None
        ]
        return [job for _, _, job in sorted(away)]

    def _send(self, draft: Draft, queue: str, state: JobState) -> bool:
        """Send one job home; False where its queue's cells have no room for it."""
        ledger, waits = draft.ledger, state.phase is Phase.PENDING
        if not waits:
            stays = at_home_in_place(self._view(ledger, draft.now), queue, state.job)
            if stays is not None:
                self._bind(draft, queue, stays)
                draft.record(GangAtHome(at=draft.now, job=state.job, attempt=state.attempt))
                return True
        without = () if waits else (state.job,)
        plan = home(self._view(ledger, draft.now, without), queue, state.present, self._taste)
        if plan is None:
            return False
        self._take_home(draft, queue, state, plan)
        return True

    def _take_home(self, draft: Draft, queue: str, state: JobState, plan: HomePlan) -> None:
        ledger = draft.ledger
        self._bind(draft, queue, plan.bind)
        guests = [owner for owner in plan.evict if owner in ledger.holding]
        for owner in plan.evict:
            if owner.startswith(CLAIM):
                self._drop_claim(draft, owner.removeprefix(CLAIM), state)
        if state.phase is not Phase.PENDING:
            move(draft, state, plan.placement, StopCause.MOVED, at_home=True)
        elif not guests and not ledger.rooms().missing(plan.placement.members):
            start(draft, state, plan.placement, at_home=True)
            return
        else:
            leaving = tuple(ledger.leaving)
            draft.record(
                RoomClaimed(
                    at=draft.now,
                    job=state.job,
                    placement=plan.placement,
                    victims=(*guests, *leaving),
                    at_home=True,
                )
            )
        for owner in guests:
            self._tell_to_leave(draft, ledger.jobs[owner], state)

    def _tell_to_leave(self, draft: Draft, guest: JobState, state: JobState) -> None:
        draft.record(
            GangPreempted(
                at=draft.now,
                job=guest.job,
                attempt=guest.attempt,
                by=state.job,
                cause="reclaim",
            )
        )
        save_then_stop(draft, guest, StopCause.PREEMPTED, self._policy)

    def _drop_claim(self, draft: Draft, job: str, state: JobState) -> None:
        reason = f"{state.job} goes home"
        draft.record(ClaimDropped(at=draft.now, job=job, reason=reason))

    # ----- cells

    def _bind(self, draft: Draft, queue: str, cells: tuple[Rebind, ...]) -> None:
        for tier, number, domain in cells:
            draft.record(
                CellBound(at=draft.now, queue=queue, tier=tier, number=number, domain=domain)
            )

    def _release(self, draft: Draft) -> None:
        """Let go of cells in which nobody is at home."""
        if not draft.ledger.bound:
            return
        for cell in releasable(self._view(draft.ledger, draft.now)):
            draft.record(
                CellReleased(at=draft.now, queue=cell.queue, tier=cell.tier, number=cell.number)
            )


def lost_cells(ledger: Ledger) -> tuple[Cell, ...]:
    """The cells of all queues that have no place now: nodes are out of use, or who may not be stopped is there."""
    queues = ledger.policy.queues
    if ledger.occupancy is None or not any(rule.cells for rule in queues):
        return ()
    book = CellBook.of(queues, ledger.rooms().fabric, check=False)
    return _seen(ledger, book, 0.0).lost


def _seen(ledger: Ledger, book: CellBook, now: float, without: tuple[str, ...] = ()) -> CellView:
    """How the cells of a book stand when everybody has left who leaves, and these."""
    later = ledger.rooms().copy()
    for owner in (*ledger.leaving, *without):
        later.give_back(owner)
    for job, claim in ledger.claims.items():
        later.take_free(CLAIM + job, claim.placement.members)
    homes, harm = _by_right(ledger, now)
    return look(later, book, ledger.bound, homes, harm)


def _by_right(ledger: Ledger, now: float) -> tuple[dict[str, str], dict[str, float]]:
    """owner -> queue of those at home, and owner -> harm in GPU-seconds of those who may be told to leave."""
    homes: dict[str, str] = {}
    harm: dict[str, float] = {}
    for state in ledger.holding.values():
        if state.at_home:
            homes[state.job] = state.spec.queue
        elif state.spec.preemptible:
            restart_gpu_s = ledger.policy.restart_s * state.gpus
            harm[state.job] = state.gpu_s_at_stake(now) + restart_gpu_s
    for job, claim in ledger.claims.items():
        if claim.at_home:
            homes[CLAIM + job] = ledger.jobs[job].spec.queue
        else:
            harm[CLAIM + job] = 0.0
    harm.update((BOOKING + job, 0.0) for job in ledger.bookings)
    return homes, harm


def _state(ledger: Ledger) -> tuple[int, ...]:
    """What changes whenever a job may go home that could not before."""
    return ledger.room_version, ledger.holders_version, ledger.placings, ledger.next_seq
