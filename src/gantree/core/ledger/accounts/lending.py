"""Lending by use in the ledger: what queues with `LendIdle` have used of late, and what they keep of their guarantees.

    A queue keeps the most that its jobs have used at any moment of the last `after_s` seconds, and at least `keep`.
    The rest of its guarantee it lends, beside what it lends at any time.

A gang uses what it holds, unless its GPUs do not compute (`GangIdlenessNoted`). What an idle gang holds is not free
for others; but once it is reclaimed, it is lent at once.

What is kept changes by a fact (`GuaranteeKept`), never by time alone, so an admission depends on the ledger alone. The
fact is decided in `core.lifecycle.lending`. The first one of a queue begins its window as if it had used its whole
guarantee until then, so nothing is lent in this way before a whole window has passed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gantree.model.facts import GuaranteeKept
from gantree.policy.amounts import TICKS, ticks
from gantree.policy.queues import QueueTree
from gantree.policy.quota.peak_use import PeakUse
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts, LendIdle, QueueRule


@dataclass(frozen=True, slots=True)
class PeakSnapshot:
    """Of one queue and resource: the use now and the levels of its window, in ticks, to be gone on with."""

    queue: str
    resource: str
    level: int
    past: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class LendingSnapshot:
    """What does not follow from the policy: the use of late, and the last fact of each queue."""

    peaks: tuple[PeakSnapshot, ...] = ()
    kept: tuple[GuaranteeKept, ...] = ()
    idle: tuple[str, ...] = ()


NO_LENDING = LendingSnapshot()


class Lending:
    """The queues of one policy that lend by use.

    kept is the last fact of each queue whose window has begun, idle the placed gangs that are idle, of all queues.
    """

    def __init__(self, tree: QueueTree, quotas: Iterable[Quota]) -> None:
        self._rule_of_node = {
            node: rule.lend_idle
            for node, rule in enumerate(tree.rule)
            if rule is not None and rule.lend_idle is not None
        }
        self._tree = tree
        self._quotas = tuple(quotas)
        self.peaks: dict[str, dict[str, PeakUse]] = {}
        self.kept: dict[str, GuaranteeKept] = {}
        self.idle: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._rule_of_node)

    def rules(self) -> Iterator[tuple[str, LendIdle]]:
        """Yield the queues that lend by use, with their rules."""
        for node, rule in self._rule_of_node.items():
            yield self._tree.queue[node], rule

    def note_use(self, path: Iterable[int], at: float) -> None:
        """Note what the queues of a path use, after a change at a moment in seconds."""
        if not self._rule_of_node:
            return
        for node in path:
            for resource, peak in self.peaks.get(self._tree.queue[node], {}).items():
                if node in self._rule_of_node:
                    peak.note(self._used(node, resource), at)

    def note_idle(self, job: str, path: Iterable[int], at: float, *, is_idle: bool) -> None:
        """Note that a placed gang is idle from a moment on, or is not any more."""
        if is_idle == (job in self.idle):
            return
        if is_idle:
            self.idle[job] = None
        else:
            del self.idle[job]
        self.note_use(path, at)

    def keeps(self, queue: str, now: float) -> Amounts:
        """Return what a queue keeps at a moment by its rule, of each resource that it is guaranteed."""
        node = self._node(queue)
        rule, found = self._rule_of_node[node], {}
        for resource, guaranteed in self._guaranteed(node).items():
            peak = self.peaks.get(queue, {}).get(resource)
            used = guaranteed if peak is None else peak.most(now) / TICKS
            found[resource] = min(guaranteed, max(used, rule.keep.get(resource, 0.0)))
        return found

    def next_moment(self, now: float, queue: str | None = None) -> float | None:
        """Return when a queue (None: any) keeps less next if it uses no more, in seconds; None if none does."""
        moments = (
            moment
            for path in (self.peaks if queue is None else [queue])
            for resource, amount in self.keeps(path, now).items()
            if (moment := self._falls_at(path, resource, amount, now)) is not None
        )
        return min(moments, default=None)

    def _falls_at(self, queue: str, resource: str, amount: float, now: float) -> float | None:
        """Return when a queue keeps less than an amount of a resource if it uses no more."""
        peak = self.peaks.get(queue, {}).get(resource)
        if peak is None or amount <= self._rule_of_node[self._node(queue)].keep.get(resource, 0.0):
            return None
        return peak.falls_below(ticks(amount), now)

    def note(self, fact: GuaranteeKept) -> None:
        """Apply a fact; one of a queue that no longer lends by use changes nothing."""
        node = self._tree.queue_node(fact.queue)
        if node is None or node not in self._rule_of_node:
            return
        if fact.begins:
            self.peaks[fact.queue] = dict(self._begun(node, fact))
        self._keep(fact)

    def _begun(self, node: int, fact: GuaranteeKept) -> Iterator[tuple[str, PeakUse]]:
        """Windows that begin: until now the whole guarantee was used."""
        after_s = self._rule_of_node[node].after_s
        for resource, guaranteed in self._guaranteed(node).items():
            peak = PeakUse(after_s, self._used(node, resource))
            if ticks(guaranteed) > peak.level:
                peak.leave(ticks(guaranteed), fact.at)
            yield resource, peak

    def _keep(self, fact: GuaranteeKept) -> None:
        self.kept[fact.queue] = fact
        node = self._node(fact.queue)
        most = {resource: ticks(amount) for resource, amount in fact.keeps}
        for quota in self._quotas:
            quota.keep(node, most)

    def snapshot(self) -> LendingSnapshot:
        """Return what to go on from."""
        peaks = tuple(
            PeakSnapshot(queue, resource, peak.level, tuple(peak.past))
            for queue, of_queue in self.peaks.items()
            for resource, peak in of_queue.items()
        )
        return LendingSnapshot(peaks, tuple(self.kept.values()), tuple(self.idle))

    def go_on_from(self, snapshot: LendingSnapshot, queues: Iterable[QueueRule]) -> None:
        """Take over the use of late of queues whose rule and guaranteed resources are as they were; the gangs that are
        placed are counted already.

        queues: as they were. The windows of all others begin anew.
        """
        same = self._as_before(snapshot, queues)
        for one in snapshot.peaks:
            if one.queue in same:
                after_s = self._rule_of_node[self._node(one.queue)].after_s
                peak = PeakUse(after_s, one.level, list(one.past))
                self.peaks.setdefault(one.queue, {})[one.resource] = peak
        self.idle = dict.fromkeys(snapshot.idle)
        for fact in snapshot.kept:
            if fact.queue in same:
                self._keep(fact)

    def _as_before(self, snapshot: LendingSnapshot, queues: Iterable[QueueRule]) -> set[str]:
        """The queues that lend by the rule that they had, and of the same resources."""
        rules = {rule.path: rule.lend_idle for rule in queues}
        watched: dict[str, set[str]] = {}
        for one in snapshot.peaks:
            watched.setdefault(one.queue, set()).add(one.resource)
        return {
            queue
            for queue, rule in self.rules()
            if rules.get(queue) == rule
            and watched.get(queue, set()) == self._guaranteed(self._node(queue)).keys()
        }

    def _used(self, node: int, resource: str) -> int:
        quota = self._quotas[0]
        idle = sum(quota.ticks_under(node, job, resource) for job in self.idle)
        return quota.used_ticks(node, resource) - idle

    def _guaranteed(self, node: int) -> Amounts:
        guaranteed = self._quotas[0].usage.guaranteed(node)
        return {resource: amount for resource, amount in guaranteed.items() if amount > 0}

    def _node(self, queue: str) -> int:
        node = self._tree.queue_node(queue)
        assert node is not None, f"the policy has no queue {queue}"
        return node
