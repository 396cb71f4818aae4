"""Fragmentation: how many of the free GPUs are in domains of which nothing is taken, by tier, over time.

A gang that needs a whole domain can only use those. A domain without GPUs does not count, and neither do members that
hold no GPU and no part of one.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gantree.sim.measures.steps import Changes
from gantree.sim.record import Span
from gantree.topology.fabric.fabric import Fabric


def free_in_whole_domains(
    fabric: Fabric, spans: Iterable[Span], start_s: float
) -> dict[str, Changes]:
    """Per tier below the fabric, the changes of the number of GPUs in domains of which nothing is taken."""
    gpus_of_node = fabric.gpus_of_node.tolist()
    tallies = {
        tier: _Tally(fabric.domain_of_node[number].tolist(), gpus_of_node, start_s)
        for number, tier in enumerate(fabric.tiers)
        if number
    }
    for allocation in fabric.cluster.allocations:
        if allocation.gpus:
            for tally in tallies.values():
                tally.take(start_s, fabric.index_of_node[allocation.node])
    for at_s, taken, nodes in _in_order(fabric, spans):
        for tally in tallies.values():
            for node in nodes:
                (tally.take if taken else tally.give_back)(at_s, node)
    return {tier: tally.changes for tier, tally in tallies.items()}


def _in_order(fabric: Fabric, spans: Iterable[Span]) -> Iterator[tuple[float, bool, Sequence[int]]]:
    """(at_s, whether it is taken, one node a member that holds GPUs) for both ends of each span, by time.

    What is given back at a moment comes before what is taken then. Kept as numbers in arrays, for long traces.
    """
    moments, signs, number_of, nodes, ends = (
        array("d"),
        array("b"),
        array("q"),
        array("i"),
        array("q", [0]),
    )
    for number, span in enumerate(spans):
        nodes.extend(_nodes(fabric, span))
        ends.append(len(nodes))
        for at_s, sign in ((span.from_s, 1), (span.to_s, 0)):
            if at_s is not None:
                moments.append(at_s)
                signs.append(sign)
                number_of.append(number)
    for position in np.lexsort((signs, moments)).tolist() if moments else ():
        number = number_of[position]
        yield moments[position], bool(signs[position]), nodes[ends[number] : ends[number + 1]]


def _nodes(fabric: Fabric, span: Span) -> list[int]:
    return [
        fabric.index_of_node[member.node]
        for member in span.placement.members
        if (member.gpus or member.parts) and member.node in fabric.index_of_node
    ]


class _Tally:
    """Members that hold GPUs in each domain of one tier, and the changes of what is wholly free."""

    def __init__(
        self, domain_of_node: Sequence[int], gpus_of_node: Sequence[int], start_s: float
    ) -> None:
        self._domain_of_node = domain_of_node
        domains = max(domain_of_node) + 1
        self._gpus, self._holders = [0] * domains, [0] * domains
        for domain, gpus in zip(domain_of_node, gpus_of_node, strict=True):
            self._gpus[domain] += gpus
        self.changes = Changes([(start_s, float(sum(self._gpus)))])

    def take(self, at_s: float, node: int) -> None:
        """A member takes GPUs of a node."""
        domain = self._domain_of_node[node]
        self._holders[domain] += 1
        if self._holders[domain] == 1:
            self.changes.add(at_s, -float(self._gpus[domain]))

    def give_back(self, at_s: float, node: int) -> None:
        """A member gives its GPUs of a node back."""
        domain = self._domain_of_node[node]
        self._holders[domain] -= 1
        if self._holders[domain] == 0:
            self.changes.add(at_s, float(self._gpus[domain]))
