"""What each node showed over weeks: faults, time out of use, links that carried less, slow ranks. Repeat offenders.

Each sign alone is small, and the node was well again after it; a node that shows some again and again is a *lemon*
(Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv 2410.21680). What
counts is on how many different days it showed any: so a fault that comes and goes for an hour, or one that all monitors
report, counts once.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gantree.model.cluster import LinkId
from gantree.model.facts import Fact, RankSlownessNoted
from gantree.model.site_facts import LinkHealthNoted, NodeHealthNoted, NodeMarked

DAY_S = 86_400.0
LEMON_DAYS = 4
"""A node that showed signs on so many days is a lemon."""
FAULT, OUT, LINK, SLOW = "faults", "out", "links", "slow_ranks"
KINDS = (FAULT, OUT, LINK, SLOW)


@dataclass(slots=True)
class NodeSigns:
    """What a node showed: how often by kind, on which days since 1970, and when last, in seconds since 1970."""

    node: str
    count_of_kind: Counter[str] = field(default_factory=Counter)
    days: set[int] = field(default_factory=set)
    last_at: float = 0.0

    @property
    def is_lemon(self) -> bool:
        """Whether it showed signs on LEMON_DAYS days or more."""
        return len(self.days) >= LEMON_DAYS


class NodeSignCounter:
    """Counts signs of facts in their order: a sign counts when it comes, not while it lasts."""

    def __init__(self) -> None:
        self._signs_of_node: dict[str, NodeSigns] = {}
        self._shown: dict[tuple[Any, ...], str] = {}

    def count(self, facts: Iterable[Fact]) -> list[NodeSigns]:
        """Return the nodes that showed any sign, those of the most days first."""
        for fact in facts:
            self._add(fact)
        return sorted(
            self._signs_of_node.values(),
            key=lambda each: (-len(each.days), -each.last_at, each.node),
        )

    def _add(self, fact: Fact) -> None:
        match fact:
            case NodeHealthNoted():
                self._note(fact.node, FAULT, fact.at, (fact.node, fact.source), fact.reason)
            case NodeMarked():
                self._note(fact.node, OUT, fact.at, (fact.node,), "" if fact.usable else "out")
            case LinkHealthNoted() if node_of_link(fact.link):
                shown, link = "less" if fact.health < 1 else "", (fact.link, fact.source)
                self._note(node_of_link(fact.link), LINK, fact.at, link, shown)
            case RankSlownessNoted():
                shown = "slow" if fact.slowdown > 1 else ""
                rank = (fact.job, fact.attempt, fact.rank)
                self._note(fact.node, SLOW, fact.at, rank, shown)

    def _note(self, node: str, kind: str, at: float, key: tuple[Any, ...], shown: str) -> None:
        """Count what is shown, unless it was shown before."""
        before = self._shown.get((kind, *key), "")
        self._shown[kind, *key] = shown
        if shown and shown != before:
            signs = self._signs_of_node.setdefault(node, NodeSigns(node))
            signs.count_of_kind[kind] += 1
            signs.days.add(int(at // DAY_S))
            signs.last_at = max(signs.last_at, at)


def node_of_link(link: LinkId) -> str:
    """The node of a NIC or of a GPU's own link; "" for the links of a domain."""
    of_node = link.nic or link.gpu
    return of_node[0] if of_node else ""
