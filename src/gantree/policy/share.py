"""Fair share: the dominant share of each node of the queue tree over its weight. The smallest goes first.

The share of a node is its dominant one: the largest, over the resources of the cluster, of what the jobs under it use
over what there is (dominant resource fairness, Ghodsi et al., NSDI 2011), divided by its weight. GPUs count by the
weights of their models on both sides, so an hour of a GPU that is worth three is worth three.

Without a half-life, use is what is held now. With one, it is usage projected one half-life ahead (as KEP-4136 of
kubernetes-sigs/kueue, admission fair sharing, mixes the past with the present each interval): U' = U/2 + A/2, where A
is what is held now and U is what was held, each moment weighted by 2^-(age / half-life) and normalised so that who
always held x has U = x:

    dU/dt = (A - U) ln 2 / half-life;     over an interval of constant A:   U <- A + (U - A) 2^-(interval / half-life)

Of the past some may count otherwise than held: GPU-seconds that were idle, or of work that others made be done again
(`UseWeights`). They become known later, so they are corrections of U (`correct`): x GPU-seconds at a weight w in place
of 1 change U by (w - 1) x ln 2 / half-life, decayed since they were held. The present is what is held.

U is brought up to date when what is held changes, and when it is asked for; so time alone costs nothing. The present
has half the say because a queue that starts ten jobs at one moment has not used anything yet.

A weight of 0 is a share without bounds, whatever is used: such a queue goes after all that have a weight.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from math import exp2, inf, log

from gantree.policy.amounts import MODEL, TICKS, weighted_gpus
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.rules import Amounts


@dataclass(frozen=True, slots=True)
class UseSnapshot:
    """Of one node and resource what was used, to be gone on with by other shares: ticks, as they were at a moment.

    path names the node from the top: ("cohort", name), ("queue", path) or ("user", name) each; () is the cluster.
    """

    path: tuple[tuple[str, str], ...]
    resource: str
    held: int
    decayed: float
    at_s: float


@dataclass(slots=True)
class _Use:
    """Of one node and resource: ticks held now; ticks of decayed use as they were at a moment."""

    held: int = 0
    decayed: float = 0.0
    at_s: float = 0.0


class Shares:
    """Shares of the nodes of a tree. Times are as `Event.observed_at`, in seconds, and never go back.

    half_life_s is of what was used; None: only what is held counts.
    """

    def __init__(
        self,
        tree: QueueTree,
        capacity: Amounts,
        gpu_weights: Mapping[str, float],
        half_life_s: float | None,
    ) -> None:
        self.tree = tree
        self._gpu_weights = gpu_weights
        self.half_life_s = half_life_s
        self._uses: list[dict[str, _Use]] = []
        self._holdings: dict[str, tuple[int, Amounts]] = {}
        self._weighted_last: tuple[Amounts, Mapping[str, int]] = ({}, {})
        self._settled: dict[int, float] = {}
        self.capacity = capacity

    @property
    def capacity(self) -> Amounts:
        """What the cluster has; may be set when it changed."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: Amounts) -> None:
        self._capacity = capacity
        self._ticks_of_capacity = self._weighted(capacity)
        self._settled.clear()

    def take(self, node: int, owner: str, amounts: Amounts, at_s: float) -> None:
        """Count a job of a node that holds these amounts from a moment on. It must not be counted yet."""
        assert owner not in self._holdings, f"{owner} is counted already"
        self._holdings[owner] = (node, amounts)
        self._change(node, self._weighted(amounts), 1, at_s)

    def give_back(self, owner: str, at_s: float) -> None:
        """Count a job no more, from a moment on."""
        node, amounts = self._holdings.pop(owner)
        self._change(node, self._weighted(amounts), -1, at_s)

    def correct(
        self, node: int, gpus_of_model: Amounts, seconds: float, held_at_s: float, at_s: float
    ) -> None:
        """Let GPUs of a node count for so many seconds more in the past, fewer where negative.

        gpus_of_model: GPUs by model, "" for those of an unknown one. held_at_s: the middle of the time that they were
        held, at_s: now.
        """
        if self.half_life_s is None or not seconds:
            return
        self._reach(node)
        self._settled.clear()
        gpus = sum(self._gpu_weights.get(model, 1.0) * n for model, n in gpus_of_model.items())
        left = exp2((held_at_s - at_s) / self.half_life_s)
        change = gpus * TICKS * seconds * log(2) / self.half_life_s * left
        for each in self.tree.path(node):
            use = self._uses[each].setdefault("gpus", _Use(at_s=at_s))
            use.decayed = self._decayed(use, at_s) + change
            use.at_s = at_s

    def amounts_of(self, owner: str) -> Amounts:
        """Return what a job that is counted holds."""
        return self._holdings[owner][1]

    def kept(self) -> tuple[UseSnapshot, ...]:
        """Return all that was used, by node."""
        return tuple(
            UseSnapshot(self._named(node), resource, use.held, use.decayed, use.at_s)
            for node, uses in enumerate(self._uses)
            for resource, use in uses.items()
        )

    def go_on_from(self, kept: Iterable[UseSnapshot]) -> None:
        """Take over what was used under the same rules; the same jobs must be counted already."""
        node_of_path = {self._named(node): node for node in range(len(self.tree))}
        for one in kept:
            node = node_of_path[one.path]
            self._reach(node)
            use = self._uses[node].setdefault(one.resource, _Use())
            assert use.held == one.held, f"{one} was kept, and {use.held} are held"
            use.decayed, use.at_s = one.decayed, one.at_s
        self._settled.clear()

    def inherit_usage(
        self, kept: Iterable[UseSnapshot], half_life_s: float | None, now_s: float
    ) -> None:
        """Take over what was used under other rules: decayed by their half-life until now, by ours from now on.

        What was used below a node that is no more counts for the queue, or the user, that it was used by.
        """
        if half_life_s is None or self.half_life_s is None:
            return
        before = Shares(self.tree, {}, {}, half_life_s)
        for each in self._uses:
            for use in each.values():
                use.decayed, use.at_s = 0.0, now_s
        decayed = {
            (one.path, one.resource): before._decayed(_Use(one.held, one.decayed, one.at_s), now_s)
            for one in kept
        }
        for (path, resource), own in _without_children(decayed).items():
            for node in self.tree.path(self._node_of(path)):
                self._reach(node)
                use = self._uses[node].setdefault(resource, _Use(at_s=now_s))
                use.decayed += own
        self._settled.clear()

    def _named(self, node: int) -> tuple[tuple[str, str], ...]:
        """The path of a node in names, from the top."""
        tree = self.tree
        return tuple(
            ("cohort", tree.name[each])
            if tree.is_cohort(each)
            else ("queue", tree.queue[each])
            if (user := tree.user[each]) is None
            else ("user", user)
            for each in reversed(tree.path(node)[:-1])
        )

    def _node_of(self, path: tuple[tuple[str, str], ...]) -> int:
        """The node of the queue, or of its user, that a path ends at; the cluster's where it names none."""
        queue = next((name for kind, name in reversed(path) if kind == "queue"), None)
        if queue is None:
            return ROOT
        kind, name = path[-1]
        node = self.tree.queue_node(queue)
        return self.tree.leaf(queue, name) if kind == "user" or node is None else node

    def share(self, node: int, now_s: float) -> float:
        """Return the dominant share of a node over its weight; infinite for a weight of 0.

        Where the users of a queue do not share it, all have a share of 0: none goes before another for it.
        """
        if self.tree.user[node] is not None and not self.tree.share_users:
            return 0.0
        weight = self.tree.weight[node]
        return self.used_part(node, now_s) / weight if weight > 0 else inf

    def precedes(self, node: int, other: int) -> bool:
        """Return whether jobs of a node go before those of another for their shares alone (`at_fork`)."""
        share, other_share = self.at_fork(node, other)
        return share < other_share

    def at_fork(self, node: int, other: int) -> tuple[float, float]:
        """Return the shares that decide between jobs of two nodes, as they were when a job last started or ended.

        They are those of the first nodes from the top on that differ; a queue's own jobs have a share of 0.
        """
        pairs = zip_longest(reversed(self.tree.path(node)), reversed(self.tree.path(other)))
        here, there = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
        return self._settled_share(here), self._settled_share(there)

    def _settled_share(self, node: int | None) -> float:
        if node is None:
            return 0.0
        if node not in self._settled:
            uses = self._uses[ROOT].values() if self._uses else ()
            self._settled[node] = self.share(node, max((use.at_s for use in uses), default=0.0))
        return self._settled[node]

    def used_part(self, node: int, now_s: float) -> float:
        """Return the part of the cluster that a node is taken to use: its dominant share, whatever its weight."""
        if node >= len(self._uses):
            return 0.0
        parts = (
            self._projected(use, now_s) / self._ticks_of_capacity[resource]
            for resource, use in self._uses[node].items()
            if self._ticks_of_capacity.get(resource, 0) > 0
        )
        return max(parts, default=0.0)

    def _projected(self, use: _Use, now_s: float) -> float:
        if self.half_life_s is None:
            return use.held
        return max(0.0, self._decayed(use, now_s) + use.held) / 2

    def _decayed(self, use: _Use, now_s: float) -> float:
        assert self.half_life_s is not None
        if now_s == use.at_s:
            return use.decayed
        assert now_s > use.at_s, f"time went back from {use.at_s} to {now_s}"
        left = exp2((use.at_s - now_s) / self.half_life_s)
        return use.held + (use.decayed - use.held) * left

    def _change(self, node: int, weighted: Mapping[str, int], sign: int, at_s: float) -> None:
        self._reach(node)
        self._settled.clear()
        for each in self.tree.path(node):
            uses = self._uses[each]
            for resource, amount in weighted.items():
                use = uses.get(resource)
                if use is None:
                    use = uses[resource] = _Use(at_s=at_s)
                if self.half_life_s is not None:
                    use.decayed = self._decayed(use, at_s)
                    use.at_s = at_s
                use.held += sign * amount

    def _reach(self, node: int) -> None:
        """Make room for nodes that the tree made since."""
        while node >= len(self._uses) or len(self._uses) < len(self.tree):
            self._uses.append({})

    def _weighted(self, amounts: Amounts) -> Mapping[str, int]:
        """Amounts in ticks, GPUs as one resource. Those of the job before are often those of this one."""
        if self._weighted_last[0] is not amounts:
            self._weighted_last = (amounts, self._in_ticks(amounts))
        return self._weighted_last[1]

    def _in_ticks(self, amounts: Amounts) -> dict[str, int]:
        counted = {
            resource: amount
            for resource, amount in amounts.items()
            if resource != "gpus" and not resource.startswith(MODEL)
        }
        counted["gpus"] = weighted_gpus(amounts, self._gpu_weights)
        return {resource: round(amount * TICKS) for resource, amount in counted.items() if amount}


def _without_children(
    decayed: Mapping[tuple[tuple[tuple[str, str], ...], str], float],
) -> dict[tuple[tuple[tuple[str, str], ...], str], float]:
    """Of each node what was used in it and in none below it."""
    own = dict(decayed)
    for (path, resource), amount in decayed.items():
        if path and (path[:-1], resource) in own:
            own[path[:-1], resource] -= amount
    return {key: max(0.0, amount) for key, amount in own.items()}
