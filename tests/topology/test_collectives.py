"""Times of collectives on one set of paths: by hand, against NCCL's own formulas, and the order any price must have."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Link, Node
from gantree.model.errors import BadInput
from gantree.model.jobs import COLLECTIVES
from gantree.topology.cost.collectives import ADMITTED, busbw_factor
from gantree.topology.cost.pricing import NOTHING, Price, Pricer
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.hardware.constants import FILL, LAUNCH_US
from support.examples import examples

GIB, MIB = 1 << 30, 1 << 20


def pricer(model: str, nodes: int = 1, **links: Link) -> Pricer:
    there = tuple(Node(f"n{n}", model, ("l0",)) for n in range(nodes))
    site = Cluster("s", ("leaf", "node"), {model: machine(model)}, there, links)
    return Pricer(Fabric.build(site))


def all_gpus(of: Pricer) -> list[tuple[int, int]]:
    fabric = of.traffic_index.fabric
    return [(n, g) for n in range(len(fabric.nodes)) for g in range(int(fabric.gpus_of_node[n]))]


def price(of: Pricer, collective: str, size: float, algorithm: str | None = None) -> Price:
    return of.price(collective, size, all_gpus(of), algorithm)


def seconds(latency_us: float, transfer_us: float) -> float:
    both = latency_us * transfer_us
    return (LAUNCH_US + latency_us + transfer_us + FILL * float(both**0.5)) * 1e-6


def test_a_large_ring_inside_a_node_is_nccls_formula() -> None:
    latency = 8.4 + 14 * 3.4  # Simple: base, and 2 (8 - 1) steps over NVLink
    transfer = 2 * 7 / 8 * GIB / (240 * 1e3)
    ring = price(pricer("dgx-a100"), "all_reduce", GIB)
    assert ring.seconds == pytest.approx(seconds(latency, transfer))
    assert (ring.algorithm, ring.limit) == ("ring", "NV12")
    assert ring.busbw_GBps == pytest.approx(2 * 7 / 8 * GIB / ring.seconds / 1e9)


def test_a_large_ring_between_nodes_pays_the_networks_steps() -> None:
    latency = 8.4 + 2 * 15 * 3.4 - 2 * 3.4 + 2 * (2.7 + 0.6 + 11.9)
    transfer = 2 * 15 / 16 * GIB / (8 * 24 * 1e3)
    ring = price(pricer("dgx-a100", 2), "all_reduce", GIB, "ring")
    assert ring.seconds == pytest.approx(seconds(latency, transfer))
    assert ring.limit == "nic"


def test_a_small_message_is_all_latency() -> None:
    small = price(pricer("dgx-a100"), "all_reduce", 8)
    assert small.seconds == pytest.approx(seconds(6.6 + 14 * 0.6, 0), rel=0.01)
    assert small.limit == "latency"


def test_switches_add_where_the_gpus_can_use_them() -> None:
    for model, share, port in (("dgx-h100", 0.85, 18 * 20.6), ("dgx-b200", 0.74, 18 * 40.1)):
        added = price(pricer(model), "all_reduce", 64 * GIB)
        assert added.algorithm == "in-switch"
        rate = share * port / (1 + 1 / 8)
        assert added.busbw_GBps == pytest.approx(2 * 7 / 8 * rate, rel=0.01)
    assert price(pricer("dgx-a100"), "all_reduce", 64 * GIB).algorithm == "ring"


@pytest.mark.parametrize(("model", "first"), [("dgx-h100", 4), ("dgx-b200", 6)])
def test_in_switch_begins_to_pay_about_where_nccl_begins_to_use_it(model: str, first: int) -> None:
    """Measured: 5 GPUs on H200 and 6 on B200 are the least with NVLS; the model has 4 within 2 % on Hopper."""
    of = pricer(model)
    chosen = {
        gpus: of.price("all_reduce", 16 * GIB, [(0, g) for g in range(gpus)]).algorithm
        for gpus in range(2, 9)
    }
    assert min(gpus for gpus, name in chosen.items() if name == "in-switch") == first


def test_a_tree_of_sums_sends_the_message_once_between_two_nodes_and_twice_among_more() -> None:
    two, four = (
        price(pricer("dgx-h100", nodes), "all_reduce", 64 * GIB, "in-switch") for nodes in (2, 4)
    )
    assert two.limit == "NV18"
    assert four.limit == "nic"
    assert four.busbw_GBps == pytest.approx(2 * 31 / 32 * 8 * 48 / 2, rel=0.02)


def test_trees_win_for_small_messages_on_many_nodes_and_rings_for_large_ones() -> None:
    of = pricer("dgx-a100", 16)
    assert price(of, "all_reduce", 64 * 1024).algorithm == "tree"
    assert price(of, "all_reduce", 4 * GIB).algorithm == "ring"


def test_sums_in_the_network_are_priced_only_when_named() -> None:
    of = pricer("dgx-h100", 8)
    assert price(of, "all_reduce", GIB).algorithm != "collnet"
    named = price(of, "all_reduce", GIB, "collnet")
    assert named.algorithm == "collnet"
    assert named.busbw_GBps == pytest.approx(0.85 / 2 * 2 * 63 / 64 * 370.8, rel=0.06)


def test_an_algorithm_that_cannot_run_there_falls_back_to_a_ring() -> None:
    assert price(pricer("dgx-a100"), "all_reduce", GIB, "in-switch").algorithm == "ring"
    assert price(pricer("dgx-h100"), "all_reduce", GIB, "collnet").algorithm == "ring"


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_single_rank_has_nothing_to_send(collective: str) -> None:
    assert pricer("dgx-a100").price(collective, GIB, [(0, 3)]) == NOTHING


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("nodes", [1, 3])
@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 1 << 36), st.integers(0, 1 << 36))
def test_larger_messages_never_cost_less(collective: str, nodes: int, a: int, b: int) -> None:
    of = PRICERS[nodes]
    small, large = (price(of, collective, size).seconds for size in sorted((a, b)))
    assert small <= large * (1 + 1e-12)


PRICERS = {1: pricer("dgx-h100"), 3: pricer("dgx-h100", 3)}


def test_an_all_reduce_costs_about_a_reduce_scatter_and_an_all_gather() -> None:
    of = pricer("dgx-a100", 4)
    both = sum(price(of, name, 8 * GIB).seconds for name in ("reduce_scatter", "all_gather"))
    assert price(of, "all_reduce", 8 * GIB, "ring").seconds == pytest.approx(both, rel=0.01)


def test_bus_bandwidth_is_counted_as_nccl_tests_do() -> None:
    factors = {name: busbw_factor(name, 8) for name in COLLECTIVES}
    assert factors == {
        "all_reduce": 14 / 8,
        "all_gather": 7 / 8,
        "reduce_scatter": 7 / 8,
        "all_to_all": 7 / 8,
        "broadcast": 1,
        "reduce": 1,
        "send_recv": 1,
    }


def test_every_collective_has_an_algorithm() -> None:
    assert set(ADMITTED) == set(COLLECTIVES)


@pytest.mark.parametrize(
    ("collective", "size", "algorithm", "told"),
    [
        ("alltoall", 1, None, "known: all_reduce"),
        ("all_gather", 1, "tree", "known: ring"),
        ("all_reduce", -1, None, "-1 bytes"),
        ("all_reduce", float("nan"), None, "nan bytes"),
        ("all_reduce", 1e19, None, "from 0 to 1e18"),
    ],
)
def test_unknown_words_and_sizes_are_refused_in_words(
    collective: str, size: float, algorithm: str | None, told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        price(pricer("dgx-a100"), collective, size, algorithm)
