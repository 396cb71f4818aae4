"""The accounts of a policy in the ledger: the queue of each job, usage of queues, and admission of jobs.

They follow from facts and the policy in force, so a fold makes them again. The rules are in `policy`; here they are fed
with jobs of the ledger.
"""

from collections.abc import Hashable, Iterable

from gantree.core.ledger.guarantees import Guarantees
from gantree.core.ledger.job_amounts import JobAmounts, capacity_of
from gantree.core.ledger.projected_quota import ProjectedQuota
from gantree.core.ledger.run_time_guesses import RunTimeGuesses
from gantree.core.ledger.state import JobState
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.policy.order import Order
from gantree.policy.queues import QueueTree
from gantree.policy.quota.admission import OWED, Admission
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts, Policy
from gantree.policy.share import Shares
from gantree.policy.waiting_jobs import EquivalenceClass
from gantree.topology.fabric.fabric import Fabric


class Accounts:
    """Queues, quotas, shares and run times of one policy.

    It tells its parts what begins and ends to wait, to hold and to leave, and asks them together: a job is admitted
    beside all that hold a place now, and beside all that will. elastic are the elastic gangs that hold a place.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.order = Order(policy)
        self.tree = QueueTree(policy.queues, policy.share_users)
        self.run_times = RunTimeGuesses(policy)
        self.amounts = JobAmounts()
        self.quota = Quota(self.tree, {})
        self.guarantees = Guarantees(policy, self.quota, self.amounts)
        self.shares = Shares(self.tree, {}, policy.gpu_weights, policy.half_life_s)
        self.elastic: dict[str, None] = {}
        self._projected = ProjectedQuota(self.tree, self.outranks)
        self._leaving: set[str] = set()
        self._claims_at_home: dict[str, None] = {}

    def use_fabric(self, fabric: Fabric) -> None:
        """The cluster is this one from now on."""
        capacity = capacity_of(fabric)
        self.quota.capacity = self._projected.quota.capacity = capacity
        self._changed()
        self.amounts.use_fabric(fabric, capacity)
        self.order.cluster_gpus = max(1.0, capacity.get("gpus", 0.0))
        self.shares.capacity = capacity

    def grow(self) -> None:
        """Make room for queues and users that came since."""
        self.quota.grow()
        self._projected.quota.grow()

    def queue_of(self, spec: Job) -> int:
        """The node of the queue tree that a job is counted at."""
        return self.tree.leaf(spec.queue, spec.user)

    def is_full(self, spec: Job) -> str:
        """Why a queue takes no more jobs in, in words; "" where it does."""
        node = self.tree.queue_node(
            spec.queue
        )  # `leaf` would make one: a rejected job leaves no trace
        return "" if node is None else self.quota.may_wait(node).words

    def equivalence_class_of(self, state: JobState) -> EquivalenceClass:
        """The class of all jobs that get the same answer as this one, as long as it waits."""
        span_s, enforced = self.run_times.span_of(state)
        spec = state.spec
        return EquivalenceClass(
            state.queue, state.signature, state.priority, spec.preemptible, span_s, enforced
        )

    def wait(self, state: JobState) -> None:
        """A job begins to wait, or has another position."""
        self.quota.enqueue(state.queue)
        self._projected.quota.grow()
        self._projected.has_moved(state.job)

    def wait_no_more(self, state: JobState) -> None:
        """A job waits no more."""
        self.quota.dequeue(state.queue)

    def start(self, state: JobState, placement: Placement, at: float) -> None:
        """A gang holds a place from now on."""
        self.count(state, self.amounts.held(placement), at)

    def count(self, state: JobState, amounts: Amounts, at: float) -> None:
        """A gang holds these amounts from now on."""
        self.quota.take(state.queue, state.job, amounts, rank_of(state))
        if state.leaving:
            self._leaving.add(state.job)
        else:
            self._projected.take(state, amounts)
        self._changed()
        self.shares.take(state.queue, state.job, amounts, at)
        if state.spec.elastic is not None:
            self.elastic[state.job] = None

    def leave(self, state: JobState) -> None:
        """A gang was told to leave: it holds its place now, and does not count in the projected quota."""
        self._projected.leave(state.job)
        self._leaving.add(state.job)

    def stop(self, state: JobState, at: float) -> None:
        """A gang holds its place no more."""
        self.quota.give_back(state.job)
        self._projected.leave(state.job)
        self._leaving.discard(state.job)
        self._changed()
        self.shares.give_back(state.job, at)
        self.elastic.pop(state.job, None)

    def claim(self, state: JobState, placement: Placement, *, at_home: bool) -> None:
        """Room is held for a gang from now on, and so is what it takes of its queue's quota."""
        firm = at_home or state.moving is not None
        self._projected.claim(state, self.amounts.held(placement), firm=firm)
        if at_home:
            self._claims_at_home[state.job] = None

    def drop_claim(self, job: str) -> None:
        """Nothing is held for a gang any more."""
        self._claims_at_home.pop(job, None)
        self._projected.drop(job)
        self.quota.free()

    def rank_again(self, state: JobState) -> None:
        """The priority of a gang that holds a place has changed."""
        self.quota.rerank(state.job, rank_of(state))

    def admits_instead(self, state: JobState, amounts: Amounts) -> bool:
        """Whether its queue lets a gang that holds a place hold these amounts instead."""
        return not self.admission(state, amounts, [state.job]).refused

    def freed_anywhere(self) -> tuple[int, int]:
        """Numbers of which one grows whenever a job that was refused may be admitted, now or later."""
        return self.quota.version(), self._projected.quota.version()

    def pushed_out(self) -> int:
        """A number that grows whenever a gang is no longer within its guarantee, because another one came."""
        return self.quota.pushed_out() if self.guarantees.anywhere else 0

    def admission(self, state: JobState, amounts: Amounts, gone: Iterable[str] = ()) -> Admission:
        """Whether the job's queue admits so much more at once, if these running jobs were gone.

        It is asked twice: beside all gangs that hold a place now, and beside all that will, once leaving gangs have
        left and claimants have started. Claims that give way to the job do not count.
        """
        if self.quota.is_unruled(state.queue):
            return OWED
        gone = list(gone)
        later = self.projected_admission(state, amounts, gone)
        if later.refused or not self._leaving:
            return later
        without, beside = self._held_now(state, gone)
        may_borrow = state.spec.preemptible
        now = self.quota.room_without(state.queue, amounts, without, may_borrow, beside)
        return now if now.refused or later.state == "owed" else later

    def projected_admission(
        self, state: JobState, amounts: Amounts, gone: Iterable[str] = ()
    ) -> Admission:
        """As `admission`, once all leaving gangs have left: whether room may be claimed."""
        return self._projected.room(state, amounts, gone, self._rights_of(state))

    def may_be_within_projected_guarantee(self, state: JobState) -> bool:
        """Whether a waiting job might be within its guarantee once all leaving gangs have left; never wrongly no."""
        return self._projected.may_be_within_guarantee(
            state, self.amounts.asked(state), self._rights_of(state)
        )

    def guarantees_left_to_come(
        self, queues: Iterable[int], gone: Iterable[str] = ()
    ) -> list[tuple[tuple[str, int], ...]]:
        """What a job of each queue might be owed when all have left who leave, and these: (resource, ticks).

        Never too little: what is claimed does not count, for it may give way.
        """
        return self._projected.guarantees_left(queues, gone)

    def limits(self, state: JobState, amounts: Amounts, gone: Iterable[str] = ()) -> Admission:
        """As `admission`, asking limits only: a job in its cells is owed its place whatever else the queue has."""
        gone = list(gone)
        later = self._projected.limits(state, amounts, gone, self._rights_of(state))
        if later.refused or not self._leaving:
            return later
        without, beside = self._held_now(state, gone)
        return self.quota.limits_without(state.queue, amounts, without, beside)

    def _held_now(
        self, state: JobState, gone: Iterable[str]
    ) -> tuple[list[str], list[tuple[int, Amounts]]]:
        """Who does not count for a job now, and who counts beside the gangs that hold a place: those with firm claims.

        A gang with a firm claim that still holds another place counts with the larger of both.
        """
        without, beside = list(gone), []
        for claimed in self._projected.firm:
            other, amounts = claimed.state, claimed.amounts
            if other is state or self.outranks(state, other):
                continue
            if self.quota.holds(other.job) and other.job not in without:
                without.append(other.job)
                amounts = _larger(amounts, self.amounts.held_by(other))
            beside.append((other.queue, amounts))
        return without, beside

    def _rights_of(self, state: JobState) -> Hashable:
        """Equal for jobs to which the same claims of other queues give way."""
        if not self._projected.anybody_claims:
            return None
        key, shared = state.position.key, self.order.before_share
        where = (key[:shared],) if shared is not None else (key, state.position)
        return *where, state.priority, self.guarantees.asks_within_on_any_model(state)

    def _changed(self) -> None:
        """What runs, or the capacity, has changed: answers that depend on it are forgotten."""
        self.guarantees.changed()
        self._projected.forget()

    def outranks(
        self,
        state: JobState,
        other: JobState,
        claimed: Amounts | None = None,
        *,
        is_due: bool | None = None,
    ) -> bool:
        """Whether what is claimed for another job gives way to a waiting one: only where none of its rights is less.

        claimed: what the other one would claim, by default what it has claimed. is_due: whether the first is taken to
        be owed what it asks for; by default as it is.

        If one of the three decided alone, two jobs could stop each other for ever. Claims of gangs that move, or go to
        their cells, give way to nobody: guests would take such a place in turns, and be told to leave again.
        """
        if other.moving is not None or other.job in self._claims_at_home:
            return False
        if not self.goes_before(state, other):
            return False
        if self.policy.preemption.by == "priority" and state.priority < other.priority:
            return False
        due = self.guarantees.asks_within_on_any_model(state) if is_due is None else is_due
        return due or not self.claims_within_guarantee(other, claimed)

    def giving_way(self, state: JobState) -> tuple[str, ...]:
        """The jobs whose claims give way to a waiting one, as `outranks` says."""
        return self._projected.giving_way(state, self._rights_of(state))

    def goes_before(self, state: JobState, other: JobState) -> bool:
        """Whether a waiting job goes before another: between queues by what comes before shares, in one by it all."""
        shared = self.order.before_share
        if state.spec.queue == other.spec.queue or shared is None:
            return state.position < other.position
        return state.position.key[:shared] < other.position.key[:shared]

    def claims_within_guarantee(self, state: JobState, claimed: Amounts | None = None) -> bool:
        """As `Guarantees.asks_within`, for what a job claims or would claim: an elastic gang may claim less."""
        amounts = self._projected.claimed(state.job) if claimed is None else claimed
        if amounts is None or amounts == self.amounts.asked(state):
            return self.guarantees.asks_within(state)
        return self.guarantees.covers(state, amounts)


def _larger(amounts: Amounts, others: Amounts) -> Amounts:
    """Of each resource the larger amount."""
    keys = dict.fromkeys((*amounts, *others))
    return {key: max(amounts.get(key, 0.0), others.get(key, 0.0)) for key in keys}


def rank_of(state: JobState) -> tuple[float, ...]:
    """Who of a queue is within its guarantee first: the higher priority, then who came first."""
    return (-state.priority, state.seq)
