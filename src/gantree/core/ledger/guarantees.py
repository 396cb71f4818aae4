"""Which jobs are within the guarantee of their queue: pending ones by their requests, running ones by rank."""

from collections.abc import Container, Iterable

from gantree.core.ledger.job_amounts import JobAmounts
from gantree.core.ledger.state import JobState
from gantree.policy.amounts import MODEL
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts, Policy, QueueRule


class Guarantees:
    """Answers about the guarantees of one policy, kept until what runs changes.

    anywhere: whether any queue has a guarantee. of_models: whether any rule speaks of one GPU model.
    """

    def __init__(self, policy: Policy, quota: Quota, amounts: JobAmounts) -> None:
        self._policy, self._quota, self._amounts = policy, quota, amounts
        self.anywhere = any(rule.guarantee for rule in policy.queues)
        self.of_models = _limits_gpu_models(policy)
        self._guaranteed_queues: dict[int, bool] = {}
        self._within: dict[tuple[int, int, bool], bool] = {}
        self._within_on_any_model: dict[tuple[int, int, bool], bool] = {}

    def changed(self) -> None:
        """What runs, or the capacity, has changed."""
        self._within.clear()
        self._within_on_any_model.clear()

    def is_guaranteed(self, queue: int) -> bool:
        """Whether anything is guaranteed to a queue, or to one that it is in."""
        known = self._guaranteed_queues.get(queue)
        if known is None:
            tree = self._quota.tree
            rules = (tree.rule[node] for node in tree.path(queue))
            known = any(rule is not None and (rule.guarantee or rule.cells) for rule in rules)
            self._guaranteed_queues[queue] = known
        return known

    def is_unlimited(self, queue: int) -> bool:
        """Whether no quota and no limit can keep a job of a queue from starting."""
        if not self._policy.queues:
            return True
        tree = self._quota.tree
        rules = [tree.rule[node] for node in tree.path(queue)]
        return not self.anywhere and not any(_limits(rule) for rule in rules if rule)

    def may_reclaim(self, queue: int) -> bool:
        """Whether a queue might have lent something that it could take back."""
        return self.anywhere and self.is_guaranteed(queue)

    def holds_within(self, state: JobState) -> bool:
        """Whether a gang that holds a place is within the guarantee of its queue, by rank."""
        if state.at_home:
            return True
        return self.is_guaranteed(state.queue) and self._quota.owed(state.job)

    def exceeding(self, gangs: Iterable[JobState]) -> list[JobState]:
        """Those of some gangs that hold a place which are not within the guarantee of their queue."""
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
        """Whether what a waiting job asks for is within the guarantee of its queue, beside those that run."""
        if not self.is_guaranteed(state.queue):
            return False
        key = state.queue, state.signature, state.spec.preemptible
        known = self._within.get(key)
        if known is None:
            known = self._within[key] = self.covers(state, self._amounts.asked(state))
        return known

    def asks_within_on_any_model(self, state: JobState) -> bool:
        """As `asks_within`, whichever GPU model it gets: another queue may be guaranteed that model."""
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
        """Whether so much more would be within the guarantee of a job's queue, beside those that run."""
        if not self.is_guaranteed(state.queue):
            return False
        if not self._quota.is_guaranteed(state.queue, amounts):
            return False
        return self._quota.room(state.queue, amounts, state.spec.preemptible).takes_back

    def goes_before(
        self, state: JobState, other: JobState, asks_within: bool | None = None
    ) -> bool:
        """Whether a waiting job asks within the guarantee of its queue, and one of another queue does not.

        asks_within: whether the first is taken to; by default as it is.
        """
        if state.spec.queue == other.spec.queue:
            return False
        within = self.asks_within(state) if asks_within is None else asks_within
        return within and not self.asks_within(other)


def _limits_gpu_models(policy: Policy) -> bool:
    """Whether any quota or limit speaks of one GPU model."""
    return any(
        resource.startswith(MODEL)
        for rule in policy.queues
        for amounts in (rule.guarantee, rule.limit, rule.lend, rule.borrow, rule.user_limit)
        for resource in amounts
    )


def _limits(rule: QueueRule) -> bool:
    """Whether a rule may keep a job from starting."""
    counts = (rule.most_running, rule.most_running_per_user)
    return bool(rule.limit or rule.borrow or rule.user_limit) or counts != (None, None)
