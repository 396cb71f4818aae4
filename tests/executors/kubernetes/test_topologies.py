"""Objects and files that tell where nodes stand: the tree that they make, and the nodes that gangs get."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import Group, Node
from gantree.executors.kubernetes.nodes.site import SiteReading, site_of
from gantree.executors.kubernetes.nodes.topologies import HYPERNODE, KAI, KUEUE, read_topologies
from gantree.formats import read_cluster
from gantree.model.errors import BadInput
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


def node(name: str, **labels: str) -> Node:
    told = {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "8"}
    keys = {"block": BLOCK, "rack": RACK}
    metadata = {
        "name": name,
        "labels": {keys.get(key, key): value for key, value in labels.items()},
    }
    return msgspec.convert(
        {"metadata": metadata, "status": {"allocatable": told, "capacity": told}}, Node
    )


def group(name: str, **spec: Any) -> Group:
    return Group(metadata=msgspec.convert({"name": name}, type(node("n").metadata)), spec=spec)


def hypernode(tier: Any, *members: Json, kind: str = "Node", **more: Any) -> Json:
    told = [{"type": kind, "selector": selector} for selector in members]
    return {"tier": tier, "members": told, **more}


def named(name: str) -> Json:
    return {"exactMatch": {"name": name}}


def read(objects: dict[Any, Group], nodes: list[Node]) -> SiteReading:
    return site_of("k", nodes, (), read_topologies(objects, nodes))


def places(reading: SiteReading) -> dict[str, tuple[str, ...]]:
    return {each.name: each.at for each in reading.cluster.nodes}


NODES = [node("n0", block="b0", rack="r0"), node("n1", block="b0", rack="r1")]


@pytest.mark.parametrize("kind", [KUEUE, KAI])
def test_a_topology_names_the_labels_of_the_tree(kind: Any) -> None:
    """The sample of Kueue's topology-aware scheduling; KAI's has the same fields, and aliases."""
    keys = (BLOCK, RACK, "kubernetes.io/hostname")
    levels = [{"nodeLabel": key, "alias": key[-4:]} for key in keys]
    reading = read({(kind, "default"): group("default", levels=levels)}, NODES)
    assert reading.cluster.tiers == ("topology-block", "topology-rack", "node")
    assert places(reading) == {"n0": ("b0", "r0"), "n1": ("b0", "r1")}
    assert [reading.tier(word) for word in (BLOCK, RACK, "rack")] == [
        "topology-block",
        "topology-rack",
        "topology-rack",
    ]


def hypernodes() -> dict[Any, Group]:
    """The example of Volcano's guide to network topology: two leaves by each way to select, a spine over them."""
    like = {"labelMatch": {"matchLabels": {"leaf": "b"}}}
    told = {
        "s0": hypernode(1, named("n0"), named("n1"), tierName="rack"),
        "s1": hypernode("1", {"regexMatch": {"pattern": "^n[23]$"}}, tierName="rack"),
        "s2": hypernode(1, like, tierName="rack"),
        "s4": hypernode(2, named("s0"), {"regexMatch": {"pattern": "s[12]"}}, kind="HyperNode"),
    }
    return {(HYPERNODE, name): group(name, **spec) for name, spec in told.items()}


def test_hypernodes_make_the_tree_and_its_tiers_have_their_names_and_numbers() -> None:
    nodes = [*(node(f"n{number}") for number in range(4)), node("n4", leaf="b")]
    reading = read(hypernodes(), nodes)
    assert reading.cluster.tiers == ("hypernode-tier-2", "rack", "node")
    assert places(reading) == {
        "n0": ("s4", "s0"),
        "n1": ("s4", "s0"),
        "n2": ("s4", "s1"),
        "n3": ("s4", "s1"),
        "n4": ("s4", "s2"),
    }
    words = ("rack", "hypernode-tier:1", "hypernode-tier:2", "hypernode-tier:3")
    assert [reading.tier(word) for word in words] == ["rack", "rack", "hypernode-tier-2", None]


def test_hypernodes_that_hold_each_other_end() -> None:
    told = {
        (HYPERNODE, "a"): group("a", **hypernode(1, named("b"), kind="HyperNode")),
        (HYPERNODE, "b"): group("b", **hypernode(1, named("a"), kind="HyperNode")),
    }
    assert read(told, NODES).cluster.tiers == ("node",)


ODD = [
    (KUEUE, {"levels": 5}),
    (KUEUE, {"levels": [5]}),
    (KUEUE, {"levels": []}),
    (KUEUE, {"levels": [{"nodeLabel": 5}]}),
    (KUEUE, {"levels": [{"nodeLabel": f"k/{number}"} for number in range(99)]}),
    (HYPERNODE, {"tier": "first"}),
    (HYPERNODE, {"tier": -1}),
    (HYPERNODE, hypernode(1, {"regexMatch": {"pattern": "("}})),
    (HYPERNODE, hypernode(1, {"exactMatch": "n0"})),
    (HYPERNODE, hypernode(1, {"labelMatch": {"matchLabels": {"a": 5}}})),
    (HYPERNODE, hypernode(1, {"labelMatch": {"matchExpressions": [{"operator": "Near"}]}})),
]


@pytest.mark.parametrize(("kind", "spec"), ODD)
def test_an_odd_object_is_left_out_and_told(kind: Any, spec: Json) -> None:
    reading = read({(kind, "odd"): group("odd", **spec)}, NODES)
    assert any("odd" in warning and "left out" in warning for warning in reading.warnings)
    assert places(reading) == {"n0": (), "n1": ()}


FILE = """
name: hall
tiers: [leaf, node]
machines:
  m: {gpus: 8, gpu: H100-80GB, cpus: 8, memory_GiB: 8}
nodes:
  - {names: "n[0-1]", machine: m, at: {leaf: l0}}
  - {names: n9, machine: m, at: {leaf: l9}}
"""


def test_a_file_describes_the_nodes_that_are_there_and_no_others() -> None:
    file = read_cluster(FILE, "cluster.yaml")
    few = node("n1", rack="r1")
    status = msgspec.structs.replace(few.status, capacity={"nvidia.com/gpu": "7"})
    few = msgspec.structs.replace(few, status=status)
    reading = site_of("k", [node("n0"), few, node("n2")], file=file)
    assert places(reading) == {"n0": ("l0",), "n1": ("l0",)}
    assert reading.cluster.tiers == ("leaf", "node")
    assert dict(reading.cluster.nodes[1].labels)[RACK] == "r1"
    machines = {reading.cluster.machines[each.machine].gpu for each in reading.cluster.nodes}
    assert machines == {"H100-80GB"}
    told = " ".join(reading.warnings)
    assert "node n2 is left out" in told
    assert "node n1: 7 GPUs, the cluster file says 8" in told
    with pytest.raises(BadInput, match="none of the cluster's nodes"):
        site_of("k", [node("n5")], file=file)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """Three nodes in rack a and four in rack b, which only HyperNodes tell."""
    with PodStage(tmp_path) as stage:
        for group_of, version, kind, plural, scope in (
            ("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes", "Cluster"),
            ("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", "Namespaced"),
        ):
            define(stage, group_of, version, kind, plural, scope)
        stage.nodes("a[0-2]")
        stage.nodes("b[0-3]")
        yield stage


def define(stage: PodStage, group: str, version: str, kind: str, plural: str, scope: str) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": names,
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    stage.api.define(body)


def add(stage: PodStage, path: str, kind: str, name: str, spec: Json) -> None:
    version = path.removeprefix("/apis/").rpartition("/namespaces")[0] or path.split("/", 2)[2]
    version = "/".join(version.split("/")[:2])
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    answer = stage.api.post(path, body)
    assert answer.status_code == 201, answer.text


def test_the_highest_tier_that_volcano_allows_is_kept_also_when_hypernodes_come_later(
    stage: PodStage,
) -> None:
    stage.start()
    spec = {"minMember": 4, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    add(stage, path, "PodGroup", "g", spec)
    names = [f"train-{number}" for number in range(4)]
    for name in names:
        stage.pod(name, gpus=8, annotations={"scheduling.k8s.io/group-name": "g"})
    stage.pod("alone", gpus=1)
    stage.until(lambda: stage.bound("alone"))
    assert not stage.bound("train-0")
    stage.exit("alone")
    for leaf in ("a", "b"):
        told = hypernode(1, {"regexMatch": {"pattern": f"^{leaf}"}})
        add(stage, "/apis/topology.volcano.sh/v1alpha1/hypernodes", "HyperNode", leaf, told)
    stage.until(lambda: stage.bound(*names))
    assert {stage.node_of(name) for name in names} == {"b0", "b1", "b2", "b3"}
