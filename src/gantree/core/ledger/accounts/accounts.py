"""The accounts of a policy in the ledger: the queue of each job, usage of queues, and admission of jobs.

They follow from facts and the policy in force, so a fold makes them again. The rules are in `policy`; here they are fed
with jobs of the ledger.
"""

from collections.abc import Hashable, Iterable, Sequence

from gantree.core.ledger.accounts.budgets import Budgets
from gantree.core.ledger.accounts.guarantees import Guarantees
from gantree.core.ledger.accounts.lending import Lending
from gantree.core.ledger.accounts.projected_quota import ProjectedQuota
from gantree.core.ledger.job_amounts import JobAmounts, capacity_of
from gantree.core.ledger.run_time_guesses import RunTimeGuesses
from gantree.core.ledger.state import JobState
from gantree.model.arrays import size_of
from gantree.model.budget_facts import BudgetNoted
from gantree.model.facts import GuaranteeKept
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.policy.order import Order
from gantree.policy.queues import QueueTree
from gantree.policy.quota.admission import WITHIN_GUARANTEE, Admission
from gantree.policy.quota.quota import NOTHING_FREED, Freed, Quota
from gantree.policy.rules import Amounts, Policy
from gantree.policy.share import Shares
from gantree.policy.waiting_jobs import EquivalenceClass
from gantree.topology.fabric.fabric import Fabric


class Accounts:
    """Queues, quotas, shares and run times of one policy.

    It updates its parts when jobs become pending, placed or stopping. A job is admitted beside all gangs that are
    placed now, and beside all that will be. elastic are the placed elastic gangs.
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
        self.budgets = Budgets(policy, self.tree)
        self.elastic: dict[str, None] = {}
        self._projected = ProjectedQuota(self.tree, self.outranks)
        self.lending = Lending(self.tree, (self.quota, self._projected.quota))
        self._leaving: set[str] = set()
        self._claims_at_home: dict[str, None] = {}

    def use_fabric(self, fabric: Fabric) -> None:
        """Set the cluster."""
        capacity = capacity_of(fabric)
        self.quota.capacity = self._projected.quota.capacity = capacity
        self._changed()
        self.amounts.use_fabric(fabric, capacity)
        self.order.cluster_gpus = max(1.0, capacity.get("gpus", 0.0))
        self.shares.capacity = capacity

    def grow(self) -> None:
        """Extend the accounts to added queues and users."""
        self.quota.grow()
        self._projected.quota.grow()

    def queue_of(self, spec: Job) -> int:
        """Return the node of the queue tree at which a job is counted."""
        return self.tree.leaf(spec.queue, spec.user)

    def is_full(self, spec: Job) -> str:
        """Return why a queue accepts no further job, or not so large an array, for people; "" if it does."""
        node = self.tree.queue_node(
            spec.queue
        )  # `leaf` would make one: a rejected job leaves no trace
        jobs = size_of(spec.array) if spec.array else 1
        return "" if node is None else self.quota.may_wait(node, jobs).words

    def equivalence_class_of(self, state: JobState) -> EquivalenceClass:
        """Return the equivalence class of a pending job."""
        span_s, enforced = self.run_times.span_of(state)
        spec = state.spec
        return EquivalenceClass(
            state.queue, state.signature, state.priority, spec.preemptible, span_s, enforced
        )

    def wait(self, state: JobState) -> None:
        """Add a pending job, or change its position."""
        self.quota.enqueue(state.queue)
        self._projected.quota.grow()
        self._projected.has_moved(state.job)

    def wait_no_more(self, state: JobState) -> None:
        """Remove a pending job."""
        self.quota.dequeue(state.queue)

    def wait_unsplit(self, queue: int, change: int) -> None:
        """Add (or remove) pending elements of an array that are not split."""
        self.quota.count_waiting(queue, change)

    def start(self, state: JobState, placement: Placement, at: float) -> None:
        """Add a placed gang."""
        self.count(state, self.amounts.held(placement), at)

    def count(self, state: JobState, amounts: Amounts, at: float) -> None:
        """Set the amounts of a placed gang."""
        self.quota.take(state.queue, state.job, amounts, rank_of(state))
        if state.leaving:
            self._leaving.add(state.job)
        else:
            self._projected.take(state, amounts)
        self._changed()
        self.shares.take(state.queue, state.job, amounts, at)
        self.budgets.consumption.take(state.spec.queue, state.job, amounts, at)
        self.lending.note_use(self.tree.path(state.queue), at)
        if state.spec.elastic is not None:
            self.elastic[state.job] = None

    def leave(self, state: JobState) -> None:
        """Mark a gang as stopping: it is still placed, and does not count in the projected quota."""
        self._projected.leave(state.job)
        self._leaving.add(state.job)

    def stop(self, state: JobState, at: float) -> None:
        """Remove a placed gang."""
        self.lending.note_idle(state.job, (), at, is_idle=False)
        self.quota.give_back(state.job)
        self._projected.leave(state.job)
        self._leaving.discard(state.job)
        self._changed()
        self.shares.give_back(state.job, at)
        self.budgets.consumption.give_back(state.job, at)
        self.lending.note_use(self.tree.path(state.queue), at)
        self.elastic.pop(state.job, None)

    def suspend(self, state: JobState, at: float) -> None:
        """Stop counting what a suspended gang consumes."""
        self.budgets.consumption.give_back(state.job, at)

    def resume(self, state: JobState, at: float) -> None:
        """Count again what a gang consumes that was suspended."""
        amounts = self.shares.amounts_of(state.job)
        self.budgets.consumption.take(state.spec.queue, state.job, amounts, at)

    def note_budget(self, fact: BudgetNoted) -> None:
        """Close a queue whose budget is used up, or open it again."""
        if self.budgets.note(fact):
            self.quota.free()
            self._projected.quota.free()

    def claim(self, state: JobState, placement: Placement, *, at_home: bool) -> None:
        """Add a claim of a gang: its room, and its use of the queue's quota."""
        firm = at_home or state.moving is not None
        self._projected.claim(state, self.amounts.held(placement), firm=firm)
        if at_home:
            self._claims_at_home[state.job] = None

    def drop_claim(self, job: str) -> None:
        """Remove the claim of a gang."""
        self._claims_at_home.pop(job, None)
        self._projected.drop(job)
        self.quota.free()

    def note_idle(self, state: JobState, at: float) -> None:
        """Note whether a placed gang is idle."""
        path, is_idle = self.tree.path(state.queue), state.idle.since is not None
        self.lending.note_idle(state.job, path, at, is_idle=is_idle)

    def keep(self, fact: GuaranteeKept) -> None:
        """Let a queue that lends by use keep so much."""
        self.lending.note(fact)
        self._changed()

    def rank_again(self, state: JobState) -> None:
        """Update the rank of a placed gang after a change of its priority."""
        self.quota.rerank(state.job, rank_of(state))

    def admits_instead(self, state: JobState, amounts: Amounts) -> bool:
        """Return whether its queue admits other amounts for a placed gang; a closed queue, none that cost more."""
        held = self.shares.amounts_of(state.job)
        if self.budgets.refuses_instead(state.queue, held, amounts):
            return False
        return not self.admission(state, amounts, [state.job]).refused

    def freed_anywhere(self) -> tuple[int, int]:
        """Return versions of which one grows whenever a refused job may be admitted, now or later."""
        return self.quota.version(), self._projected.quota.version()

    def pushed_out(self) -> int:
        """Return a version that grows whenever a gang starts to borrow because another one was added."""
        return self.quota.pushed_out() if self.guarantees.anywhere else 0

    def admission(self, state: JobState, amounts: Amounts, gone: Iterable[str] = ()) -> Admission:
        """Return the admission of these amounts by the job's queue, if these running jobs were gone.

        It is computed twice: beside all gangs that are placed now, and beside all that will be, once stopping gangs
        have left and claimants have started. Claims that give way to the job do not count.
        """
        if self.quota.is_unruled(state.queue) and not self.budgets.any_closed:
            return WITHIN_GUARANTEE
        gone = list(gone)
        later = self.projected_admission(state, amounts, gone)
        if later.refused or not self._leaving:
            return later
        without, beside = self._held_now(state, gone)
        may_borrow = state.spec.preemptible
        now = self.quota.room_without(state.queue, amounts, without, may_borrow, beside)
        return now if now.refused or later.within_guarantee else later

    def projected_admission(
        self, state: JobState, amounts: Amounts, gone: Iterable[str] = ()
    ) -> Admission:
        """As `admission`, once all stopping gangs have left: whether room may be claimed."""
        refusal = self.budgets.refusal(state)
        return refusal or self._projected.room(state, amounts, gone, self._rights_of(state))

    def may_be_within_projected_guarantee(self, state: JobState) -> bool:
        """Return whether a variant of a pending job may be within its guarantee once stopping gangs have left (an upper
        bound).
        """
        return self._projected.may_be_within_guarantee(
            state, self.amounts.least_requested(state), self._rights_of(state)
        )

    def guarantees_left_to_come(
        self, queues: Iterable[int], gone: Iterable[str] = ()
    ) -> list[tuple[tuple[str, int], ...]]:
        """Return, by queue, what its guarantee may leave once stopping gangs and these have left: (resource, ticks).

        An upper bound: claims do not count, because they may give way.
        """
        return self._projected.guarantees_left(queues, gone)

    def most_left(self, nodes: Sequence[int]) -> list[list[int]]:
        """Upper bounds on what a job of each node could have now, as `Quota.most_left_without`; claims do not count."""
        return self._nothing_left_if_closed(nodes, self.quota.most_left_without(nodes, ()))

    def projected_most_left(
        self, nodes: Sequence[int], freed: Freed = NOTHING_FREED
    ) -> list[list[int]]:
        """As `most_left`, once all leaving gangs have left, and `freed` is freed."""
        return self._nothing_left_if_closed(nodes, self._projected.most_left(nodes, freed))

    def own_limits_left(self, nodes: Sequence[int]) -> list[list[int]]:
        """Return what the limits of each node itself leave, as `Quota.own_limits_left`; nothing in a closed queue."""
        return self._nothing_left_if_closed(nodes, [self.quota.own_limits_left(n) for n in nodes])

    def _nothing_left_if_closed(
        self, nodes: Sequence[int], left: list[list[int]]
    ) -> list[list[int]]:
        """Set what is left to 0 for the nodes that are in closed queues."""
        if self.budgets.any_closed:
            for node, of_node in zip(nodes, left, strict=True):
                if self.budgets.is_closed(node):
                    of_node[:] = [0] * len(of_node)
        return left

    def limits(self, state: JobState, amounts: Amounts, gone: Iterable[str] = ()) -> Admission:
        """As `admission`, with limits only: a job in its queue's cells is always within the guarantee."""
        refusal = self.budgets.refusal(state)
        if refusal is not None:
            return refusal
        gone = list(gone)
        later = self._projected.limits(state, amounts, gone, self._rights_of(state))
        if later.refused or not self._leaving:
            return later
        without, beside = self._held_now(state, gone)
        return self.quota.limits_without(state.queue, amounts, without, beside)

    def _held_now(
        self, state: JobState, gone: Iterable[str]
    ) -> tuple[list[str], list[tuple[int, Amounts]]]:
        """Return the gangs that do not count for a job now, and further ones that do: those with firm claims.

        A gang with a firm claim that is still placed elsewhere counts with the larger amounts.
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
        """Return a key that is equal for jobs to which the same claims of other queues give way."""
        if not self._projected.anybody_claims:
            return None
        key, shared = state.position.key, self.order.before_share
        where = (key[:shared],) if shared is not None else (key, state.position)
        return *where, state.priority, self.guarantees.asks_within_on_any_model(state)

    def _changed(self) -> None:
        """Drop cached answers after a change of running gangs or capacity."""
        self.guarantees.changed()
        self._projected.forget()

    def outranks(
        self,
        state: JobState,
        other: JobState,
        claimed: Amounts | None = None,
        *,
        within_guarantee: bool | None = None,
    ) -> bool:
        """Return whether the claim of another job gives way to a pending one, which must not rank lower in any respect.

        claimed: what the other job would claim, by default its claim. within_guarantee: whether the pending job is
        assumed to be within its guarantee; by default its admission decides.

        If one of the three criteria decided alone, two jobs could preempt each other endlessly. Claims of gangs that
        move, or go to their queue's cells, never give way: guests would use the room in turns and be evicted again.
        """
        if other.moving is not None or other.job in self._claims_at_home:
            return False
        if not self.goes_before(state, other):
            return False
        if self.policy.preemption.by == "priority" and state.priority < other.priority:
            return False
        within = (
            self.guarantees.asks_within_on_any_model(state)
            if within_guarantee is None
            else within_guarantee
        )
        return within or not self.claims_within_guarantee(other, claimed)

    def giving_way(self, state: JobState) -> tuple[str, ...]:
        """Return the jobs whose claims give way to a pending one (`outranks`)."""
        return self._projected.giving_way(state, self._rights_of(state))

    def goes_before(self, state: JobState, other: JobState) -> bool:
        """Return whether a pending job goes before another; between queues only keys before shares count."""
        shared = self.order.before_share
        if state.spec.queue == other.spec.queue or shared is None:
            return state.position < other.position
        return state.position.key[:shared] < other.position.key[:shared]

    def comes_first(self, state: JobState, other: JobState) -> bool:
        """Return whether a pending job comes before another in the policy order, shares included (`Shares.at_fork`)."""
        shared = self.order.before_share
        if shared is not None:
            keys, others = state.position.key[:shared], other.position.key[:shared]
            if keys != others:
                return keys < others
            share, others_share = self.shares.at_fork(state.queue, other.queue)
            if share != others_share:
                return share < others_share
        return state.position < other.position

    def claims_within_guarantee(self, state: JobState, claimed: Amounts | None = None) -> bool:
        """As `Guarantees.asks_within`, for the claim of a job: an elastic gang may claim less."""
        amounts = self._projected.claimed(state.job) if claimed is None else claimed
        if amounts is None or amounts == self.amounts.requested(state):
            return self.guarantees.asks_within(state)
        return self.guarantees.covers(state, amounts)


def _larger(amounts: Amounts, others: Amounts) -> Amounts:
    """Return the larger amount of each resource."""
    keys = dict.fromkeys((*amounts, *others))
    return {key: max(amounts.get(key, 0.0), others.get(key, 0.0)) for key in keys}


def rank_of(state: JobState) -> tuple[float, ...]:
    """Return the rank of a job in its queue's guarantee: by priority, then arrival."""
    return (-state.priority, state.seq)
