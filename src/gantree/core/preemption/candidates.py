"""Who could give up room for a gang that wants it, by what right, and what would be free when they have left.

What is done with that, from least harm to most, is `core.preemption.free_capacity`; the rights themselves are in
`core.queue.preemption_rules`.
"""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.core.queue.held_capacity import outranks
from gantree.core.queue.node_gpus import free_gpus
from gantree.core.queue.preemption_backoff import BACK_OFF, backs_off_until
from gantree.core.queue.preemption_rules import (
    borrowers,
    harm_of,
    objection,
    outranked_by,
    standing,
)
from gantree.model.jobs import Job
from gantree.placement.choice.search import fits
from gantree.planning.preemption.plan import Forbidden, Victim
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.quota.admission import Admission
from gantree.topology.fabric.fabric import IntArray
from gantree.topology.occupancy.node_room import mask_of_gpus
from gantree.topology.occupancy.occupancy import Occupancy

BORROWS, OWED = 0.0, 1.0
"""By what right a gang stays, first of all: above what its queue is guaranteed, or within it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A gang that does not fit, as it asks for room in one of its variants, and what its queue says to that."""

    state: JobState
    spec: Job
    admission: Admission


@dataclass(frozen=True, slots=True)
class Asked:
    """Who may be stopped for a gang, who not and why, and when the next one may be (None: no such moment)."""

    victims: tuple[Victim, ...]
    forbidden: tuple[Forbidden, ...]
    later: float | None


def whom_to_ask(ledger: Ledger, wanted: Wanted, now: float, *, everybody: bool = False) -> Asked:
    """The gangs that may be stopped for this one; where everybody, also all others, and why each may not."""
    victims, forbidden, later = [], [], inf
    reclaimed, again_at = borrowers_for(ledger, wanted), may_preempt_at(ledger, wanted)
    gangs = ledger.holding.values() if everybody else _in_question(ledger, wanted, reclaimed)
    for other in gangs:
        if other.leaving or other.moving is not None or other.job == wanted.state.job:
            continue
        if not everybody and not _concerns(ledger, wanted, other, reclaimed):
            continue
        because, moment = _objection(ledger, wanted, other, reclaimed, again_at, now)
        if not because:
            victims.append(_victim(ledger, wanted, other, reclaimed, now))
        elif everybody:
            victim = _victim(ledger, wanted, other, reclaimed, now)
            forbidden.append(Forbidden(victim, because))
        later = min(later, moment) if because else later
    return Asked(tuple(victims), tuple(forbidden), None if later == inf else later)


def is_entitled(ledger: Ledger, wanted: Wanted) -> bool:
    """Whether the gang is within its queue's guarantee, which it may take back from gangs that borrow."""
    is_guaranteed = ledger.accounts.guarantees.is_guaranteed
    return wanted.admission.takes_back and is_guaranteed(wanted.state.queue)


def may_preempt_at(ledger: Ledger, wanted: Wanted) -> float:
    """The moment, in seconds, from which on the gang may stop others by priority or order; 0 for any moment."""
    return 0.0 if is_entitled(ledger, wanted) else backs_off_until(ledger, wanted.state)


def borrowers_for(ledger: Ledger, wanted: Wanted) -> Mapping[str, JobState]:
    """Jobs that run on what the gang's queue is guaranteed."""
    if not is_entitled(ledger, wanted):
        return {}
    return {job: ledger.jobs[job] for job in borrowers(ledger, wanted.state.queue)}


def _in_question(
    ledger: Ledger, wanted: Wanted, reclaimed: Mapping[str, JobState]
) -> Iterable[JobState]:
    """Gangs of which none is left out that might ever be stopped for this one."""
    if ledger.policy.preemption.across:
        return ledger.holding.values()
    return {**ledger.holding_in(wanted.state.queue), **reclaimed}.values()


def _concerns(ledger: Ledger, wanted: Wanted, other: JobState, reclaimed: Container[str]) -> bool:
    """Whether a gang might ever be stopped for this one, as far as that is quickly told."""
    rules, state = ledger.policy.preemption, wanted.state
    if other.job in reclaimed or rules.by == "order":
        return True
    if rules.by == "none":
        return False
    alike = other.priority == state.priority and other.queue == state.queue
    return other.priority < state.priority or (alike and rules.gain > 0)


def _objection(
    ledger: Ledger,
    wanted: Wanted,
    other: JobState,
    reclaimed: Container[str],
    again_at: float,
    now: float,
) -> tuple[str, float]:
    """Why a gang may not be stopped ("" if it may), and from when on it may be (inf: never).

    again_at: when the wanted gang may stop any by priority or order.
    """
    if not other.spec.preemptible:
        return "non-preemptible", inf
    if other.job in reclaimed:
        return "", now
    because, moment = objection(ledger, wanted.state, other, now)
    if again_at <= now:
        return because, moment
    return because or BACK_OFF, max(moment, again_at)


def _victim(
    ledger: Ledger, wanted: Wanted, other: JobState, reclaimed: Container[str], now: float
) -> Victim:
    owed = (
        BORROWS if other.job in reclaimed else OWED * ledger.accounts.guarantees.holds_within(other)
    )
    if ledger.policy.preemption.by == "order":
        right: tuple[float, ...] = (owed, *(-number for number in standing(ledger, other, now)))
    else:
        right = (owed, other.priority)
    harm_gpu_s = harm_of(ledger, other, now)
    return Victim(other.job, other.priority, harm_gpu_s, other.seq, right)


def room_to_come(ledger: Ledger, state: JobState, *, puts_off: bool = False) -> Occupancy:
    """The occupancy when everyone who leaves has left, with the claims whole that do not give way to the job.

    The other claims do not count: they were made before it arrived. What it may pass itself is free. Where a start is
    reserved that it may not put off, nothing ever is: whoever stands there holds no more than the rest of its place.
    puts_off: as if it might put off all of them.
    """
    passed, outranked = giving_way(ledger, state)
    return _room_without(ledger, tuple(ledger.reservations) if puts_off else passed, outranked)


class RoomToCome:
    """`room_to_come`, kept for whoever asks next with the same right, until anything is decided.

    Jobs of one rank share it: between queues what comes before shares decides, and whether a job is within its queue's
    guarantee; beside a claim or a told start of its own queue, its very position does. _fits is what a search found in
    such a room, by signature; _gpus are free GPUs by node.
    """

    def __init__(self) -> None:
        self._applied = -1
        self._queues: frozenset[str] = frozenset()
        self._kept: dict[tuple[tuple[str, ...], tuple[str, ...]], Occupancy] = {}
        self._fits: dict[tuple[int, int], bool] = {}
        self._gpus: dict[tuple[tuple[str, ...], tuple[str, ...]], IntArray] = {}
        self._right_of_rank: dict[Hashable, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def of(self, ledger: Ledger, state: JobState) -> Occupancy:
        """The occupancy for a job. It is others' too: do not change it."""
        right = self._right(ledger, state)
        room = self._kept.get(right)
        if room is None:
            room = self._kept[right] = _room_without(ledger, *right)
        return room

    def gpus(self, ledger: Ledger, state: JobState, *, is_due: bool | None = None) -> IntArray:
        """GPUs of each node that are free in `of`, or a few more, without making it. Not to be changed.

        is_due: whether the job is taken to be owed what it asks for; by default as it is.
        """
        right = self._right(ledger, state, is_due)
        gpus = self._gpus.get(right)
        if gpus is None:
            gpus = self._gpus[right] = gpus_to_come(ledger, *right)
        return gpus

    def _right(
        self, ledger: Ledger, state: JobState, is_due: bool | None = None
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """`giving_way`, worked out once a rank."""
        if self._applied != ledger.applied:
            self._applied = ledger.applied
            names = (*ledger.reservations, *ledger.claims)
            self._queues = frozenset(ledger.jobs[job].spec.queue for job in names)
            for kept in (self._right_of_rank, self._kept, self._fits, self._gpus):
                kept.clear()
        rank = self._rank(ledger, state, is_due)
        right = self._right_of_rank.get(rank)
        if right is None:
            right = self._right_of_rank[rank] = giving_way(ledger, state, is_due)
        return right

    def may_fit(self, ledger: Ledger, state: JobState) -> bool:
        """Whether a gang of several variants, or as written, may have a place there without anybody stopped for it."""
        spec = state.spec
        if spec.elastic is not None or chooses(spec) or ledger.accounts.guarantees.of_models:
            return True
        room = self.of(ledger, state)
        where = id(room), state.signature
        if where not in self._fits:
            self._fits[where] = fits(room, spec)
        return self._fits[where]

    def _rank(self, ledger: Ledger, state: JobState, is_due: bool | None) -> Hashable:
        """The same for jobs to which the same claims and told starts give way."""
        shared = ledger.accounts.order.before_share
        if shared is None or state.spec.queue in self._queues:
            return (state.position, is_due) if self._queues else None
        due: Hashable = is_due
        if is_due is None and self._queues:
            guarantees = ledger.accounts.guarantees
            due = guarantees.asks_within(state), guarantees.asks_within_on_any_model(state)
        return state.position.key[:shared], state.priority, due


def giving_way(
    ledger: Ledger, state: JobState, is_due: bool | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The jobs whose reserved starts, and those whose claims, give way to a waiting one.

    is_due: whether it is taken to be owed what it asks for; by default as it is.
    """
    passed = (job for job in ledger.reservations if outranks(ledger, state, job, is_due=is_due))
    return tuple(passed), outranked_by(ledger, state, is_due)


def _room_without(ledger: Ledger, passed: Sequence[str], outranked: Sequence[str]) -> Occupancy:
    """The occupancy without those who leave, these reserved starts and these claims; all other claims are whole."""
    later = ledger.rooms().copy()
    claims = (CLAIM + job for job in ledger.claims)
    for owner in (*ledger.leaving, *claims, *(RESERVATION + job for job in passed)):
        later.give_back(owner)
    without = frozenset(outranked)
    for job, claim in ledger.claims.items():
        if job not in without:
            later.take_free(CLAIM + job, claim.placement.members)
    stay = {
        job: reservation for job, reservation in ledger.reservations.items() if job not in passed
    }
    there = {owner: later.owners[owner] for owner in _beside(ledger, stay) if owner in later.owners}
    for owner in there:
        later.give_back(owner)
    for job, reservation in stay.items():
        later.take_free(RESERVATION + job, reservation.placement.members)
    for owner, members in there.items():
        later.take_free(owner, members)
    return later


def gpus_to_come(ledger: Ledger, passed: Sequence[str], outranked: Sequence[str]) -> IntArray:
    """GPUs of each node that would be free, as `room_to_come` says, at least: counted on the nodes that differ.

    Who stays beside what is reserved holds no more than the rest of its place; so of that only what is free counts out.
    """
    rooms = ledger.rooms()
    gpus, mask_of_node = free_gpus(rooms), dict[int, int]()
    index_of_node, free_mask = rooms.fabric.index_of_node, rooms.free_mask_of_node
    held = (*ledger.leaving, *(CLAIM + job for job in ledger.claims))
    for owner in (*held, *(RESERVATION + job for job in ledger.reservations)):
        for member in rooms.owners.get(owner, ()):
            node = index_of_node[member.node]
            mask = mask_of_node.get(node, free_mask[node])
            gpus_of_member = {*member.gpus, *member.parts}  # it may hold several parts of one GPU
            mask_of_node[node] = mask | mask_of_gpus(tuple(sorted(gpus_of_member)))
    places = [claim.placement for job, claim in ledger.claims.items() if job not in outranked]
    places += [each.placement for job, each in ledger.reservations.items() if job not in passed]
    for member in (member for place in places for member in place.members):
        if member.node in index_of_node:
            node = index_of_node[member.node]
            mask = mask_of_node.get(node, free_mask[node])
            mask_of_node[node] = mask & ~mask_of_gpus(member.gpus)
    for node, mask in mask_of_node.items():
        gpus[node] = mask.bit_count()
    gpus[~rooms.usable_node] = 0
    return gpus


def is_on_reserved(later: Occupancy, state: JobState) -> bool:
    """Whether a start that is reserved needs something of what a gang holds: it lacks that in this room to come."""
    assert state.placement is not None, f"{state.job} holds no place"
    return set(later.owners.get(state.job, ())) != set(state.placement.members)


def _beside(ledger: Ledger, jobs: Iterable[str]) -> Iterator[str]:
    """The gangs that hold anything on nodes where starts of these jobs are reserved, be it what these need or not."""
    rooms = ledger.rooms()
    nodes = dict.fromkeys(node for job in jobs for node in ledger.reservations[job].placement.nodes)
    there = dict.fromkeys(owner for node in nodes for owner in rooms.holders(node))
    return (owner for owner in there if owner in ledger.holding)
