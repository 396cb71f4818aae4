"""A fabric and machines made one cluster: which machine a node is, which rail a NIC is on, what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from gantree.model.cluster import DomainFacts, Machine, Nic, Torus
from gantree.model.errors import BadInput
from gantree.topology.discovery.assembly import Assembled, assembled, without
from gantree.topology.discovery.fabrics import FabricReading, SeenNic, SeenNode
from gantree.topology.discovery.machine_of_node import MachineChoice
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import MACHINES

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


def test_a_machine_given_for_all_leaves_other_nodes_as_told_and_warns_of_them() -> None:
    nodes = (node("n0", gpus=2, gpu="A100-80GB"), node("n1", gpus=4), node("n2", gpus=0))
    found = put_together(fabric_of(*nodes), given(BOX))
    assert [n.machine for n in found.cluster.nodes] == ["box", "gpu-x4", "cpu-only"]
    assert found.cluster.machines["box"].gpu == "A100-80GB"
    assert "1 node, which are taken as told (n1: 4 GPUs)" in found.warnings[0]


def test_a_print_that_is_given_beats_the_machine_that_a_list_names() -> None:
    eight = Machine("print", 8, links=DGX.links)
    found = put_together(fabric_of(node("n0", machine="dgx-h100")), given(eight))
    machine = found.cluster.machines["print"]
    assert (machine.links, machine.gpu, machine.cpus) == (DGX.links, DGX.gpu, DGX.cpus)
    assert any("print, as given, is taken for dgx-h100" in said for said in found.inferred)


def test_what_a_machine_leaves_open_is_what_the_source_tells_of_the_node() -> None:
    told = node("n0", gpus=2, gpu="T4-16GB", cpus=8.0, memory_GiB=31.9)
    machine = put_together(fabric_of(told), given(BOX)).cluster.machines["box"]
    assert (machine.gpu, machine.cpus, machine.memory_GiB) == ("T4-16GB", 8.0, 31.0)


def test_machines_that_are_no_nodes_are_warned_of() -> None:
    nodes = fabric_of(node("n0"))
    found = put_together(nodes, MachineChoice({}, {"x9": BOX}, DGX))
    assert any("the machine of host x9 is no node's" in said for said in found.warnings)
    found = put_together(nodes, MachineChoice({"n0": DGX}, {"n0": BOX}))
    assert any("the print of host n0 is not used" in said for said in found.warnings)
    found = put_together(nodes, MachineChoice({"n0": DGX}, {}, BOX))
    assert any("machine box, given for all nodes, is none" in said for said in found.warnings)


def test_what_is_not_told_of_a_machine_is_warned_of_and_its_gpus_can_be_named() -> None:
    nodes = fabric_of(node("n0"))
    bare = put_together(nodes, given(BOX)).warnings
    assert bare[0].startswith(
        "the GPU model of machine box is not told; give its `nvidia-smi -q -x`"
    )
    assert bare[1].startswith("CPUs and memory of machine box are not told")
    found = put_together(nodes, MachineChoice({}, {}, BOX, "T4-16GB"))
    assert found.cluster.machines["box"].gpu == "T4-16GB"
    assert not any("GPU model" in warning for warning in found.warnings)
    with pytest.raises(
        BadInput, match="--gpu T4-16GB: no node has GPUs of an unknown model; they have H100"
    ):
        put_together(nodes, MachineChoice({}, {}, DGX, "T4-16GB"))


def test_different_machines_never_share_a_name() -> None:
    nodes = [node(f"n{i}", gpus=8, cpus=float(cpus)) for i, cpus in enumerate((64, 96, 64))]
    cluster = put_together(fabric_of(*nodes), given()).cluster
    assert [n.machine for n in cluster.nodes] == ["gpu-x8", "gpu-x8-2", "gpu-x8"]


@pytest.mark.parametrize(
    ("reading", "choice", "message"),
    [
        (fabric_of(node("n0")), given(), r"nothing tells what machine 1 node is \(n0\)"),
        (fabric_of(node("n0", gpus=4)), given(n0=DGX), r"tells of 4 GPUs, but machine dgx-h100"),
        (fabric_of(node("n0", gpus=8, gpu="H100-80GB")), given(MACHINES["t4-4"]),
         r"node n0: net\.txt tells of 8 GPUs \(H100-80GB\), but machine t4-4 has 4 GPUs \(T4-16GB\).*NODES=MODEL"),
        (fabric_of(node("n0", machine="dgx-h100")), given(n0=MACHINES["t4-4"]),
         r"node n0: the fabric's source tells of 8 GPUs \(H100-80GB\), but machine t4-4 has 4"),
        (fabric_of(node("n0", machine="dgx-h100", gpus=4)), given(), r"machine dgx-h100, which it names, has 8"),
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


GPU_COUNTS = st.sampled_from([None, 0, 2, 8])
GPU_NAMES = st.sampled_from([None, "H100-80GB", "T4-16GB"])
MODELS = st.sampled_from([None, "dgx-h100", "t4-4"])
SEEN = st.builds(SeenNode, st.just("n0"), st.just(("l0",)), machine=MODELS, gpus=GPU_COUNTS, gpu=GPU_NAMES)  # fmt: skip


@for_all(SEEN, st.sampled_from([None, BOX, DGX, MACHINES["t4-4"]]), st.booleans())
def test_no_node_ever_becomes_what_the_source_contradicts(
    told: SeenNode, machine: Machine | None, by_name: bool
) -> None:
    of_node = {"n0": machine} if by_name and machine else {}
    try:
        found = put_together(fabric_of(told), MachineChoice(of_node, {}, machine))
    except BadInput:
        return
    ((_, own),) = found.cluster.machines.items()
    assert told.gpus in (None, own.gpus)
    assert told.gpu in (None, own.gpu) or own.gpus == 0
    if machine is not None:
        assert own.name == machine.name
