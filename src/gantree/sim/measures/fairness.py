"""Fairness between queues: the weighted max-min fair share of each, and Jain's index of what they got against it.

Jain's index of n values x is (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything. R. Jain, D. Chiu,
W. Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer Systems",
DEC-TR-301, 1984. As that report proposes for users with unequal rights, x is what a queue holds over what would be
optimal for it; optimal is here the weighted max-min fair share of its demand, guarantees first.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from gantree.policy.rules import QueueRule

GPUS = "gpus"
TINY = 1e-9


def jain_index(values: Sequence[float]) -> float | None:
    """Jain's index of values of 0 or more; None of nothing, and where all are 0."""
    squares = fsum(value * value for value in values)
    if not squares:
        return None
    return fsum(values) ** 2 / (len(values) * squares)


def fair_shares(
    capacity: float,
    demand_of: Mapping[str, float],
    weight_of: Mapping[str, float],
    guarantee_of: Mapping[str, float],
) -> dict[str, float]:
    """The share of each queue: its guarantee up to its demand, and the rest by weight up to its demand.

    Where the guarantees do not fit, they shrink alike. Nobody gets more than its demand; all is given away or all
    demand is met.
    """
    owed = {queue: min(demand, guarantee_of.get(queue, 0.0)) for queue, demand in demand_of.items()}
    total = fsum(owed.values())
    if total > capacity:
        return {queue: share * capacity / total for queue, share in owed.items()}
    return _filled(owed, capacity - total, demand_of, weight_of)


def _filled(
    shares: dict[str, float],
    rest: float,
    demand_of: Mapping[str, float],
    weight_of: Mapping[str, float],
) -> dict[str, float]:
    """Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): shares rise by weight until met."""
    open_queues = [queue for queue, share in shares.items() if demand_of[queue] - share > TINY]
    while open_queues and rest > TINY:
        weights = fsum(weight_of[queue] for queue in open_queues)
        until_met = min(
            (demand_of[queue] - shares[queue]) / weight_of[queue] for queue in open_queues
        )
        level = min(rest / weights, until_met)
        for queue in open_queues:
            shares[queue] += level * weight_of[queue]
        rest -= level * weights
        open_queues = [queue for queue in open_queues if demand_of[queue] - shares[queue] > TINY]
    return shares


def weights_of(queues: Iterable[str], rules: Sequence[QueueRule]) -> dict[str, float]:
    """What each queue weighs in the whole cluster: along its path, its weight over those of it and its siblings.

    Siblings are those of the policy and those that have jobs. A queue without a rule weighs 1, one of weight 0 almost
    nothing.
    """
    rule_of = {rule.path: rule for rule in rules}
    wanted = list(dict.fromkeys(queues))
    children: dict[str, dict[str, None]] = {}
    for path in [*rule_of, *wanted]:
        names = path.split("/")
        for depth in range(len(names)):
            parent = "/".join(names[:depth])
            children.setdefault(parent, {})["/".join(names[: depth + 1])] = None

    def weight(path: str) -> float:
        return max(rule_of[path].weight, TINY) if path in rule_of else 1.0

    def share(path: str) -> float:
        parent = path.rpartition("/")[0]
        beside = fsum(weight(sibling) for sibling in children[parent])
        return weight(path) / beside * (share(parent) if parent else 1.0)

    return {queue: share(queue) for queue in wanted}


def guarantees_of(queues: Iterable[str], rules: Sequence[QueueRule]) -> dict[str, float]:
    """GPUs that each queue is guaranteed by itself."""
    rule_of = {rule.path: rule for rule in rules}
    return {
        queue: float(rule_of[queue].guarantee.get(GPUS, 0.0)) if queue in rule_of else 0.0
        for queue in queues
    }
