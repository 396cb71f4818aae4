"""Which jobs are within the guarantee of their queue: pending ones by their requests, running ones by rank."""

from collections.abc import Container, Iterable

from gantree.core.ledger.job_amounts import JobAmounts
from gantree.core.ledger.state import JobState
from gantree.policy.amounts import MODEL
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts, Policy, QueueRule


class Guarantees:
    """Guarantees of one policy; answers are cached until the running gangs change.

    anywhere: whether any queue has a guarantee. of_models: whether any rule names a GPU model.
    """

    def __init__(self, policy: Policy, quota: Quota, amounts: JobAmounts) -> None:
        self._policy, self._quota, self._amounts = policy, quota, amounts
        self.anywhere = any(rule.guarantee for rule in policy.queues)
        self.of_models = _limits_gpu_models(policy)
        self._guaranteed_queues: dict[int, bool] = {}
        self._within: dict[tuple[int, int, bool], bool] = {}
        self._within_on_any_model: dict[tuple[int, int, bool], bool] = {}

    def changed(self) -> None:
        """Drop cached answers after a change of running gangs or capacity."""
        self._within.clear()
        self._within_on_any_model.clear()

    def is_guaranteed(self, queue: int) -> bool:
        """Return whether a queue, or one above it, has a guarantee."""
        known = self._guaranteed_queues.get(queue)
        if known is None:
            tree = self._quota.tree
            rules = (tree.rule[node] for node in tree.path(queue))
            known = any(rule is not None and (rule.guarantee or rule.cells) for rule in rules)
            self._guaranteed_queues[queue] = known
        return known

    def is_unlimited(self, queue: int) -> bool:
        """Return whether no quota and no limit applies to jobs of a queue."""
        if not self._policy.queues:
            return True
        tree = self._quota.tree
        rules = [tree.rule[node] for node in tree.path(queue)]
        return not self.anywhere and not any(_limits(rule) for rule in rules if rule)

    def may_reclaim(self, queue: int) -> bool:
        """Return whether a queue may have lent something that it can reclaim."""
        return self.anywhere and self.is_guaranteed(queue)

    def holds_within(self, state: JobState) -> bool:
        """Return whether a placed gang is within the guarantee of its queue, by rank."""
        if state.at_home:
            return True
        return self.is_guaranteed(state.queue) and self._quota.owed(state.job)

    def exceeding(self, gangs: Iterable[JobState]) -> list[JobState]:
        """Return those placed gangs that are not within the guarantee of their queue."""
        borrowers_of_queue: dict[int, Container[str] | None] = {}
        exceeding = []
        for state in gangs:
            queue = state.queue
            if queue not in borrowers_of_queue:
                is_guaranteed = self.is_guaranteed(queue)
                borrowers_of_queue[queue] = self._quota.borrow_in(queue) if is_guaranteed else None
            borrowers = borrowers_of_queue[queue]
            if not state.at_home and (borrowers is None or state.job in borrowers):
                exceeding.append(state)
        return exceeding

    def asks_within(self, state: JobState) -> bool:
        """Return whether the request of a pending job is within the guarantee of its queue, beside running jobs."""
        if not self.is_guaranteed(state.queue):
            return False
        key = state.queue, state.signature, state.spec.preemptible
        known = self._within.get(key)
        if known is None:
            known = self._within[key] = self.covers(state, self._amounts.requested(state))
        return known

    def asks_within_on_any_model(self, state: JobState) -> bool:
        """As `asks_within`, on any GPU model that it may get: other queues may have guarantees of that model."""
        if not self.of_models or not self.asks_within(state):
            return self.asks_within(state)
        key = state.queue, state.signature, state.spec.preemptible
        known = self._within_on_any_model.get(key)
        if known is None:
            known = self._within_on_any_model[key] = all(
                self.covers(state, amounts) for amounts in self._amounts.on_each_model(state)
            )
        return known

    def covers(self, state: JobState, amounts: Amounts) -> bool:
        """Return whether these further amounts are within the guarantee of a job's queue, beside running jobs."""
        if not self.is_guaranteed(state.queue):
            return False
        if not self._quota.is_guaranteed(state.queue, amounts):
            return False
        return self._quota.room(state.queue, amounts, state.spec.preemptible).may_reclaim

    def goes_before(
        self, state: JobState, other: JobState, asks_within: bool | None = None
    ) -> bool:
        """Return whether a pending job is within the guarantee of its queue, and one of another queue is not.

        asks_within: the assumed answer for the first job; by default it is computed.
        """
        if state.spec.queue == other.spec.queue:
            return False
        within = self.asks_within(state) if asks_within is None else asks_within
        return within and not self.asks_within(other)


def _limits_gpu_models(policy: Policy) -> bool:
    """Return whether a quota or limit names a GPU model."""
    return any(
        resource.startswith(MODEL)
        for rule in policy.queues
        for amounts in (rule.guarantee, rule.limit, rule.lend, rule.borrow, rule.user_limit)
        for resource in amounts
    )


def _limits(rule: QueueRule) -> bool:
    """Return whether a rule may refuse a job."""
    counts = (rule.most_running, rule.most_running_per_user)
    may_close = any(budget.at_limit != "warn" for budget in rule.budgets)
    limited = rule.limit or rule.borrow or rule.user_limit or may_close
    return bool(limited) or counts != (None, None)
