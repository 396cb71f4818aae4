"""Objects that tell where nodes stand: Kueue's and KAI's `Topology`, Volcano's `HyperNode`; and what is inside of them,
NodeResourceTopology, which `zones` reads.

A `Topology` names label keys of nodes, the widest first. HyperNodes name their members, by name, expression or label,
tier by tier; they become labels of their nodes here, so that the one reader of labels makes the tree of all of them.
Which of several makes it is that reader's rule (`topology.discovery.listings.kubernetes`). Names are those of the API
types upstream: kubernetes-sigs/kueue `apis/kueue/v1beta2/topology_types.go`, KAI-Scheduler
`pkg/apis/kai/v1alpha1/topology_types.go`, volcano.sh/apis `topology/v1alpha1/hypernode_types.go`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gantree.executors.kubernetes.apiserver.objects import Group, Node
from gantree.executors.kubernetes.nodes.zones import ZONES, NodeZones, sockets_of
from gantree.executors.kubernetes.pods.gang_spec import (
    GroupKind,
    InvalidObject,
    Spec,
    labels,
    number,
    table,
    tables,
    text,
    texts,
)
from gantree.executors.kubernetes.workloads.pod_groups import TIER_NUMBER
from gantree.topology.discovery.listings.domains_csv import MAX_TIERS

Json = dict[str, Any]

KUEUE = GroupKind("kueue.x-k8s.io", "topologies", ("v1beta2", "v1beta1", "v1alpha1"))
KAI = GroupKind("kai.scheduler", "topologies", ("v1alpha1",))
HYPERNODE = GroupKind("topology.volcano.sh", "hypernodes", ("v1alpha1",))
TOPOLOGY_KINDS = (KUEUE, KAI, HYPERNODE, ZONES)
OF_HYPERNODE = "topology.volcano.sh/"
"""Before the name of a tier, as the key of a label that no node has of its own."""
LONGEST_PATTERN = 1000
_VERSION, _KIND = f"{KUEUE.group}/{KUEUE.versions[0]}", "Topology"
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class NodeTopologies:
    """What such objects tell: levels as Kueue's, labels beside the nodes' own, other words for keys, what is odd.

    sockets_of_node: the socket of each GPU. asked: further label keys, of which gangs ask domains.
    """

    topologies: tuple[Json, ...] = ()
    labels_of_node: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    key_of_word: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sockets_of_node: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    asked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _HyperNode:
    """One HyperNode: its tier, the tier's name, and what it selects: (whether nodes, selector)."""

    tier: int
    tier_name: str
    members: tuple[tuple[bool, Spec], ...]


def read_topologies(
    objects: Mapping[tuple[GroupKind, str], Group], nodes: Iterable[Node]
) -> NodeTopologies:
    """What all such objects tell of these nodes; one that is odd is left out with a warning."""
    found: list[tuple[str, tuple[str, ...]]] = []
    words: dict[str, str] = {}
    hyper: dict[str, _HyperNode] = {}
    sockets: dict[str, tuple[int, ...]] = {}
    warnings: list[str] = []
    for (kind, name), group in objects.items():
        try:
            if kind is HYPERNODE:
                hyper[name] = _hypernode(group.spec)
            elif isinstance(group, NodeZones):
                sockets[name] = sockets_of(group)
            else:
                levels = tables(group.spec, "levels")
                found.append((name, _keys(levels)))
                words |= {alias: key for key, alias in _aliases(levels)}
        except InvalidObject as error:
            warnings.append(f"{kind.plural} {name} of {kind.group} is left out: {error}")
    labels_of_node, keys, words_of_tiers = _of_hypernodes(hyper, list(nodes))
    if keys:
        found.append(("hypernodes", keys))
    return NodeTopologies(
        tuple(_topology(name, keys) for name, keys in found if keys),
        labels_of_node,
        {**words, **words_of_tiers},
        tuple(dict.fromkeys(key for _, keys in found for key in keys)),
        tuple(warnings),
        sockets,
    )


def _keys(levels: Iterable[Spec]) -> tuple[str, ...]:
    keys = tuple(dict.fromkeys(text(level, "nodeLabel") or "" for level in levels))
    if "" in keys or not keys:
        raise InvalidObject("a level has no nodeLabel" if keys else "it has no levels")
    if len(keys) > MAX_TIERS:
        raise InvalidObject(f"it has more than {MAX_TIERS} levels")
    return keys


def _aliases(levels: Iterable[Spec]) -> Iterator[tuple[str, str]]:
    for level in levels:
        alias = text(level, "alias")
        if alias:
            yield text(level, "nodeLabel") or "", alias


def _topology(name: str, keys: Iterable[str]) -> Json:
    levels = [{"nodeLabel": key} for key in keys]
    return {"apiVersion": _VERSION, "kind": _KIND, "metadata": {"name": name}, "spec": {"levels": levels}}  # fmt: skip


# ----- HyperNodes


def _hypernode(spec: Spec) -> _HyperNode:
    said = spec.get("tier")
    is_text = isinstance(said, str) and re.fullmatch(
        "[0-9]{1,3}", said
    )  # as its first version had it
    tier = int(str(said)) if is_text else number(spec, "tier")
    if tier is None or tier < 0:
        raise InvalidObject("it has no tier")
    members = []
    for member in tables(spec, "members"):
        selector = table(member, "selector")
        _check(selector)
        members.append(((text(member, "type") or "Node") == "Node", selector))
    return _HyperNode(tier, text(spec, "tierName") or "", tuple(members))


def _check(selector: Spec) -> None:
    """Raises InvalidObject for a selector that cannot be understood."""
    text(table(selector, "exactMatch"), "name")
    pattern = text(table(selector, "regexMatch"), "pattern") or ""
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidObject("regexMatch.pattern is too long")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidObject(f"regexMatch.pattern: {error}") from None
    of_labels = table(selector, "labelMatch")
    labels(of_labels, "matchLabels")
    for each in tables(of_labels, "matchExpressions"):
        text(each, "key")
        texts(each, "values")
        if text(each, "operator") not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise InvalidObject("labelMatch.matchExpressions has an operator that is none")


def _of_hypernodes(
    hyper: Mapping[str, _HyperNode], nodes: list[Node]
) -> tuple[dict[str, dict[str, str]], tuple[str, ...], dict[str, str]]:
    """Labels of each node, their keys from the widest tier on, and the words by which groups name tiers."""
    tiers = sorted({each.tier for each in hyper.values()}, reverse=True)[-MAX_TIERS:]
    key_of_tier = {tier: f"{OF_HYPERNODE}{_tier_name(tier, hyper)}" for tier in tiers}
    labels_of_node: dict[str, dict[str, str]] = {}
    for name, each in hyper.items():
        if each.tier not in key_of_tier:
            continue
        for node in _nodes_of(name, hyper, nodes, set()):
            labels_of_node.setdefault(node, {}).setdefault(key_of_tier[each.tier], name)
    words = {f"{TIER_NUMBER}{tier}": key for tier, key in key_of_tier.items()}
    named = [each for each in hyper.values() if each.tier_name and each.tier in key_of_tier]
    words |= {each.tier_name: key_of_tier[each.tier] for each in named}
    return labels_of_node, tuple(key_of_tier.values()), words


def _tier_name(tier: int, hyper: Mapping[str, _HyperNode]) -> str:
    """What most HyperNodes of a tier call it, if no other tier is called so; else its number."""
    said = Counter(each.tier_name for each in hyper.values() if each.tier == tier)
    word = said.most_common(1)[0][0]
    is_shared = any(each.tier_name == word and each.tier != tier for each in hyper.values())
    name = _NO_NAME.sub("-", word)
    return name if name and not is_shared else f"hypernode-tier-{tier}"


def _nodes_of(
    name: str, hyper: Mapping[str, _HyperNode], nodes: list[Node], seen: set[str]
) -> Iterator[str]:
    """The nodes of a HyperNode, those of HyperNodes in it included; each HyperNode is followed once."""
    if name in seen:
        return
    seen.add(name)
    for is_node, selector in hyper[name].members:
        if is_node:
            yield from (each.metadata.name for each in nodes if _selects(selector, each))
        else:
            for other in [other for other in hyper if _names(selector, other)]:
                yield from _nodes_of(other, hyper, nodes, seen)


def _selects(selector: Spec, node: Node) -> bool:
    of_labels = table(selector, "labelMatch")
    is_like = bool(of_labels) and _matches(of_labels, node.metadata.labels)
    return is_like or _names(selector, node.metadata.name)


def _names(selector: Spec, name: str) -> bool:
    pattern = text(table(selector, "regexMatch"), "pattern")
    if text(table(selector, "exactMatch"), "name") == name:
        return True
    return pattern is not None and re.search(pattern, name) is not None


def _matches(selector: Spec, told: Mapping[str, str]) -> bool:
    """Whether labels are as a label selector asks for."""
    exact = all(told.get(key) == value for key, value in labels(selector, "matchLabels").items())
    return exact and all(_holds(each, told) for each in tables(selector, "matchExpressions"))


def _holds(each: Spec, told: Mapping[str, str]) -> bool:
    key, values = text(each, "key") or "", texts(each, "values")
    match text(each, "operator"):
        case "In":
            return told.get(key) in values
        case "NotIn":
            return told.get(key) not in values
        case "Exists":
            return key in told
        case _:
            return key not in told
