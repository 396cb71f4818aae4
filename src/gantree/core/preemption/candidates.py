"""The gangs that may be stopped for a pending one, and the occupancy once stopping gangs have left.

`core.preemption.free_capacity` uses both to free capacity; `core.queue.preemption_rules` holds the rules.
"""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.core.queue.held_capacity import outranks_reservation
from gantree.core.queue.node_gpus import free_gpus
from gantree.core.queue.preemption_backoff import BACK_OFF, backs_off_until
from gantree.core.queue.preemption_rules import (
    borrowers,
    harm_of,
    order_key_of,
    outranked_claims,
    preemption_blocker,
)
from gantree.model.jobs import Job
from gantree.placement.choice.search import fits
from gantree.planning.preemption.plan import Forbidden, Victim
from gantree.policy.quota.admission import Admission
from gantree.topology.fabric.fabric import IntArray
from gantree.topology.occupancy.node_room import mask_of_gpus
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.site import with_beside

BORROWING, WITHIN_GUARANTEE = 0.0, 1.0
"""The first key of a victim's rank: gangs that borrow are stopped before gangs within their guarantee."""

NOBODY: Mapping[str, JobState] = {}

_Holds = tuple[tuple[str, ...], tuple[str, ...]]
"""(jobs with reservations, jobs with claims)"""


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """A pending gang that does not fit, in one of its variants, and the admission of that variant by its queue."""

    state: JobState
    spec: Job
    admission: Admission


@dataclass(frozen=True, slots=True)
class Candidates:
    """The gangs that may be stopped for a pending one, and those that may not, with the reason.

    retry_at: the next moment, in seconds, at which one more gang may be stopped; None: no such moment.
    """

    victims: tuple[Victim, ...]
    forbidden: tuple[Forbidden, ...]
    retry_at: float | None


def find_candidates(
    ledger: Ledger,
    request: PreemptionRequest,
    now: float,
    *,
    with_forbidden: bool = False,
    exchanged: Mapping[str, JobState] = NOBODY,
) -> Candidates:
    """The gangs that may be stopped for this one. with_forbidden: all others too, each with what forbids it.

    exchanged: gangs within their guarantee that may be stopped as if they borrowed (`core.preemption.exchange`).
    """
    victims, forbidden, retry_at = [], [], inf
    may_preempt_from = may_preempt_at(ledger, request)
    reclaimable = {**reclaimable_gangs(ledger, request), **exchanged}
    gangs = (
        ledger.holding.values()
        if with_forbidden
        else _possible_victims(ledger, request, reclaimable)
    )
    for other in gangs:
        if other.leaving or other.moving is not None or other.job == request.state.job:
            continue
        if not with_forbidden and not _may_be_victim(ledger, request, other, reclaimable):
            continue
        blocker, moment = _blocker(ledger, request, other, reclaimable, may_preempt_from, now)
        if not blocker:
            victims.append(_victim(ledger, other, now))
        elif with_forbidden:
            victim = _victim(ledger, other, now)
            forbidden.append(Forbidden(victim, blocker))
        retry_at = min(retry_at, moment) if blocker else retry_at
    return Candidates(tuple(victims), tuple(forbidden), None if retry_at == inf else retry_at)


def may_reclaim(ledger: Ledger, request: PreemptionRequest) -> bool:
    """Whether the gang is within its queue's guarantee, so that it may reclaim it from gangs that borrow."""
    is_guaranteed = ledger.accounts.guarantees.is_guaranteed
    return request.admission.may_reclaim and is_guaranteed(request.state.queue)


def may_preempt_at(ledger: Ledger, request: PreemptionRequest) -> float:
    """The moment, in seconds, from which the gang may stop others by priority or order; 0 for any moment."""
    return 0.0 if may_reclaim(ledger, request) else backs_off_until(ledger, request.state)


def reclaimable_gangs(ledger: Ledger, request: PreemptionRequest) -> Mapping[str, JobState]:
    """The gangs that borrow the guarantee of this gang's queue; none if it may not reclaim."""
    if not may_reclaim(ledger, request):
        return {}
    return {job: ledger.jobs[job] for job in borrowers(ledger, request.state.queue)}


def _possible_victims(
    ledger: Ledger, request: PreemptionRequest, reclaimable: Mapping[str, JobState]
) -> Iterable[JobState]:
    """A superset of the gangs that may ever be stopped for this one."""
    if ledger.policy.preemption.across:
        return ledger.holding.values()
    return {**ledger.holding_in(request.state.queue), **reclaimable}.values()


def _may_be_victim(
    ledger: Ledger, request: PreemptionRequest, other: JobState, reclaimable: Container[str]
) -> bool:
    """Whether a gang may ever be stopped for this one, by the rules that are cheap to test."""
    rules, state = ledger.policy.preemption, request.state
    if other.job in reclaimable or rules.by == "order":
        return True
    if rules.by == "none":
        return False
    alike = other.priority == state.priority and other.queue == state.queue
    return other.priority < state.priority or (alike and rules.gain > 0)


def _blocker(
    ledger: Ledger,
    request: PreemptionRequest,
    other: JobState,
    reclaimable: Container[str],
    may_preempt_from: float,
    now: float,
) -> tuple[str, float]:
    """What forbids to stop a gang ("" if nothing), and when that ends (inf: never).

    may_preempt_from: when the pending gang may stop any gang by priority or order.
    """
    if not other.spec.preemptible:
        return "non-preemptible", inf
    if other.job in reclaimable:
        return "", now
    blocker, moment = preemption_blocker(ledger, request.state, other, now)
    if may_preempt_from <= now:
        return blocker, moment
    return blocker or BACK_OFF, max(moment, may_preempt_from)


def _victim(ledger: Ledger, other: JobState, now: float) -> Victim:
    within = ledger.accounts.guarantees.holds_within(other)
    standing = WITHIN_GUARANTEE if within else BORROWING
    if ledger.policy.preemption.by == "order":
        right: tuple[float, ...] = (
            standing,
            *(-number for number in order_key_of(ledger, other, now)),
        )
    else:
        right = (standing, other.priority)
    harm_gpu_s = harm_of(ledger, other, now)
    return Victim(
        other.job, other.priority, harm_gpu_s, other.seq, right, _age_s(ledger, other, now)
    )


def _age_s(ledger: Ledger, other: JobState, now: float) -> float | None:
    """The seconds since a gang was placed, where the youngest are stopped first."""
    if ledger.policy.preemption.victims == "loss" or other.placed_at is None:
        return None
    return now - other.placed_at


def projected_occupancy(
    ledger: Ledger, state: JobState, *, ignoring_reservations: bool = False
) -> Occupancy:
    """The occupancy for a job once all stopping gangs have left.

    Claims and reservations that give way to the job are free, as its own are. The others have their whole placements. A
    gang that runs on reserved room keeps only the part that is not reserved.
    ignoring_reservations: every reservation gives way.
    """
    reservations, claims = outranked_holds(ledger, state)
    ignored = tuple(ledger.reservations) if ignoring_reservations else reservations
    return _occupancy_without(ledger, ignored, claims)


class ProjectedOccupancies:
    """A cache of `projected_occupancy`, emptied when a fact is applied.

    Jobs to which the same claims and reservations give way share an entry. _holds_of_rank caches these: jobs of one
    rank (`_rank`) outrank the same holds. _fits caches by signature which gangs fit an occupancy, _gpus its free GPUs
    by node.
    """

    def __init__(self) -> None:
        self._applied = -1
        self._queues: frozenset[str] = frozenset()
        self._occupancies: dict[_Holds, Occupancy] = {}
        self._fits: dict[tuple[int, int], bool] = {}
        self._gpus: dict[_Holds, IntArray] = {}
        self._holds_of_rank: dict[Hashable, _Holds] = {}

    def of(self, ledger: Ledger, state: JobState) -> Occupancy:
        """The occupancy for a job. It is shared: do not change it."""
        holds = self._outranked_holds(ledger, state)
        occupancy = self._occupancies.get(holds)
        if occupancy is None:
            occupancy = self._occupancies[holds] = _occupancy_without(ledger, *holds)
        return occupancy

    def gpus(
        self, ledger: Ledger, state: JobState, *, within_guarantee: bool | None = None
    ) -> IntArray:
        """The free GPUs of each node in `of`, or a few more, without building it. Shared: do not change it.

        within_guarantee: whether the job is assumed to be within its guarantee; by default its admission decides.
        """
        holds = self._outranked_holds(ledger, state, within_guarantee)
        gpus = self._gpus.get(holds)
        if gpus is None:
            gpus = self._gpus[holds] = projected_free_gpus(ledger, *holds)
        return gpus

    def may_fit(self, ledger: Ledger, state: JobState) -> bool:
        """Whether a gang may fit without a preemption. Variants, but for smaller ones, those on spot nodes and those
        of another shape, fit where the job does.
        """
        spec = state.spec
        if spec.elastic is not None or spec.spot or spec.alternatives:
            return True
        occupancy = self.of(ledger, state)
        key = id(occupancy), state.signature
        if key not in self._fits:
            self._fits[key] = fits(occupancy, spec)
        return self._fits[key]

    def _outranked_holds(
        self, ledger: Ledger, state: JobState, within_guarantee: bool | None = None
    ) -> _Holds:
        """`outranked_holds`, computed once for each rank."""
        if self._applied != ledger.applied:
            self._applied = ledger.applied
            names = (*ledger.reservations, *ledger.claims)
            self._queues = frozenset(ledger.jobs[job].spec.queue for job in names)
            for cache in (self._holds_of_rank, self._occupancies, self._fits, self._gpus):
                cache.clear()
        rank = self._rank(ledger, state, within_guarantee)
        holds = self._holds_of_rank.get(rank)
        if holds is None:
            holds = self._holds_of_rank[rank] = outranked_holds(ledger, state, within_guarantee)
        return holds

    def _rank(self, ledger: Ledger, state: JobState, within_guarantee: bool | None) -> Hashable:
        """A key that is equal for jobs to which the same claims and reservations give way.

        Between queues only the keys before shares count, and whether the job is within its guarantee; for reservations
        the share of its queue, too. If its own queue has a claim or a reservation, its position counts.
        """
        shared = ledger.accounts.order.before_share
        if shared is None or state.spec.queue in self._queues:
            return (state.position, within_guarantee) if self._queues else None
        within: Hashable = within_guarantee
        if within_guarantee is None and self._queues:
            guarantees = ledger.accounts.guarantees
            within = guarantees.asks_within(state), guarantees.asks_within_on_any_model(state)
        queue = state.queue if ledger.reservations else None
        return state.position.key[:shared], queue, state.priority, within


def outranked_holds(
    ledger: Ledger, state: JobState, within_guarantee: bool | None = None
) -> _Holds:
    """The jobs whose reservations, and those whose claims, give way to a pending one.

    within_guarantee: whether the job is assumed to be within its guarantee; by default its admission decides.
    """
    reservations = (
        job
        for job in ledger.reservations
        if outranks_reservation(ledger, state, job, within_guarantee=within_guarantee)
    )
    return tuple(reservations), outranked_claims(ledger, state, within_guarantee)


def _occupancy_without(
    ledger: Ledger, reservations: Sequence[str], claims: Sequence[str]
) -> Occupancy:
    """The occupancy without stopping gangs, these reservations and these claims; the other ones have all their room."""
    projected = ledger.rooms().copy()
    every_claim = (CLAIM + job for job in ledger.claims)
    leaving = (owner for job in ledger.leaving for owner in with_beside(job))
    for owner in (*leaving, *every_claim, *(RESERVATION + job for job in reservations)):
        projected.give_back(owner)
    without = frozenset(claims)
    for job, claim in ledger.claims.items():
        if job not in without:
            projected.take_free(CLAIM + job, claim.placement.members)
    kept = {
        job: reservation
        for job, reservation in ledger.reservations.items()
        if job not in reservations
    }
    beside = {
        owner: projected.owners[owner]
        for owner in _gangs_beside(ledger, kept)
        if owner in projected.owners
    }
    for owner in beside:
        projected.give_back(owner)
    for job, reservation in kept.items():
        projected.take_free(RESERVATION + job, reservation.placement.members)
    for owner, members in beside.items():
        projected.take_free(owner, members)
    return projected


def projected_free_gpus(
    ledger: Ledger, reservations: Sequence[str], claims: Sequence[str]
) -> IntArray:
    """The free GPUs of each node in `_occupancy_without`, or a few more; only nodes that differ from now are counted.

    A GPU that is reserved for another gang, or claimed by one, is not free, whoever uses it now.
    """
    rooms = ledger.rooms()
    gpus, mask_of_node = free_gpus(rooms), dict[int, int]()
    index_of_node, free_mask = rooms.fabric.index_of_node, rooms.free_mask_of_node
    leaving = (owner for job in ledger.leaving for owner in with_beside(job))
    held = (*leaving, *(CLAIM + job for job in ledger.claims))
    for owner in (*held, *(RESERVATION + job for job in ledger.reservations)):
        for member in rooms.owners.get(owner, ()):
            node = index_of_node[member.node]
            mask = mask_of_node.get(node, free_mask[node])
            gpus_of_member = {*member.gpus, *member.parts}  # it may hold several parts of one GPU
            mask_of_node[node] = mask | mask_of_gpus(tuple(sorted(gpus_of_member)))
    placements = [claim.placement for job, claim in ledger.claims.items() if job not in claims]
    placements += [
        each.placement for job, each in ledger.reservations.items() if job not in reservations
    ]
    for member in (member for placement in placements for member in placement.members):
        if member.node in index_of_node:
            node = index_of_node[member.node]
            mask = mask_of_node.get(node, free_mask[node])
            mask_of_node[node] = mask & ~mask_of_gpus(member.gpus)
    for node, mask in mask_of_node.items():
        gpus[node] = mask.bit_count()
    gpus[~rooms.usable_node] = 0
    return gpus


def overlaps_reservation(projected: Occupancy, state: JobState) -> bool:
    """Whether a gang runs on room that a reservation needs: the projected occupancy does not leave it all its room."""
    assert state.placement is not None, f"{state.job} holds no place"
    return set(projected.owners.get(state.job, ())) != set(state.placement.members)


def _gangs_beside(ledger: Ledger, jobs: Iterable[str]) -> Iterator[str]:
    """The gangs on the nodes of these jobs' reservations, on the reserved room or beside it."""
    rooms = ledger.rooms()
    nodes = dict.fromkeys(node for job in jobs for node in ledger.reservations[job].placement.nodes)
    holders = dict.fromkeys(owner for node in nodes for owner in rooms.holders(node))
    return (owner for owner in holders if owner in ledger.holding)
