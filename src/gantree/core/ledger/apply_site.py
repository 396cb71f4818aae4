"""What facts about the cluster and its nodes do to a ledger: which fabric there is, and which nodes may be used.

What the cluster file says is kept as it is (`Site.described`); what operators say of single nodes is kept beside it and
laid over it again whenever the file is read anew. Facts about jobs are in `core.ledger.ledger`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gantree.core.ledger.apply_adopted import count_others
from gantree.model.cluster import Cluster, Node
from gantree.model.facts import (
    FabricDefined,
    NodeCordoned,
    NodeHealthNoted,
    NodeLabelled,
    NodeMarked,
    NodeUncordoned,
)
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.conditions import sound_nodes
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger

Labels = dict[str, str | None]
"""Label values by key as an operator has them; None: the node has no label of that key."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """Why nothing new starts on a node, and since when. drain, deadline_at: as `facts.NodeCordoned` says.

    unwell: what is told to be wrong with the node, "" for nothing: gangs that can save leave it if they have a place.
    """

    reason: str
    since: float
    drain: bool = False
    deadline_at: float | None = None
    unwell: str = ""


@dataclass(frozen=True, slots=True)
class Illness:
    """What one source says is wrong with a node, since when, and whether an operator uses it all the same."""

    reason: str
    since: float
    forgiven: bool = False


@dataclass(slots=True)
class Site:
    """The cluster as its file describes it, and what operators say of its nodes instead.

    cordoned is what follows from both: from asked, the cordons that somebody asked for, and from unwell, what is wrong
    with nodes by who says so.
    labels are those alone in which an operator differs from the file. version grows with every word of an operator.
    others are who holds something that gantree did not start, with each what it is said to hold, one member a node;
    short those of them of whom less is counted, for the rest was not free.
    """

    described: Cluster | None = None
    cordoned: dict[str, Cordon] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)
    version: int = 0
    others: dict[str, tuple[MemberPlacement, ...]] = field(default_factory=dict)
    short: dict[str, None] = field(default_factory=dict)
    asked: dict[str, Cordon] = field(default_factory=dict)
    unwell: dict[str, dict[str, Illness]] = field(default_factory=dict)

    def with_labels(self) -> Cluster:
        """The cluster as it is now."""
        assert self.described is not None, "no cluster was observed yet"
        nodes = tuple(
            labelled(node, self.labels.get(node.name, {})) for node in self.described.nodes
        )
        return replace(self.described, nodes=nodes) if self.labels else self.described


def labelled(node: Node, labels: Labels) -> Node:
    """A node with these labels instead of its own of these keys."""
    if not labels:
        return node
    now = {**dict(node.labels), **labels}
    return replace(
        node, labels=tuple((key, value) for key, value in now.items() if value is not None)
    )


def fabric_defined(ledger: Ledger, fact: FabricDefined) -> None:
    """The file was read: operators' words stand where it differs from them, and what runs is carried over by name."""
    site = ledger.site
    site.described = fact.cluster
    file_labels = {node.name: dict(node.labels) for node in fact.cluster.nodes}
    for node, labels in list(site.labels.items()):
        _forget_the_same(site, node, labels, file_labels.get(node))
    for node in [node for node in site.unwell if node not in file_labels]:
        _forget_illness(site, node)
    occupancy = Occupancy(Fabric.build(site.with_labels()))
    for node in (*ledger.unusable, *site.cordoned):
        if node in occupancy.fabric.index_of_node:
            occupancy.mark(node, usable=False)
    for state in ledger.holding.values():
        assert state.placement is not None
        occupancy.take(state.job, state.placement.members)
    ledger.occupancy = occupancy
    count_others(ledger, site.others)
    ledger.accounts.see(occupancy.fabric)
    ledger.hold()
    ledger.more_room()


def _forget_illness(site: Site, node: str) -> None:
    """A node that is gone may come back as another machine: who watches it then says how it is."""
    del site.unwell[node]
    if node in site.asked:
        site.cordoned[node] = site.asked[node]
    else:
        site.cordoned.pop(node, None)


def _forget_the_same(site: Site, node: str, labels: Labels, of_file: dict[str, str] | None) -> None:
    """Forget what the file says by now as well; of a node that it does not have everything is kept."""
    if of_file is None:
        return
    left = {key: value for key, value in labels.items() if of_file.get(key) != value}
    if left:
        site.labels[node] = left
    else:
        del site.labels[node]


def node_marked(ledger: Ledger, fact: NodeMarked) -> None:
    """A node was lost, or is back."""
    if fact.usable:
        ledger.unusable.pop(fact.node, None)
    else:
        ledger.unusable[fact.node] = fact.reason
    _open_or_close(ledger, fact.node)


def node_cordoned(ledger: Ledger, fact: NodeCordoned) -> None:
    """Nothing new starts on a node; what was said of it before is replaced, but not since when it holds."""
    before = ledger.site.asked.get(fact.node)
    since = fact.at if before is None else before.since
    ledger.site.asked[fact.node] = Cordon(fact.reason, since, fact.drain, fact.deadline_at)
    _cordon_as_said(ledger, fact.node)


def node_uncordoned(ledger: Ledger, fact: NodeUncordoned) -> None:
    """A node may be used again, unless it is lost, or something is wrong with it."""
    del ledger.site.asked[fact.node]
    _cordon_as_said(ledger, fact.node)


def node_health_noted(ledger: Ledger, fact: NodeHealthNoted) -> None:
    """A source says something else of a node, or an operator does not mind."""
    told = ledger.site.unwell.setdefault(fact.node, {})
    before = told.pop(fact.source, None)
    if fact.reason:
        since = fact.at if before is None or before.forgiven else before.since
        told[fact.source] = Illness(fact.reason, since, fact.forgiven)
    if not told:
        del ledger.site.unwell[fact.node]
    _cordon_as_said(ledger, fact.node)


def _cordon_as_said(ledger: Ledger, node: str) -> None:
    """Cordon a node, or not, as everybody together says."""
    site = ledger.site
    asked = site.asked.get(node)
    wrong = [each for each in site.unwell.get(node, {}).values() if not each.forgiven]
    if asked is None and not wrong:
        site.cordoned.pop(node, None)
    else:
        site.cordoned[node] = _joined(asked, wrong)
    site.version += 1
    _open_or_close(ledger, node)


def _joined(asked: Cordon | None, wrong: Sequence[Illness]) -> Cordon:
    """One cordon for what was asked for and for all that is wrong."""
    unwell = "; ".join(each.reason for each in wrong)
    moments = [each.since for each in wrong]
    if asked is None:
        return Cordon(unwell, min(moments), unwell=unwell)
    reason = "; ".join(filter(None, (asked.reason, unwell)))
    return replace(asked, reason=reason, since=min([asked.since, *moments]), unwell=unwell)


def _open_or_close(ledger: Ledger, node: str) -> None:
    """Say of a node whether it may be used as things are.

    Where one is lost others may have more if a cell is bound elsewhere then, or another node kept as a spare.
    """
    rooms = ledger.rooms()
    if node not in rooms.fabric.index_of_node:
        return
    usable = node not in ledger.unusable and node not in ledger.site.cordoned
    usable = usable and bool(sound_nodes(rooms.fabric)[rooms.fabric.index_of_node[node]])
    is_other = usable != rooms.usable(node)
    if is_other and (usable or ledger.is_entangled):
        ledger.more_room()
    rooms.mark(node, usable=usable)


def node_labelled(ledger: Ledger, fact: NodeLabelled) -> None:
    """A node has another label: who asks for labels may have another answer; what runs stays."""
    site = ledger.site
    assert site.described is not None, "no cluster was observed yet"
    labels = {**site.labels.get(fact.node, {}), fact.key: fact.value}
    site.labels[fact.node] = labels
    of_file = next((dict(n.labels) for n in site.described.nodes if n.name == fact.node), None)
    _forget_the_same(site, fact.node, labels, of_file)
    site.version += 1
    rooms = ledger.rooms()
    if fact.node in rooms.fabric.index_of_node:
        ledger.occupancy = rooms.copy(rooms.fabric.relabelled(site.with_labels()))
        ledger.more_room()
