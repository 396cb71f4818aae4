"""The choice by price where counting does not tell: worn links, machines of two models, data, the weight."""

from dataclasses import replace

import pytest

from gantree.model.cluster import Allocation, Cluster, DataSet, DomainFacts, Node
from gantree.model.jobs import AxisTraffic, DataNeed, Job, Role, Shape, TopologySpec, Traffic
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.placement.request.locality import fetch_s_of_node
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy

MACHINES = {name: machine(name) for name in ("dgx-h100", "dgx-a100")}


def site(*leaves: str, **facts: object) -> Cluster:
    """Leaves of two nodes each, all of one machine model, under one spine."""
    nodes = tuple(
        Node(f"l{leaf}n{number}", model, ("s0", f"l{leaf}"))
        for leaf, model in enumerate(leaves)
        for number in range(2)
    )
    return replace(
        Cluster("site", ("spine", "leaf", "node"), MACHINES, nodes),
        **facts,  # type: ignore[arg-type]  # fields of Cluster, named by the tests
    )


def gang(members: int, gpus: int = 8, **fields: object) -> Job:
    job = Job("g", (Role("w", members, Shape(gpus=gpus)),))
    return replace(job, **fields)  # type: ignore[arg-type]  # fields of Job, named by the tests


def nodes_of(
    cluster: Cluster, job: Job, preferences: PlacementPreferences | None = None
) -> list[str]:
    answer = place(Occupancy(Fabric.build(cluster)), job, preferences or PlacementPreferences())
    assert isinstance(answer, Placement)
    return [member.node for member in answer.members]


def test_a_gang_goes_to_the_faster_of_two_leaves_that_hold_it_alike() -> None:
    assert nodes_of(site("dgx-a100", "dgx-h100"), gang(2)) == ["l1n0", "l1n1"]


def test_an_acceptable_model_that_is_named_first_goes_before_a_faster_one() -> None:
    shape = Shape(gpus=8, models=("A100-80GB", "H100-80GB"))
    job = gang(2, roles=(Role("w", 2, shape),))
    assert nodes_of(site("dgx-a100", "dgx-h100"), job) == ["l0n0", "l0n1"]


def test_a_gang_over_several_leaves_avoids_the_one_whose_uplinks_are_worn() -> None:
    worn = (DomainFacts("leaf", "s0/l0", health=0.2),)
    assert nodes_of(site("dgx-h100", "dgx-h100", "dgx-h100", domains=worn), gang(4)) == [
        "l1n0", "l1n1", "l2n0", "l2n1",
    ]  # fmt: skip


def test_inside_a_leaf_worn_uplinks_do_no_harm() -> None:
    worn = (DomainFacts("leaf", "s0/l1", health=0.2),)
    cluster = site("dgx-h100", "dgx-h100", domains=worn)
    assert nodes_of(cluster, gang(2)) == ["l0n0", "l0n1"]
    taken = Occupancy(Fabric.build(cluster))
    first = place(taken, gang(2))
    assert isinstance(first, Placement)
    taken.take("first", first.members)
    second = place(taken, gang(2))
    assert isinstance(second, Placement)
    assert [member.node for member in second.members] == ["l1n0", "l1n1"]


@pytest.mark.parametrize(("weight", "leaf"), [(0.0, "l1"), (5.0, "l0")])
def test_the_weight_decides_between_a_faster_place_and_one_that_leaves_more_behind(
    weight: float, leaf: str
) -> None:
    nodes = (
        *(Node(f"l0n{n}", "dgx-a100", ("s0", "l0")) for n in range(2)),
        *(Node(f"l1n{n}", "dgx-h100", ("s0", "l1")) for n in range(8)),
    )
    cluster = Cluster("site", ("spine", "leaf", "node"), MACHINES, nodes)
    chosen = nodes_of(cluster, gang(2), PlacementPreferences(fragmentation_weight=weight))
    assert {node[:2] for node in chosen} == {leaf}


def test_data_at_hand_decides_between_places_that_are_alike() -> None:
    data = (DataSet("tokens", "leaf", "s0/l2"),)
    cluster = site("dgx-h100", "dgx-h100", "dgx-h100", data=data)
    job = gang(2, data=(DataNeed("tokens", 4000.0),))
    assert nodes_of(cluster, job) == ["l2n0", "l2n1"]
    answer = place(Occupancy(Fabric.build(cluster)), job)
    assert isinstance(answer, Placement)
    assert answer.fetch_s == 0


def test_fetching_is_as_fast_as_the_narrowest_link_on_the_way() -> None:
    facts = (DomainFacts("leaf", "s0/l1", uplink_GBps=10.0),)
    data = (DataSet("tokens", "node", "l0n0"),)
    fabric = Fabric.build(site("dgx-h100", "dgx-h100", domains=facts, data=data))
    seconds = fetch_s_of_node(fabric, (DataNeed("tokens", 1000.0),)).round(2).tolist()
    nics = 1000 * 1.073741824 / (8 * 50)
    assert seconds == [0.0, round(nics, 2), round(1073.741824 / 10, 2), round(1073.741824 / 10, 2)]


def test_data_that_nobody_has_is_equally_far_from_nodes_that_are_alike() -> None:
    fabric = Fabric.build(site("dgx-h100", "dgx-h100"))
    assert len(set(fetch_s_of_node(fabric, (DataNeed("tokens", 1.0),)).tolist())) == 1


def test_a_wish_for_a_tier_goes_before_data() -> None:
    data = (DataSet("tokens", "leaf", "s0/l2"),)
    cluster = site("dgx-h100", "dgx-h100", "dgx-h100", data=data)
    request = TopologySpec(required="leaf")
    job = gang(2, topology=request, data=(DataNeed("tokens", 4000.0),))
    assert nodes_of(cluster, job) == ["l2n0", "l2n1"]


def parts_of(cluster: Cluster, job: Job) -> list[int]:
    """Members on each node that has some, rising."""
    nodes = nodes_of(cluster, job)
    return sorted(nodes.count(node) for node in dict.fromkeys(nodes))


def test_a_gang_over_several_leaves_is_dealt_out_evenly_over_as_few_nodes() -> None:
    assert parts_of(site("dgx-h100", "dgx-h100"), gang(20, gpus=1)) == [6, 7, 7]


def test_a_job_that_hardly_sends_fills_one_node_and_breaks_no_second() -> None:
    quiet = Traffic((AxisTraffic("data", 1e3),), compute_s=1.0)
    cluster = site("dgx-h100")
    assert parts_of(cluster, gang(10, gpus=1)) == [5, 5]
    assert parts_of(cluster, gang(10, gpus=1, traffic=quiet)) == [2, 8]


MESH = machine("dgx-1-v100")
JOINED, NOT_JOINED = (5, 6), (0, 5)
"""Two GPUs of a hybrid cube mesh with two NVLinks between them, and two without; each pair near two NICs."""


def meshes(*free_of_leaf: tuple[tuple[int, int], ...]) -> Cluster:
    """A leaf for each entry, and in it a node for each pair of GPUs that is free."""
    nodes, held = [], []
    for leaf, pairs in enumerate(free_of_leaf):
        for number, pair in enumerate(pairs):
            name = f"l{leaf}n{number}"
            nodes.append(Node(name, MESH.name, ("s0", f"l{leaf}")))
            taken = tuple(gpu for gpu in range(MESH.gpus) if gpu not in pair)
            held.append(Allocation("old", name, taken))
    tiers, machines = ("spine", "leaf", "node"), {MESH.name: MESH}
    return Cluster("meshes", tiers, machines, tuple(nodes), {}, tuple(held))


def test_of_two_nodes_with_as_many_free_gpus_the_better_linked_ones_are_taken() -> None:
    cluster = meshes((NOT_JOINED, JOINED))
    assert nodes_of(cluster, gang(1, gpus=2)) == ["l0n1"]


def test_a_gang_of_several_nodes_takes_those_whose_free_gpus_are_linked_well() -> None:
    cluster = meshes((NOT_JOINED, NOT_JOINED), (JOINED, JOINED))
    assert nodes_of(cluster, gang(2, gpus=2)) == ["l1n0", "l1n1"]
