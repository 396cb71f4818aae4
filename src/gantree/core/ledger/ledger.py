"""The ledger: the state that all facts so far lead to. The only mutable object of the core.

It changes only by `apply(fact)`, so folding the recorded facts rebuilds it exactly; it never decides and never asks the
time. What each fact does is in `core.ledger.apply`. Beside the jobs (`core.ledger.state`) it keeps what follows from
them and is needed often: the waiting jobs in order, the gangs that hold a place, the occupancy of the fabric, and the
accounts of the policy: quotas, shares, learned run times. Accounts follow the policy in force, so a new policy means a
new fold.

Room is held for waiting gangs under owner names of their own: a claim while its victims leave, a reservation until its
gang starts. Both hold what is free of their place, and more of it as it is freed: claims first, the oldest first.
"""

from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter

from gantree.core.ledger.accounts.accounts import Accounts
from gantree.core.ledger.accounts.user_counts import UserCounts
from gantree.core.ledger.apply.table import APPLY
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.claims_by_node import ClaimsByNode
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.signatures import Signatures
from gantree.core.ledger.site import Site
from gantree.core.ledger.state import CLAIM, RESERVATION, Claim, JobState, Reservation
from gantree.core.ledger.usage import METERED, RUN_CHANGES, meter, note_run
from gantree.model.arrays import Spans, parse_element
from gantree.model.facts import Fact, PolicyAdopted
from gantree.model.jobs import Job
from gantree.model.phases import HOLDING, NEXT, Phase
from gantree.model.placements import Placement
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
    (`core.ledger.apply.ends`), a gang begins to leave, or it does less harm to stop it now; placings whenever a gang
    takes a place. gated are jobs that wait and are held, or come after others. bound is the domain of each cell that
    has one, by (queue, tier, number). resting are jobs that wait until a moment, in seconds; gapped gangs of which a
    member is being replaced, slowed those with slow ranks. unusable are lost nodes with the reason; policies all
    versions on record. ended are jobs in the order of their ends, but for those that were forgotten, which are counted;
    rejected are those that were not taken into a queue, with the reason, oldest first, and rejected_at when. came are
    the queues and users of all jobs, in the order in which each first came. applied counts facts. unsplit are arrays
    with elements that are not split; waiting_of_user counts these arrays and the waiting jobs. arrivals is (seq, id) of
    each array, and of each job that is no element of one, in order of arrival. services are all that ever were, by
    name, rejected_services those of the last descriptions that were not taken, with the reason.
    """

    policy: Policy = field(default_factory=Policy)
    accounts: Accounts = field(init=False)
    jobs: dict[str, JobState] = field(default_factory=dict)
    newest_of_name: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, ArrayState] = field(default_factory=dict)
    newest_array_of_name: dict[str, str] = field(default_factory=dict)
    unsplit: dict[str, ArrayState] = field(default_factory=dict)
    waiting_of_user: UserCounts = field(default_factory=UserCounts)
    arrivals: list[tuple[int, str]] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    rejected_at: dict[str, float] = field(default_factory=dict)
    forgotten_rejected: int = 0
    holding: dict[str, JobState] = field(default_factory=dict)
    waiting: WaitingJobs = field(default_factory=WaitingJobs)
    dependents: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    bound: dict[tuple[str, str, int], str] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    site: Site = field(default_factory=Site)
    policies: list[PolicyAdopted] = field(default_factory=list)
    signatures: Signatures = field(default_factory=Signatures)
    occupancy: Occupancy | None = None
    next_seq: int = 0
    room_version: int = 0
    free_version: int = 0
    applied: int = 0
    holders_version: int = 0
    resting: dict[str, float] = field(default_factory=dict)
    gated: dict[str, None] = field(default_factory=dict)
    placings: int = 0
    leaving: dict[str, JobState] = field(default_factory=dict)
    gapped: dict[str, JobState] = field(default_factory=dict)
    slowed: dict[str, JobState] = field(default_factory=dict)
    ended: list[JobState] = field(default_factory=list)
    forgotten: int = 0
    came: dict[tuple[str, str], None] = field(default_factory=dict)
    services: dict[str, ServiceState] = field(default_factory=dict)
    rejected_services: dict[str, str] = field(default_factory=dict)
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
        """Apply a fact."""
        self.applied += 1
        if type(fact) in METERED:
            meter(self, fact)
        APPLY[type(fact)](self, fact)
        if type(fact) in RUN_CHANGES:
            note_run(self, fact)

    @property
    def is_entangled(self) -> bool:
        """Whether a change of one node may change what is usable on others: through cells or spare nodes."""
        return self.rooms().spares.any_kept or any(rule.cells for rule in self.policy.queues)

    def rooms(self) -> Occupancy:
        """The occupancy; a cluster must have been observed."""
        assert self.occupancy is not None, "no cluster was observed yet"
        return self.occupancy

    def lowest_priority(self) -> float:
        """Return the lowest priority of placed gangs; infinity without one."""
        return min(self._holders_of_priority, default=inf)

    def move(self, state: JobState, phase: Phase, at: float) -> None:
        """Change the phase of a job and update derived collections."""
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
        """Update versions after a release of room or quota."""
        self.room_version += 1
        self.free_version += is_free
        self.holders_version += to_come

    def enqueue(self, state: JobState, at: float) -> None:
        """Add a pending job. Its position depends on its state now, and stays until it is removed."""
        state.equivalence_class = self.accounts.equivalence_class_of(state)
        state.position = Position(
            self.accounts.order.key(state.order_factors(at)), state.seq, state.job
        )
        self.add_waiting(state)

    def add_waiting(self, state: JobState) -> None:
        """Insert a pending job at its position."""
        assert state.equivalence_class is not None, f"{state.job} waits in no line"
        self.waiting.add(state.equivalence_class, state.position)
        if state.held or state.spec.after:
            self.gated[state.job] = None
        self.accounts.wait(state)
        self.waiting_of_user.change(state.spec.user, 1)

    def dequeue(self, state: JobState) -> None:
        """Remove a pending job, or take it out to change its position."""
        assert state.equivalence_class is not None, f"{state.job} waits in no line"
        self.waiting.remove(state.equivalence_class, state.position)
        self.resting.pop(state.job, None)
        self.gated.pop(state.job, None)
        self.accounts.wait_no_more(state)
        self.waiting_of_user.change(state.spec.user, -1)
        self.decided(state)

    def decided(self, state: JobState) -> None:
        """Something was decided or changed for a job: it is not like the unsplit elements of its array any more."""
        if state.array:
            self.arrays[state.array].undecided.pop(state.job, None)

    def never_split(self, job: str) -> tuple[ArrayState, int] | None:
        """The array and the offset of an element that was never split, by its id; None for what is none."""
        parsed = parse_element(job)
        array = None if parsed is None else self.arrays.get(parsed[0])
        offset = None if parsed is None or array is None else array.offset(parsed[1])
        return None if array is None or offset is None else (array, offset)

    def find(self, job: str) -> JobState | None:
        """The state of a job, also of an element that was never split; None where there is no such job."""
        state = self.jobs.get(job)
        if state is None and (element := self.never_split(job)) is not None:
            array, offset = element
            state = array.unsplit_element(offset, self.policy.priority_of(array.spec.priority))
        return state

    @property
    def waiting_jobs(self) -> int:
        """The number of jobs that wait, elements of arrays that are not split among them."""
        return len(self.waiting) + sum(array.unsplit for array in self.unsplit.values())

    def live_specs(self) -> Iterator[tuple[str, Job]]:
        """The id and the request of each job and service that has not ended, and array with unsplit elements."""
        for state in self.jobs.values():
            if state.ended_at is None:
                yield state.job, state.spec
        for array in self.unsplit.values():
            yield array.array, array.spec
        for service in self.services.values():
            if service.is_live:
                yield service.service, service.spec.replica

    def leader_of(self, name: str) -> JobState | None:
        """The element that is considered next for an array, or before an element that is not split; None if none is."""
        element = self.never_split(name)
        array = self.arrays.get(name) if element is None else element[0]
        return (
            None if array is None or not array.undecided else self.jobs[next(iter(array.undecided))]
        )

    def spec_of(self, name: str) -> Job | None:
        """What a job or an array requests; None where there is none of this id."""
        array = self.arrays.get(name)
        if array is not None:
            return array.spec
        state = self.find(name)
        return None if state is None else state.spec

    def is_undecided_element(self, state: JobState) -> bool:
        """Whether a job is like the unsplit elements of its array."""
        return bool(state.array) and state.job in self.arrays[state.array].undecided

    def is_alike(self, state: JobState) -> bool:
        """Whether a split element is still as the unsplit ones of its array: it waits, and never did anything else."""
        array = self.arrays.get(state.array)
        return (
            array is not None
            and state.phase is Phase.PENDING
            and state.attempt == 0
            and state.held == array.held
            and state.spec.priority == array.spec.priority
            and not (state.barred_for or state.scaled)
            and state.job not in self.claims
            and state.job not in self.reservations
        )

    def alike_spans(self, array: ArrayState) -> Spans:
        """The indices of the elements of an array that are alike (`is_alike`) or were never split."""
        states = map(self.jobs.__getitem__, array.alive)
        return array.spans_with(state.seq - array.seq for state in states if self.is_alike(state))

    def is_used_up(self, array: str) -> bool:
        """Whether an array has elements to consider, and none of them is split."""
        return self.arrays[array].may_split and not self.arrays[array].undecided

    def note_name(self, state: JobState) -> None:
        """A job goes by its name, if it is the newest of that name."""
        newest = self.jobs.get(self.newest_of_name.get(state.spec.name, ""))
        if newest is None or newest.seq <= state.seq:
            self.newest_of_name[state.spec.name] = state.job

    def in_arrival_order(self) -> list[JobState]:
        """All jobs by their place in order of arrival; split elements of an array came into `jobs` later."""
        return sorted(self.jobs.values(), key=attrgetter("seq"))

    def add_dependents(self, name: str, seq: int, after: Iterable[str]) -> None:
        """A job or array waits for others to succeed. Dependents are kept in order of arrival."""
        for before in after:
            insort(self.dependents.setdefault(before, []), (seq, name))

    def dependents_of(self, name: str) -> list[str]:
        """The jobs and arrays that come after a job or an array, in order of arrival."""
        return [dependent for _, dependent in self.dependents.get(name, ())]

    def dependents_after(self, state: JobState) -> list[str]:
        """The jobs and arrays that come after a job, or after its array."""
        of_array = self.dependents_of(state.array) if state.array else []
        return [*self.dependents_of(state.job), *of_array]

    def is_over(self, name: str) -> bool:
        """Whether a job, or every element of an array, has ended."""
        state = self.jobs.get(name)
        return self.arrays[name].is_over if state is None else state.ended_at is not None

    def has_succeeded(self, name: str) -> bool:
        """Whether a job, or every element of an array, has succeeded."""
        state = self.find(name)
        if state is not None:
            return state.phase is Phase.SUCCEEDED
        return self.arrays[name].has_succeeded

    def count_holder(self, state: JobState, change: int) -> None:
        """Add (1) or remove (-1) a placed gang."""
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
        """Return the placed gangs of a queue, in order of placement."""
        return self._holding_in_queue.get(queue, {})

    def held_places(self) -> Iterator[tuple[str, Placement]]:
        """Return the holders of room for unplaced gangs, with placements: claims before reservations, oldest first."""
        return self._places_of(self.claims)

    def _places_of(self, claims: Iterable[str]) -> Iterator[tuple[str, Placement]]:
        for job in claims:
            yield CLAIM + job, self.claims[job].placement
        for job, reservation in self.reservations.items():
            yield RESERVATION + job, reservation.placement

    def set_claim(self, job: str, claim: Claim) -> None:
        """Add the claim of a job."""
        self.decided(self.jobs[job])
        self.claims[job] = claim
        self._claims_by_node.note(job, claim.placement)

    def end_claim(self, job: str) -> Claim:
        """Remove and return the claim of a job."""
        self._claims_by_node.forget(job)
        return self.claims.pop(job)

    def hold(
        self, nodes: Collection[str] | None = None, owners: Collection[str] | None = None
    ) -> None:
        """Let claims and reservations (all or some) hold what is free of their room, on all or some nodes."""
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
        """Release what these owners hold for unplaced gangs."""
        for owner in owners:
            self.rooms().give_back(owner)
