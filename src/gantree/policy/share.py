"""Fair share: how much of the cluster each node of the tree has had, beside what it is due. Smaller goes first.

The share of a node is its dominant one: the largest, over the resources of the cluster, of what the jobs under it use
over what there is (dominant resource fairness, Ghodsi et al., NSDI 2011), divided by its weight. GPUs count by the
weights of their models on both sides, so an hour of a GPU that is worth three is worth three.

Without a half-life, use is what is held now. With one, it is usage projected one half-life ahead (as KEP-4136 of
kubernetes-sigs/kueue, admission fair sharing, mixes the past with the present each interval): U' = U/2 + A/2, where A
is what is held now and U is what was held, each moment weighted by 2^-(age / half-life) and normalised so that who
always held x has U = x:

    dU/dt = (A - U) ln 2 / half-life;     over an interval of constant A:   U <- A + (U - A) 2^-(interval / half-life)

U is brought up to date when what is held changes, and when it is asked for; so time alone costs nothing. The present
has half the say because a queue that starts ten jobs at one moment has not used anything yet.

A weight of 0 is a share without bounds, whatever is used: such a queue goes after all that have a weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp2, inf

from gantree.policy.amounts import MODEL, TICKS, weighted_gpus
from gantree.policy.queues import QueueTree
from gantree.policy.rules import Amounts


@dataclass(slots=True)
class _Use:
    """Of one node and resource: ticks held now; ticks of decayed use as they were at a moment."""

    held: int = 0
    decayed: float = 0.0
    at_s: float = 0.0


class Shares:
    """Shares of the nodes of a tree. Times are as `Event.observed_at`, in seconds, and never go back."""

    def __init__(
        self,
        tree: QueueTree,
        capacity: Amounts,
        gpu_weights: Mapping[str, float],
        half_life_s: float | None,
    ) -> None:
        self.tree = tree
        self._gpu_weights = gpu_weights
        self._half_life_s = half_life_s
        self._uses: list[dict[str, _Use]] = []
        self._holdings: dict[str, tuple[int, dict[str, int]]] = {}
        self.capacity = capacity

    @property
    def capacity(self) -> Amounts:
        """What the cluster has; may be set when it changed."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: Amounts) -> None:
        self._capacity = capacity
        self._ticks_of_capacity = self._weighted(capacity)

    def take(self, node: int, owner: str, amounts: Amounts, at_s: float) -> None:
        """Count a job of a node that holds these amounts from a moment on. It must not be counted yet."""
        assert owner not in self._holdings, f"{owner} is counted already"
        weighted = self._weighted(amounts)
        self._holdings[owner] = (node, weighted)
        self._change(node, weighted, 1, at_s)

    def give_back(self, owner: str, at_s: float) -> None:
        """Count a job no more, from a moment on."""
        node, weighted = self._holdings.pop(owner)
        self._change(node, weighted, -1, at_s)

    def share(self, node: int, now_s: float) -> float:
        """Return the dominant share of a node over its weight; infinite for a weight of 0.

        Where the users of a queue do not share it, all have a share of 0: none goes before another for it.
        """
        if self.tree.user[node] is not None and not self.tree.share_users:
            return 0.0
        weight = self.tree.weight[node]
        return self.used_part(node, now_s) / weight if weight > 0 else inf

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
        if self._half_life_s is None:
            return use.held
        return (self._decayed(use, now_s) + use.held) / 2

    def _decayed(self, use: _Use, now_s: float) -> float:
        assert self._half_life_s is not None
        assert now_s >= use.at_s, f"time went back from {use.at_s} to {now_s}"
        left = exp2((use.at_s - now_s) / self._half_life_s)
        return use.held + (use.decayed - use.held) * left

    def _change(self, node: int, weighted: Mapping[str, int], sign: int, at_s: float) -> None:
        while len(self._uses) < len(self.tree):
            self._uses.append({})
        for each in self.tree.path(node):
            uses = self._uses[each]
            for resource, amount in weighted.items():
                use = uses.get(resource)
                if use is None:
                    use = uses[resource] = _Use(at_s=at_s)
                if self._half_life_s is not None:
                    use.decayed = self._decayed(use, at_s)
                    use.at_s = at_s
                use.held += sign * amount

    def _weighted(self, amounts: Amounts) -> dict[str, int]:
        """Amounts in ticks, GPUs as one resource."""
        counted = {
            resource: amount
            for resource, amount in amounts.items()
            if resource != "gpus" and not resource.startswith(MODEL)
        }
        counted["gpus"] = weighted_gpus(amounts, self._gpu_weights)
        return {resource: round(amount * TICKS) for resource, amount in counted.items() if amount}
