"""All-to-all and send/recv: what holds them up, against figures by hand and the order any price must have."""

import numpy as np
import pytest

from gantree.model.cluster import Cluster, DomainFacts, Link, NicFacts, Node
from gantree.topology.cost.pricing import Price, Pricer
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine

BIG = 64 << 30


def site(
    model: str = "dgx-h100", uplink: float | None = None, health: float = 1.0, leaf: float = 50.0
) -> Pricer:
    """Two leaves of two nodes."""
    nodes = tuple(Node(f"n{n}", model, (f"l{n // 2}",)) for n in range(4))
    links = {"leaf": Link(leaf, 6.0, uplink)}
    facts = (DomainFacts("leaf", "l0", health=health),)
    machines = {model: machine(model)}
    cluster = Cluster("s", ("leaf", "node"), machines, nodes, links, (), facts)
    return Pricer(Fabric.build(cluster))


def whole(*nodes: int, gpus: int = 8) -> list[tuple[int, int]]:
    return [(node, gpu) for node in nodes for gpu in range(gpus)]


def GBps_of_buffer(price: Price) -> float:
    return BIG / price.seconds / 1e9


def test_inside_a_node_every_gpu_uses_its_port() -> None:
    inside = site().price("all_to_all", BIG, whole(0))
    assert inside.busbw_GBps == pytest.approx(18 * 20.6, rel=0.01)
    assert inside.limit == "NV18"


def test_between_nodes_the_nics_carry_what_is_for_others() -> None:
    two = site().price("all_to_all", BIG, whole(0, 1))
    assert GBps_of_buffer(two) == pytest.approx(8 * 48 / (8 * 8 / 16), rel=0.01)
    assert two.limit == "nic"


def test_between_leaves_ranks_share_the_up_links() -> None:
    four = site(uplink=100.0).price("all_to_all", BIG, whole(0, 1, 2, 3))
    assert GBps_of_buffer(four) == pytest.approx(100 / (16 * 16 / 32), rel=0.01)
    assert four.limit == "leaf"
    worn = site(uplink=100.0, health=0.5).price("all_to_all", BIG, whole(0, 1, 2, 3))
    assert worn.seconds == pytest.approx(2 * four.seconds, rel=0.01)


def test_a_tier_with_a_figure_per_gpu_holds_each_gpu() -> None:
    thin = site(leaf=2.0).price("all_to_all", BIG, whole(0, 2))
    assert GBps_of_buffer(thin) == pytest.approx(2 / (8 / 16), rel=0.01)
    assert thin.limit == "leaf"


def test_a_send_inside_a_node_has_the_pairs_link() -> None:
    for gpus, link, GBps in (([0, 3], "NV2", 40), ([0, 1], "NV1", 20), ([0, 5], "SYS", 10)):
        price = site("dgx-1-v100").price("send_recv", BIG, [(0, gpu) for gpu in gpus])
        assert price.limit == link
        assert price.busbw_GBps == pytest.approx(GBps, rel=0.01)


def test_a_send_between_nodes_has_the_gpus_own_nic() -> None:
    one = site().price("send_recv", BIG, [(0, 0), (1, 0)])
    assert one.limit == "nic"
    assert one.busbw_GBps == pytest.approx(48, rel=0.01)
    ring = site().price("send_recv", BIG, whole(0, 1))  # only two of its hops leave a node
    assert ring.busbw_GBps == pytest.approx(48, rel=0.01)


def test_sends_side_by_side_share_nics_and_up_links() -> None:
    pairs = np.array([[(0, gpu), (2, gpu)] for gpu in range(8)])
    of = site("dgx-a100", uplink=64.0, leaf=25.0)
    together = of.price_together("send_recv", BIG, pairs[:, :, 0], pairs[:, :, 1])
    alone = of.price_many("send_recv", BIG, pairs[:, :, 0], pairs[:, :, 1])
    assert together.busbw_GBps.tolist() == pytest.approx([8.0] * 8, rel=0.01)
    assert alone.busbw_GBps.tolist() == pytest.approx([24.0] * 8, rel=0.01)
    assert set(together.limit) == {"leaf"}


def test_a_send_goes_to_the_next_rank_in_order() -> None:
    of = site(uplink=50.0)
    near = of.price("send_recv", BIG, [(0, 0), (1, 0), (2, 0), (3, 0)])
    far = of.price("send_recv", BIG, [(0, 0), (2, 0), (1, 0), (3, 0)])
    assert near.busbw_GBps == pytest.approx(48, rel=0.01)
    assert far.busbw_GBps == pytest.approx(25, rel=0.01)


def test_an_nvlink_domain_needs_no_nic() -> None:
    model = machine("gb200-nvl72-tray")
    nodes = tuple(Node(f"n{n}", model.name, ("r0",)) for n in range(4))
    of = Pricer(Fabric.build(Cluster("s", ("nvlink", "node"), {model.name: model}, nodes)))
    for collective in ("all_to_all", "send_recv"):
        price = of.price(collective, BIG, whole(0, 1, 2, 3, gpus=4))
        assert price.busbw_GBps == pytest.approx(18 * 40.1, rel=0.02)
        assert price.limit == "NV18"


def test_a_send_is_no_faster_than_the_nic_it_arrives_at() -> None:
    worn = Cluster(
        "s", ("leaf", "node"), {"dgx-h100": machine("dgx-h100")},
        tuple(Node(f"n{n}", "dgx-h100", ("l0",)) for n in range(2)),
        nics=(NicFacts("n0", "mlx5_0", health=0.25),),
    )  # fmt: skip
    of = Pricer(Fabric.build(worn))
    leaves_by_another = of.price("send_recv", BIG, [(0, 0), (0, 1), (1, 1), (1, 2)])
    assert leaves_by_another.busbw_GBps == pytest.approx(12, rel=0.01)
    assert leaves_by_another.limit == "nic"
    beside_it = of.price("send_recv", BIG, [(0, 1), (0, 2), (1, 1), (1, 2)])
    assert beside_it.busbw_GBps == pytest.approx(48, rel=0.01)
