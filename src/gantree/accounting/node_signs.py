"""What each node showed over weeks: faults, time out of use, links that carried less, slow ranks. Repeat offenders.

Each sign alone is small, and the node was well again after it; a node that shows some again and again is a *lemon*
(Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv 2410.21680). What
counts is on how many different days it showed any: so a fault that comes and goes for an hour, or one that all monitors
report, counts once.

What follows from being out for a fault is no sign: a repair, and that a lemon, or a node in repair, is not usable for a
while. Else a lemon that is rebooted, or checked, would stay one for it.
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
LEMON = "lemon"
"""The source of the report that takes lemons out."""
LEMON_DAYS_OF = 28
"""The days up to now of which those count. No report of a lemon holds for longer without a change."""
FOLLOWING = (LEMON, "repair")
"""Sources of reports that follow from earlier signs."""


@dataclass(slots=True)
class NodeSigns:
    """What a node showed: how often by kind, on which days since 1970, and when last, in seconds since 1970.

    overruled_days: those that were known when an operator last overruled that it is a lemon; empty where none did.
    """

    node: str
    count_of_kind: Counter[str] = field(default_factory=Counter)
    days: set[int] = field(default_factory=set)
    last_at: float = 0.0
    overruled_days: frozenset[int] = frozenset()

    @property
    def is_lemon(self) -> bool:
        """Whether it showed signs on LEMON_DAYS days or more."""
        return len(self.days) >= LEMON_DAYS

    @property
    def has_grown(self) -> bool:
        """Whether it showed signs on a day that no operator has overruled."""
        return not self.days <= self.overruled_days


class NodeSignCounter:
    """Counts signs of facts in their order: a sign counts when it comes, not while it lasts.

    Of facts before since, in seconds since 1970, only what still holds then counts for something.
    """

    def __init__(self, since: float = 0.0) -> None:
        self._since = since
        self._signs_of_node: dict[str, NodeSigns] = {}
        self._shown: dict[tuple[Any, ...], str] = {}
        self._out_for: set[tuple[str, str]] = set()

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
            case NodeHealthNoted() if fact.source in FOLLOWING:
                self._follow(fact)
            case NodeHealthNoted():
                self._note(fact.node, FAULT, fact.at, (fact.node, fact.source), fact.reason)
            case NodeMarked():
                shown = "" if fact.usable else "out"
                follows = any((fact.node, source) in self._out_for for source in FOLLOWING)
                self._note(fact.node, OUT, fact.at, (fact.node,), shown, counts=not follows)
            case LinkHealthNoted() if node_of_link(fact.link):
                shown, link = "less" if fact.health < 1 else "", (fact.link, fact.source)
                self._note(node_of_link(fact.link), LINK, fact.at, link, shown)
            case RankSlownessNoted():
                shown = "slow" if fact.slowdown > 1 else ""
                rank = (fact.job, fact.attempt, fact.rank)
                self._note(fact.node, SLOW, fact.at, rank, shown)

    def _follow(self, fact: NodeHealthNoted) -> None:
        """Keep who is out for what was counted already, and what an operator overruled."""
        held = (fact.node, fact.source)
        if fact.reason and not fact.kept and not fact.forgiven:
            self._out_for.add(held)
        else:
            self._out_for.discard(held)
        signs = self._signs_of_node.get(fact.node)
        if signs is not None and fact.source == LEMON:
            signs.overruled_days = frozenset(signs.days if fact.forgiven else ())

    def _note(
        self,
        node: str,
        kind: str,
        at: float,
        key: tuple[Any, ...],
        shown: str,
        *,
        counts: bool = True,
    ) -> None:
        """Count what is shown, unless it was shown before."""
        before = self._shown.get((kind, *key), "")
        self._shown[kind, *key] = shown
        if counts and at >= self._since and shown and shown != before:
            signs = self._signs_of_node.setdefault(node, NodeSigns(node))
            signs.count_of_kind[kind] += 1
            signs.days.add(int(at // DAY_S))
            signs.last_at = max(signs.last_at, at)


def node_of_link(link: LinkId) -> str:
    """The node of a NIC or of a GPU's own link; "" for the links of a domain."""
    of_node = link.nic or link.gpu
    return of_node[0] if of_node else ""
