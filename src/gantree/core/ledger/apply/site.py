"""Applies facts about the cluster and its nodes: the fabric, and which nodes may be used.

What the cluster file says is kept as it is (`Site.described`). What operators say of single nodes is kept beside it,
and applied again whenever the file is read anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.core.ledger.apply.foreign_holders import count_foreign_holders
from gantree.core.ledger.site import WORSE_BY, Cordon, Illness, Labels, LinkSign, Repair, Site
from gantree.model.facts import FabricDefined
from gantree.model.site_facts import (
    LinkHealthNoted,
    NodeCordoned,
    NodeHealthNoted,
    NodeLabelled,
    NodeMarked,
    NodeRepairNoted,
    NodeUncordoned,
)
from gantree.topology.fabric.conditions import broken_nics, has_link, sound_nodes
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def fabric_defined(ledger: Ledger, fact: FabricDefined) -> None:
    """The file was read: operators' words stand where it differs from them, and what runs is carried over by name."""
    site = ledger.site
    site.described = fact.cluster
    file_labels = {node.name: dict(node.labels) for node in fact.cluster.nodes}
    for node, labels in list(site.labels.items()):
        _forget_the_same(site, node, labels, file_labels.get(node))
    for node in [node for node in site.unwell if node not in file_labels]:
        _forget_illness(site, node)
    if site.links:
        there = Fabric.build(fact.cluster)
        site.links = {link: signs for link, signs in site.links.items() if has_link(there, link)}
    occupancy = Occupancy(Fabric.build(site.as_observed()))
    for node in (*ledger.unusable, *site.cordoned):
        if node in occupancy.fabric.index_of_node:
            occupancy.mark(node, usable=False)
    for state in ledger.holding.values():
        assert state.placement is not None
        occupancy.take(state.job, state.placement.members)
    ledger.occupancy = occupancy
    count_foreign_holders(ledger, site.others)
    ledger.accounts.use_fabric(occupancy.fabric)
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
    _update_cordon(ledger, fact.node)


def node_uncordoned(ledger: Ledger, fact: NodeUncordoned) -> None:
    """A node may be used again, unless it is lost, or something is wrong with it."""
    del ledger.site.asked[fact.node]
    _update_cordon(ledger, fact.node)


def node_health_noted(ledger: Ledger, fact: NodeHealthNoted) -> None:
    """A source says something else of a node, or an operator does not mind."""
    told = ledger.site.unwell.setdefault(fact.node, {})
    before = told.pop(fact.source, None)
    if fact.reason:
        since = fact.at if before is None or before.forgiven else before.since
        told[fact.source] = Illness(fact.reason, since, fact.forgiven, fact.kept, fact.lost_gpus)
    if not told:
        del ledger.site.unwell[fact.node]
    _update_cordon(ledger, fact.node)


def _update_cordon(ledger: Ledger, node: str) -> None:
    """Cordon a node, or not, as everybody together says."""
    site = ledger.site
    asked = site.asked.get(node)
    wrong = [each for each in site.unwell.get(node, {}).values() if each.takes_out]
    if asked is None and not wrong:
        site.cordoned.pop(node, None)
    else:
        site.cordoned[node] = _joined(asked, wrong)
    site.version += 1
    _open_or_close(ledger, node)


def _joined(asked: Cordon | None, wrong: Sequence[Illness]) -> Cordon:
    """One cordon for what was asked for and for all that is wrong."""
    unwell = "; ".join(dict.fromkeys(each.reason for each in wrong))
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


def link_health_noted(ledger: Ledger, fact: LinkHealthNoted) -> None:
    """A source says something else of a link, or an operator overrules it."""
    site = ledger.site
    signs = site.links.pop(fact.link, {})
    before = signs.pop(fact.source, None)
    if fact.health < 1.0 or fact.load > 0.0:
        since = fact.at if before is None else _since(before, fact)
        signs[fact.source] = LinkSign(fact.health, fact.reason, since, fact.forgiven, fact.load)
    if signs:
        site.links[fact.link] = signs
    site.version += 1
    rooms = ledger.rooms()
    ledger.occupancy = rooms.copy(rooms.fabric.restated(site.as_observed()))
    ledger.occupancy.host.set_broken_nics(broken_nics(ledger.occupancy.fabric))
    if fact.link.tier == rooms.fabric.tiers[-1]:
        _open_or_close(ledger, fact.link.path)
    ledger.more_room()


def _since(before: LinkSign, fact: LinkHealthNoted) -> float:
    """Since when a link carries no more than is said now: since before, unless it is a new fault."""
    is_new = before.forgiven or fact.health <= before.health - WORSE_BY
    return fact.at if is_new else before.since


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
        ledger.occupancy = rooms.copy(rooms.fabric.restated(site.as_observed()))
        ledger.more_room()


def node_repair_noted(ledger: Ledger, fact: NodeRepairNoted) -> None:
    """The repair of a node has come further."""
    ledger.site.repairs[fact.node] = Repair(
        fact.state, fact.sign, fact.steps, fact.step, fact.reason, fact.at
    )
    ledger.site.version += 1
