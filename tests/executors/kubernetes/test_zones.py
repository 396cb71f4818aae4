"""What a NodeResourceTopology tells of the inside of a node: which of its GPUs are on one socket, by counts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.core.ledger.ledger import Ledger
from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.objects import Metadata, Node, NodeStatus, Wiring
from gantree.executors.kubernetes.controllers.nodes import Nodes
from gantree.executors.kubernetes.nodes.site import site_of
from gantree.executors.kubernetes.nodes.topologies import read_topologies
from gantree.executors.kubernetes.nodes.zones import ZONES, NodeZones, sockets_of
from gantree.executors.kubernetes.pods.gang_spec import InvalidObject
from gantree.model.events import ClusterObserved
from support.kubernetes.samples import definition
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

URL = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
SOCKET = {"annotations": {"gantree.io/required-topology": "socket"}}


def zone(number: int, gpus: int, far: tuple[int, ...] = (), free: int = 0, **more: Any) -> Json:
    """A NUMA node as Node Feature Discovery tells it; far is its distance from node-0, node-1, ..."""
    amounts = {"capacity": str(gpus), "allocatable": str(gpus), "available": str(free)}
    cpus = {"name": "cpu", "capacity": "48", "allocatable": "47", "available": "47"}
    return {
        "name": f"node-{number}",
        "type": "Node",
        "costs": [{"name": f"node-{to}", "value": value} for to, value in enumerate(far)],
        "resources": [cpus, *([{"name": "nvidia.com/gpu", **amounts}] if gpus else [])],
        **more,
    }


def told(*zones: Json, name: str = "n0") -> NodeZones:
    return NodeZones(Metadata(name=name), zones=list(zones))


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        ([zone(0, 2), zone(1, 2)], (0, 0, 1, 1)),
        ([zone(1, 3), zone(0, 1)], (0, 1, 1, 1)),
        ([zone(0, 0), zone(1, 2)], (1, 1)),
        ([zone(0, 1, (10, 12, 32)), zone(1, 1, (12, 10, 32)), zone(2, 2, (32, 32, 10))], (0, 0, 2, 2)),
        ([zone(0, 1, (10, 21)), zone(1, 1, (21, 10))], (0, 1)),
        ([zone(0, 4), zone(1, 4, type="Socket")], (0, 0, 0, 0)),
        ([zone(0, 0)], ()),
    ],
)  # fmt: skip
def test_gpus_are_on_the_sockets_of_their_zones(
    zones: list[Json], expected: tuple[int, ...]
) -> None:
    assert sockets_of(told(*zones)) == expected


ODD = [5, [5], [zone(0, 10**7)], [zone(0, 1, type=5)], [{"type": "Node", "costs": 1}]]


@pytest.mark.parametrize("zones", ODD)
def test_an_odd_one_is_left_out_with_a_warning(zones: Any) -> None:
    odd = NodeZones(Metadata(name="n0"), zones=zones)
    with pytest.raises(InvalidObject):
        sockets_of(odd)
    found = read_topologies({(ZONES, "n0"): odd}, [])
    assert "noderesourcetopologies n0" in found.warnings[0]
    assert found.sockets_of_node == {}


def node(**more: Any) -> Node:
    amounts: dict[str, str | float] = {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "2"}
    return Node(Metadata(name="n0"), status=NodeStatus(amounts, amounts), **more)


def test_what_slices_tell_comes_before_it_and_what_does_not_fit_is_passed_over() -> None:
    zones = {(ZONES, "n0"): told(zone(0, 1), zone(1, 1))}
    by_slices = node(wiring=Wiring(numa=(1, 1)))
    more = {(ZONES, "n0"): told(zone(0, 4), zone(1, 4))}
    found = []
    for there, objects in ((node(), zones), (by_slices, zones), (node(), more)):
        (machine,) = site_of(
            "k", [there], (), read_topologies(objects, [there])
        ).cluster.machines.values()
        found.append(machine.numa)
    assert found == [(0, 1), (1, 1), ()]


def test_for_what_is_free_of_a_zone_the_site_is_not_built_anew() -> None:
    nodes = Nodes("k", ())
    nodes.update_node("n0", node(), 0.0)
    nodes.update_topology(ZONES, "n0", told(zone(0, 1), zone(1, 1)), 0.0)
    nodes.build(LedgerView(Ledger()), 0.0)
    before = nodes.site
    nodes.update_topology(ZONES, "n0", told(zone(0, 1, free=1), zone(1, 1)), 0.0)
    assert list(nodes.events(LedgerView(Ledger()), 9.0, 1)) == []
    assert nodes.site is before
    nodes.update_topology(ZONES, "n0", told(zone(0, 2)), 10.0)
    assert [type(each) for each in nodes.events(LedgerView(Ledger()), 19.0, 1)] == [ClusterObserved]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        names = ("topology.node.k8s.io", "NodeResourceTopology", "noderesourcetopologies")
        body = definition(*names, version="v1alpha2")
        body["spec"]["scope"] = "Cluster"
        stage.api.define(body)
        stage.nodes("n0", gpus=8, product="NVIDIA-L40S")
        yield stage


def tell(stage: PodStage, *zones: Json) -> None:
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    body = {**kind, "metadata": {"name": "n0"}, "topologyPolicies": ["None"], "zones": list(zones)}
    answer = stage.api.post(URL, body)
    assert answer.status_code == 201, answer.text


def test_a_pod_that_asks_for_a_socket_waits_until_one_has_room(stage: PodStage) -> None:
    """Two GPUs are free all the time, one on each socket."""
    tell(stage, zone(0, 4, (10, 21)), zone(1, 4, (21, 10)))
    stage.start()
    for name in ("p0", "p1"):
        stage.pod(name, gpus=3, **SOCKET)
    stage.until(lambda: stage.bound("p0", "p1"))
    stage.pod("two", gpus=2, **SOCKET)
    stage.pod("one", gpus=1)
    stage.until(lambda: stage.bound("one"))
    stage.exit("one")
    stage.work_for(0.5)
    assert not stage.bound("two")
    stage.exit("p0")
    stage.until(lambda: stage.bound("two"))
    gpus = stage.pods()["two"]["metadata"]["annotations"]["gantree.io/gpus"]
    assert len({int(gpu) // 4 for gpu in gpus.split(",")}) == 1


def test_one_that_comes_later_is_heeded_from_then_on(stage: PodStage) -> None:
    stage.start()
    stage.pod("large", gpus=5, **SOCKET)
    stage.until(lambda: stage.bound("large"))
    stage.exit("large")
    tell(stage, zone(0, 4), zone(1, 4))
    stage.until(lambda: sockets(stage) == (0, 0, 0, 0, 1, 1, 1, 1))
    stage.pod("late", gpus=5, **SOCKET)
    stage.pod("small", gpus=4, **SOCKET)
    stage.until(lambda: stage.bound("small"))
    assert not stage.bound("late")


def sockets(stage: PodStage) -> tuple[int | None, ...]:
    """As the site on record has them."""
    fabric = stage.controller.ledger.fabric
    assert fabric is not None
    return fabric.machine_of_node(0).numa
