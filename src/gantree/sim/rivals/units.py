"""A gang of units: runs of whole nodes that communicate most, such as a pipeline. Input of all algorithms here.

free_nodes[domain] is how many nodes of each domain are free; nodes of a domain are alike. A rule gives for each unit
the domain of each of its nodes, in the order of the unit's ranks.
"""

from collections.abc import Sequence

Units = list[list[int]]
"""domain of each node of each unit: units[unit][node]."""


def check_room(free_nodes: Sequence[int], units: int, nodes_each: int) -> None:
    """Raise ValueError where so many units do not fit at all."""
    if sum(free_nodes) < units * nodes_each:
        raise ValueError(
            f"{units} units of {nodes_each} nodes, but only {sum(free_nodes)} are free"
        )


def take(left: list[int], domains: Sequence[int], nodes: int) -> list[int]:
    """Take nodes from domains, one domain after the other as far as each goes; `left` is what they have left."""
    taken: list[int] = []
    for domain in domains:
        count = min(left[domain], nodes - len(taken))
        left[domain] -= count
        taken += [domain] * count
    return taken
