"""A fabric and machines made one cluster: which machine a node is, which rail a NIC is on, what is refused."""

from dataclasses import replace

import pytest

from gantree.model.cluster import DomainFacts, Machine, Nic, Torus
from gantree.model.errors import BadInput
from gantree.topology.catalog import MACHINES
from gantree.topology.discovery.assembly import Assembled, MachineChoice, assembled, without
from gantree.topology.discovery.fabrics import FabricReading, SeenNic, SeenNode
from gantree.topology.fabric import Fabric

DGX = MACHINES["dgx-h100"]
BOX = Machine("box", 2, nics=(Nic("mlx5_0", (0,), 0), Nic("mlx5_1", (1,), 1), Nic("mlx5_2")))


def fabric_of(*nodes: SeenNode, **more: object) -> FabricReading:
    return FabricReading(("leaf",), nodes, **more)  # type: ignore[arg-type] # fields by name


def put_together(reading: FabricReading, choice: MachineChoice) -> Assembled:
    return assembled("site", reading, choice, "net.txt")


def node(name: str, **told: object) -> SeenNode:
    return SeenNode(name, ("l0",), **told)  # type: ignore[arg-type] # fields by name


def given(default: Machine | None = None, **of_node: Machine) -> MachineChoice:
    return MachineChoice(of_node, {}, default)


def test_all_nodes_get_the_machine_that_was_given() -> None:
    cluster = put_together(fabric_of(node("n0"), node("n1")), given(DGX)).cluster
    assert cluster.tiers == ("leaf", "node")
    assert [(n.name, n.machine, n.at) for n in cluster.nodes] == [
        ("n0", "dgx-h100", ("l0",)),
        ("n1", "dgx-h100", ("l0",)),
    ]
    assert Fabric.build(cluster).gpus_of_node.tolist() == [8, 8]


def test_a_machine_named_for_a_node_comes_before_the_one_for_all() -> None:
    cluster = put_together(fabric_of(node("n0"), node("n1")), given(DGX, n1=BOX)).cluster
    assert [n.machine for n in cluster.nodes] == ["dgx-h100", "box"]


def test_a_machine_that_tells_its_host_name_is_that_host_with_or_without_domain() -> None:
    choice = MachineChoice({}, {"n0": BOX}, DGX)
    cluster = put_together(fabric_of(node("n0.site.org"), node("n1")), choice).cluster
    assert [n.machine for n in cluster.nodes] == ["box", "dgx-h100"]


def test_a_source_that_counts_gpus_makes_a_plain_machine() -> None:
    told = node("n0", gpus=8, gpu="H100-80GB", cpus=96.0, memory_GiB=2015.7)
    (machine,) = put_together(fabric_of(told), given()).cluster.machines.values()
    assert (machine.name, machine.gpus, machine.gpu) == ("H100-80GB-x8", 8, "H100-80GB")
    assert (machine.cpus, machine.memory_GiB, machine.nics_counted) == (96.0, 2015.0, False)


def test_a_given_machine_is_taken_only_where_it_is_what_the_source_tells() -> None:
    nodes = (node("n0", gpus=2, gpu="A100-80GB"), node("n1", gpus=4))
    cluster = put_together(fabric_of(*nodes), given(BOX)).cluster
    assert [n.machine for n in cluster.nodes] == ["box", "gpu-x4"]
    assert cluster.machines["box"].gpu == "A100-80GB"


def test_different_machines_never_share_a_name() -> None:
    nodes = [node(f"n{i}", gpus=8, cpus=float(cpus)) for i, cpus in enumerate((64, 96, 64))]
    cluster = put_together(fabric_of(*nodes), given()).cluster
    assert [n.machine for n in cluster.nodes] == ["gpu-x8", "gpu-x8-2", "gpu-x8"]


@pytest.mark.parametrize(
    ("reading", "choice", "message"),
    [
        (fabric_of(node("n0")), given(), r"nothing tells what machine 1 nodes are \(n0\)"),
        (fabric_of(node("n0", gpus=4)), given(n0=DGX), r"tells of 4 GPUs, but machine dgx-h100"),
        (fabric_of(node("n0")), given(DGX, n7=BOX), r"has no node n7, for which a machine was named"),
        (fabric_of(node("n0", machine="dgx-h10")), given(), r"no machine model 'dgx-h10'"),
    ],
)  # fmt: skip
def test_what_is_not_told_or_contradicts_itself_is_refused(
    reading: FabricReading, choice: MachineChoice, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        put_together(reading, choice)


def seen(name: str, *rails: int | None, rate: float | None = 50.0) -> SeenNode:
    nics = [SeenNic(f"mlx5_{i}", rail=rail, bandwidth_GBps=rate) for i, rail in enumerate(rails)]
    return node(name, nics=tuple(nics))


def test_rails_and_rates_are_the_fabrics_where_all_nodes_agree() -> None:
    found = put_together(fabric_of(seen("n0", 1, 0), seen("n1", 1)), given(BOX))
    nics = found.cluster.machines["box"].nics
    assert [(nic.rail, nic.bandwidth_GBps) for nic in nics] == [(1, 50.0), (0, 50.0), (None, None)]
    assert "machine box: rails are as the fabric's leaves tell" in found.inferred


def test_a_fabric_without_a_node_makes_no_cluster() -> None:
    with pytest.raises(BadInput, match=r"net\.txt: it tells of no node"):
        put_together(fabric_of(), given(BOX))


def test_a_torus_of_which_nodes_were_left_out_is_left_out_too() -> None:
    torus = Torus("pod", (2,), (1,), ("n0", "n1"), (True,))
    both = fabric_of(node("n0"), node("n1"), tori=(torus,))
    assert put_together(both, given(BOX)).cluster.tori == (torus,)
    found = put_together(without(both, frozenset({"n1"}), "net.txt"), given(BOX))
    assert found.cluster.tori == ()
    assert any("torus pod is left out" in warning for warning in found.warnings)


def test_nodes_can_be_left_out_with_what_only_they_were_in() -> None:
    facts = (
        DomainFacts("leaf", "l1", uplink_GBps=1),
        DomainFacts("leaf", "l0"),
        DomainFacts("node", "n1"),
    )
    reading = fabric_of(node("n0"), replace(node("n1"), at=("l1",)), domains=facts)
    left = without(reading, frozenset({"n1"}), "net.txt")
    assert [n.name for n in left.nodes] == ["n0"]
    assert left.domains == (DomainFacts("leaf", "l0"),)
    with pytest.raises(BadInput, match="has no node n9 to leave out"):
        without(reading, frozenset({"n9"}), "net.txt")
    with pytest.raises(BadInput, match="no node is left"):
        without(reading, frozenset({"n0", "n1"}), "net.txt")
