"""The ledger: what has been decided so far. The only mutable thing of the core.

It changes only by `apply(fact)`, so that folding the recorded facts rebuilds it exactly; it never decides and never
asks the time. Beside the jobs (`core.ledger.state`) it keeps what can be derived from them and is needed often: the
lines of waiting jobs, the gangs that hold a place, the occupancy of the fabric, and what the policy's accounts say of
them: quotas, shares, learned run times. Accounts follow the policy in force, so a new policy means a new fold.

Room is held for waiting gangs under owner names of their own: a claim while its victims leave, a reservation until its
gang starts. Both hold what is free of their place, and more of it as it is freed: claims first, the oldest first.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from gantree.core.ledger.accounts import Accounts
from gantree.core.ledger.apply_adopted import (
    count_others,
    others_give_way,
    room_of_others,
)
from gantree.core.ledger.apply_cells import cell_bound, cell_released, gang_at_home
from gantree.core.ledger.apply_ends import attempt_ended, job_ended, job_requeued
from gantree.core.ledger.apply_members import (
    member_back,
    member_missed,
    member_replaced,
)
from gantree.core.ledger.apply_requests import (
    job_barred,
    job_held,
    job_released,
    job_reprioritised,
    job_scaled,
    priority_changed,
)
from gantree.core.ledger.apply_retention import jobs_forgotten
from gantree.core.ledger.apply_room import (
    claim_dropped,
    gang_moving,
    reservation_dropped,
    reservation_made,
    room_claimed,
    take_place,
)
from gantree.core.ledger.apply_site import (
    Site,
    fabric_defined,
    node_cordoned,
    node_health_noted,
    node_labelled,
    node_marked,
    node_uncordoned,
)
from gantree.core.ledger.claims_by_node import ClaimsByNode
from gantree.core.ledger.state import CLAIM, RESERVATION, Claim, JobState, Reservation
from gantree.core.ledger.usage import METERED, UsageTotals, gpus_of_model, meter
from gantree.model.facts import (
    AttemptEnded,
    CellBound,
    CellReleased,
    CheckpointRecorded,
    CheckpointRequested,
    ClaimDropped,
    FabricDefined,
    Fact,
    GangAtHome,
    GangMoving,
    GangPlaced,
    GangPreempted,
    GangResumed,
    GangRunning,
    GangSuspended,
    GangWarned,
    JobAccepted,
    JobBarred,
    JobEnded,
    JobHeld,
    JobRejected,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    JobScaled,
    JobsForgotten,
    MemberBack,
    MemberMissed,
    MemberReplaced,
    NodeCordoned,
    NodeHealthNoted,
    NodeLabelled,
    NodeMarked,
    NodeUncordoned,
    PolicyAdopted,
    PriorityChanged,
    ReservationDropped,
    ReservationMade,
    RoomClaimed,
    RoomOfOthers,
    StopDecided,
)
from gantree.model.jobs import Job
from gantree.model.phases import HOLDING, NEXT, Phase
from gantree.model.placements import Placement
from gantree.placement.choice.search import signature
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.order import Position
from gantree.policy.rules import Policy
from gantree.policy.waiting_jobs import WaitingJobs
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(slots=True)
class Ledger:
    """The state of the scheduler.

    room_version grows whenever a gang that was refused might now start; free_version whenever it might now fit;
    holders_version whenever room might now be made for it: more is free than was to come anyway
    (`core.ledger.apply_ends`), a gang begins to leave, or it does less harm to stop it now; placings whenever a gang
    takes a place. bound is the domain of each cell that has one, by (queue, tier, number). resting are jobs that wait
    until a moment, in seconds; gapped gangs of which a member is being replaced. unusable are lost nodes with the
    reason; policies all versions on record. ended are jobs in the order of their ends, but for those that were
    forgotten, which are counted; rejected are those that were not taken into a queue, with the reason, oldest first,
    and rejected_at when. came are the queues and users of all jobs, in the order in which each first came. signatures
    are the numbers of what jobs that are known ask for, of signatures_given that were ever given. applied counts facts.
    """

    policy: Policy = field(default_factory=Policy)
    accounts: Accounts = field(init=False)
    jobs: dict[str, JobState] = field(default_factory=dict)
    newest_of_name: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    rejected_at: dict[str, float] = field(default_factory=dict)
    forgotten_rejected: int = 0
    holding: dict[str, JobState] = field(default_factory=dict)
    waiting: WaitingJobs = field(default_factory=WaitingJobs)
    dependents: dict[str, list[str]] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    bound: dict[tuple[str, str, int], str] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    site: Site = field(default_factory=Site)
    policies: list[PolicyAdopted] = field(default_factory=list)
    signatures: dict[Hashable, int] = field(default_factory=dict)
    signatures_given: int = 0
    occupancy: Occupancy | None = None
    next_seq: int = 0
    room_version: int = 0
    free_version: int = 0
    applied: int = 0
    holders_version: int = 0
    resting: dict[str, float] = field(default_factory=dict)
    placings: int = 0
    leaving: dict[str, JobState] = field(default_factory=dict)
    gapped: dict[str, JobState] = field(default_factory=dict)
    ended: list[JobState] = field(default_factory=list)
    forgotten: int = 0
    came: dict[tuple[str, str], None] = field(default_factory=dict)
    usage: UsageTotals = field(default_factory=UsageTotals)
    _holders_of_priority: dict[int, int] = field(default_factory=dict)
    _holding_in_queue: dict[int, dict[str, JobState]] = field(default_factory=dict)
    _claims_by_node: ClaimsByNode = field(default_factory=ClaimsByNode)

    def __post_init__(self) -> None:
        self.accounts = Accounts(self.policy)

    @property
    def fabric(self) -> Fabric | None:
        """The fabric as last defined; None before the first cluster was observed."""
        return None if self.occupancy is None else self.occupancy.fabric

    def apply(self, fact: Fact) -> None:
        """Change the state as the fact says."""
        self.applied += 1
        if type(fact) in METERED:
            meter(self, fact)
        _APPLY[type(fact)](self, fact)

    @property
    def is_entangled(self) -> bool:
        """Whether what becomes of one node may change what is open on others: by cells, or nodes kept as spares."""
        return self.rooms().keeps_spares or any(rule.cells for rule in self.policy.queues)

    def rooms(self) -> Occupancy:
        """The occupancy; a cluster must have been observed."""
        assert self.occupancy is not None, "no cluster was observed yet"
        return self.occupancy

    def lowest_priority(self) -> float:
        """The lowest priority among gangs that hold a place; infinity if none does."""
        return min(self._holders_of_priority, default=inf)

    def signature_of(self, spec: Job) -> int:
        """A number that jobs share which get the same answer from the same state, but for their queues and limits."""
        number = self.signatures.setdefault(key_of(spec), self.signatures_given)
        self.signatures_given = max(self.signatures_given, number + 1)
        return number

    def move(self, state: JobState, phase: Phase, at: float) -> None:
        """Bring a job into another phase and keep the derived collections true."""
        assert phase in NEXT[state.phase], f"{state.job}: {state.phase} cannot become {phase}"
        if state.phase is Phase.PENDING:
            self.dequeue(state)
        if (phase in HOLDING) != (state.phase in HOLDING):
            self.count_holder(state, 1 if phase in HOLDING else -1)
        state.phase = phase
        if phase is Phase.PENDING:
            self.enqueue(state, at)
        if state.leaving and state.job not in self.leaving:
            self.leaving[state.job] = state
            self.accounts.leave(state)
            self.holders_version += 1
        elif not state.leaving:
            self.leaving.pop(state.job, None)

    def more_room(self, *, is_free: bool = True, to_come: bool = True) -> None:
        """Room or quota came free: whether more is free for those who find none, and more than was to come."""
        self.room_version += 1
        self.free_version += is_free
        self.holders_version += to_come

    def enqueue(self, state: JobState, at: float) -> None:
        """A job begins to wait: where it stands depends on what is known of it now, and stays until it leaves."""
        state.equivalence_class = self.accounts.equivalence_class_of(state)
        state.position = Position(
            self.accounts.order.key(state.order_factors(at)), state.seq, state.job
        )
        self.waiting.add(state.equivalence_class, state.position)
        self.accounts.wait(state)

    def dequeue(self, state: JobState) -> None:
        """A job waits no more, or is about to stand elsewhere."""
        assert state.equivalence_class is not None, f"{state.job} waits in no line"
        self.waiting.remove(state.equivalence_class, state.position)
        self.resting.pop(state.job, None)
        self.accounts.wait_no_more(state)

    def count_holder(self, state: JobState, change: int) -> None:
        """A gang begins to hold a place (1), or holds one no more (-1)."""
        in_queue = self._holding_in_queue.setdefault(state.queue, {})
        if change > 0:
            self.holding[state.job] = in_queue[state.job] = state
        else:
            del self.holding[state.job], in_queue[state.job]
        count = self._holders_of_priority.get(state.priority, 0) + change
        self._holders_of_priority[state.priority] = count
        if count == 0:
            del self._holders_of_priority[state.priority]

    def holding_in(self, queue: int) -> Mapping[str, JobState]:
        """The gangs of a queue that hold a place, in the order in which they took it."""
        return self._holding_in_queue.get(queue, {})

    def held_places(self) -> Iterator[tuple[str, Placement]]:
        """Who holds room for a gang that is not placed, and where: claims before reservations, the oldest first."""
        return self._places_of(self.claims)

    def _places_of(self, claims: Iterable[str]) -> Iterator[tuple[str, Placement]]:
        for job in claims:
            yield CLAIM + job, self.claims[job].placement
        for job, reservation in self.reservations.items():
            yield RESERVATION + job, reservation.placement

    def set_claim(self, job: str, claim: Claim) -> None:
        """A job has this claim from now on."""
        self.claims[job] = claim
        self._claims_by_node.note(job, claim.placement)

    def end_claim(self, job: str) -> Claim:
        """A job has no claim any more; it is returned."""
        self._claims_by_node.forget(job)
        return self.claims.pop(job)

    def hold(
        self, nodes: Collection[str] | None = None, owners: Collection[str] | None = None
    ) -> None:
        """Give every claim and reservation, or some, what is free of its room now, on all nodes or on some."""
        claims: Iterable[str] = self.claims
        if nodes is not None:
            claims = self._claims_by_node.on(nodes)
        elif owners is not None:
            named = [each.removeprefix(CLAIM) for each in owners if each.startswith(CLAIM)]
            claims = self._claims_by_node.oldest_first(named)
        rooms = self.rooms()
        for owner, placement in self._places_of(claims):
            if owners is not None and owner not in owners:
                continue
            members = placement.members
            if rooms.owners.get(owner) == members:  # it has all of it
                continue
            if nodes is not None:
                members = tuple(member for member in members if member.node in nodes)
            rooms.take_free(owner, members)

    def let_go(self, owners: Iterable[str]) -> None:
        """Free what these hold for gangs that are not placed."""
        for owner in owners:
            self.rooms().give_back(owner)


def key_of(spec: Job) -> Hashable:
    """What is the same of all jobs that share a signature."""
    sizes = (spec.elastic, spec.parallelism, spec.trains, spec.traffic) if spec.elastic else ()
    models = _of_choice(spec) if chooses(spec) else ()
    return signature(spec), sizes, models


def _of_choice(spec: Job) -> Hashable:
    """What the ways of a job that chooses its model depend on beside shapes: their speed, time, money and memory."""
    told = (spec.speeds, spec.choose, spec.budget_USD, spec.spot, spec.checkpoint)
    work = (spec.trains, spec.traffic, spec.parallelism, spec.overlap)
    return told, work, spec.expected_s, spec.time_limit_s


def _job_accepted(ledger: Ledger, fact: JobAccepted) -> None:
    assert fact.job not in ledger.jobs, f"{fact.job} accepted twice"
    state = JobState(
        fact.job, fact.spec, fact.priority, fact.seq, ledger.signature_of(fact.spec), fact.at
    )
    state.queue = ledger.accounts.queue_of(fact.spec)
    state.held, state.metered_at = fact.spec.held, fact.at
    ledger.came.setdefault((fact.spec.queue, fact.spec.user))
    ledger.jobs[fact.job] = state
    ledger.newest_of_name[fact.spec.name] = fact.job
    ledger.enqueue(state, fact.at)
    ledger.next_seq = fact.seq + 1
    for name in fact.spec.after:
        ledger.dependents.setdefault(name, []).append(fact.job)


def _job_rejected(ledger: Ledger, fact: JobRejected) -> None:
    ledger.rejected[fact.job] = fact.reason
    ledger.rejected_at[fact.job] = fact.at


def _gang_placed(ledger: Ledger, fact: GangPlaced) -> None:
    state = ledger.jobs[fact.job]
    assert fact.found or fact.attempt == state.attempt + 1, (
        f"{fact.job}: attempt {fact.attempt} after {state.attempt}"
    )
    is_taken = fact.found and ledger.rooms().missing(fact.placement.members)
    in_the_way = others_give_way(ledger, fact.placement.nodes) if is_taken else []
    take_place(ledger, fact.job, fact.placement)
    count_others(ledger, in_the_way)
    ledger.move(state, Phase.STARTING, fact.at)
    ledger.accounts.start(state, fact.placement, fact.at)
    ledger.placings += 1
    state.attempt, state.placement, state.placed_at = fact.attempt, fact.placement, fact.at
    state.running_at = state.checkpoint_at = state.request = state.deadline_at = None
    state.stop_cause = state.stop_decided_at = state.preempted_by = None
    state.answered, state.reason, state.moving = False, "", None
    state.suspended, state.turn_ends_at, state.turned_at = False, None, None
    state.turns, state.suspended_s, state.warned = 0, 0.0, False
    state.at_home, state.found = fact.at_home, fact.found
    state.gpus_of_model = gpus_of_model(ledger.accounts.held(fact.placement))
    state.held_gpus = sum(len(member.gpus) for member in fact.placement.members)
    parts = sum(len(member.parts) for member in fact.placement.members)
    state.touched_gpus = max(1, state.held_gpus + parts)


def _gang_running(ledger: Ledger, fact: GangRunning) -> None:
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.RUNNING, fact.at)
    state.running_at = fact.at
    if state.spec.elastic is not None or ledger.policy.falls_ever_back:
        ledger.holders_version += 1
    if state.started_at is None:
        state.started_at = fact.at


def _gang_preempted(ledger: Ledger, fact: GangPreempted) -> None:
    state = ledger.jobs[fact.job]
    state.preempted_by = fact.by
    state.preempted_at = (*state.preempted_at, fact.at)


def _gang_suspended(ledger: Ledger, fact: GangSuspended) -> None:
    state = ledger.jobs[fact.job]
    state.suspended, state.turn_ends_at, state.turns = True, None, state.turns + 1
    state.turned_at = fact.at


def _gang_resumed(ledger: Ledger, fact: GangResumed) -> None:
    state = ledger.jobs[fact.job]
    if state.suspended and state.turned_at is not None and state.running_at is not None:
        state.suspended_s += fact.at - max(state.turned_at, state.running_at)
    state.suspended, state.turn_ends_at, state.turns = False, fact.turn_ends_at, state.turns + 1
    state.turned_at = fact.at


def _checkpoint_requested(ledger: Ledger, fact: CheckpointRequested) -> None:
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.SAVING, fact.at)
    state.request, state.deadline_at, state.stop_cause = fact.request, fact.deadline_at, fact.cause


def _checkpoint_recorded(ledger: Ledger, fact: CheckpointRecorded) -> None:
    state = ledger.jobs[fact.job]
    state.checkpoint_step, state.checkpoint_at = fact.step, fact.at
    if ledger.policy.preemption.gain:
        ledger.holders_version += 1
    state.answered = state.answered or (fact.request is not None and fact.request == state.request)


def _gang_warned(ledger: Ledger, fact: GangWarned) -> None:
    ledger.jobs[fact.job].warned = True


def _stop_decided(ledger: Ledger, fact: StopDecided) -> None:
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.STOPPING, fact.at)
    if state.stop_decided_at is None:
        state.stop_decided_at = fact.at
    state.stop_cause, state.stop_grace_s, state.deadline_at = fact.cause, fact.grace_s, None
    state.reason = fact.reason or state.reason


def _policy_adopted(ledger: Ledger, fact: PolicyAdopted) -> None:
    ledger.policies.append(fact)


_APPLY: dict[type[Fact], Callable[[Ledger, Any], None]] = {
    FabricDefined: fabric_defined,
    JobAccepted: _job_accepted,
    JobRejected: _job_rejected,
    GangPlaced: _gang_placed,
    GangRunning: _gang_running,
    RoomClaimed: room_claimed,
    ClaimDropped: claim_dropped,
    GangPreempted: _gang_preempted,
    CheckpointRequested: _checkpoint_requested,
    CheckpointRecorded: _checkpoint_recorded,
    StopDecided: _stop_decided,
    AttemptEnded: attempt_ended,
    JobRequeued: job_requeued,
    JobEnded: job_ended,
    NodeMarked: node_marked,
    NodeCordoned: node_cordoned,
    NodeUncordoned: node_uncordoned,
    NodeLabelled: node_labelled,
    NodeHealthNoted: node_health_noted,
    RoomOfOthers: room_of_others,
    PolicyAdopted: _policy_adopted,
    MemberMissed: member_missed,
    MemberReplaced: member_replaced,
    MemberBack: member_back,
    GangMoving: gang_moving,
    GangAtHome: gang_at_home,
    JobHeld: job_held,
    JobReleased: job_released,
    PriorityChanged: priority_changed,
    JobReprioritised: job_reprioritised,
    JobScaled: job_scaled,
    JobBarred: job_barred,
    JobsForgotten: jobs_forgotten,
    ReservationMade: reservation_made,
    ReservationDropped: reservation_dropped,
    CellBound: cell_bound,
    CellReleased: cell_released,
    GangSuspended: _gang_suspended,
    GangResumed: _gang_resumed,
    GangWarned: _gang_warned,
}
