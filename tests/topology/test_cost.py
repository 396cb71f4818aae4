"""What traffic costs: against figures worked out by hand, and the order that any honest price must have."""

import pytest

from gantree.model.cluster import Link, Machine
from gantree.model.placements import MemberPlacement
from gantree.testing.builders import cluster
from gantree.topology.cost import GIB, NODE_LINK, NVLINK_LATENCY_US, predict
from gantree.topology.fabric import Fabric

ALL = tuple(range(8))


def on(*nodes: str, gpus: tuple[int, ...] = ALL) -> list[MemberPlacement]:
    return [MemberPlacement("w", rank, node, gpus) for rank, node in enumerate(nodes)]


def fabric() -> Fabric:
    return Fabric.build(cluster(spines=2, leaves=2, nodes=2))


def test_one_gpu_has_nothing_to_exchange() -> None:
    assert predict(fabric(), on("n0", gpus=(3,))).comm_s == 0
    assert predict(fabric(), on("n0", gpus=())).comm_s == 0


def test_a_ring_inside_a_node_of_eight_takes_as_long_as_measured_over_its_nvlinks() -> None:
    bandwidth = 367e9  # busbw of a ring of 8 H200 (18 NVLink4 each), measured
    expected = 2 * 7 / 8 * GIB / bandwidth + 14 * NVLINK_LATENCY_US * 1e-6
    assert predict(fabric(), on("n0")).comm_s == pytest.approx(expected, rel=0.03)


def test_two_leaves_add_a_ring_of_two_over_the_leaf_link() -> None:
    near, far = predict(fabric(), on("n0")).comm_s, predict(fabric(), on("n0", "n2")).comm_s
    link = Link(50, 6)  # of the builder's leaf tier
    assert far - near == pytest.approx(GIB / 8 / (link.bandwidth_GBps * 1e9) + 2 * 6e-6)


def test_nodes_of_one_leaf_use_the_default_link_where_the_site_says_nothing() -> None:
    near, far = predict(fabric(), on("n0")).comm_s, predict(fabric(), on("n0", "n1")).comm_s
    seconds = GIB / 8 / (NODE_LINK.bandwidth_GBps * 1e9) + 2 * NODE_LINK.latency_us * 1e-6
    assert far - near == pytest.approx(seconds)


def test_a_wider_spread_never_costs_less() -> None:
    prices = [
        predict(fabric(), on(*nodes)).comm_s
        for nodes in (["n0"], ["n0", "n2"], ["n0", "n4"], ["n0", "n1", "n4", "n6"])
    ]
    assert prices == sorted(prices)
    assert len(set(prices)) == 4


def test_crossings_count_the_hops_of_the_closed_ring() -> None:
    assert dict(predict(fabric(), on("n0", "n1", "n2", "n4")).crossings) == {
        "spine": 2,
        "leaf": 3,
        "node": 4,
    }
    assert dict(predict(fabric(), on("n0", "n0")).crossings) == {"spine": 0, "leaf": 0, "node": 0}


def test_a_bridged_pair_is_cheaper_than_one_over_the_host() -> None:
    links = (("X", "NV4", "SYS"), ("NV4", "X", "SYS"), ("SYS", "SYS", "X"))
    plain = cluster(1, 1, 1)
    site = Fabric.build(
        type(plain)("s", plain.tiers, {"m": Machine("m", 3, "A6000-48GB", links)}, plain.nodes)
    )
    bridged, host = (predict(site, on("n0", gpus=g)).comm_s for g in ((0, 1), (0, 2)))
    assert bridged < host
