"""Which hops rings make: against a plain twin that walks them one by one, and figures worked out by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, DomainFacts, Link, Machine, NicFacts, Node
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.hardware.constants import NVLINK_DOMAIN_EGRESS_GBps
from gantree.topology.traffic.equal_rows import number_equal_rows
from gantree.topology.traffic.paths import Paths, each_alone, read_paths
from gantree.topology.traffic.traffic_index import TrafficIndex
from support.examples import examples

Ranks = Sequence[tuple[int, int]]
MACHINES = (
    machine("dgx-h100"),
    machine("dgx-a100"),
    machine("l40s-8"),
    machine("gb200-nvl72-tray"),
)


@st.composite
def sites(draw: st.DrawFn) -> Fabric:
    """Small fabrics of one or two machine models, with and without links, capacities, wear and NVLink domains."""
    outer = draw(st.sampled_from(["leaf", "nvlink"]))
    models = draw(st.lists(st.sampled_from(MACHINES), min_size=1, max_size=2, unique=True))
    count = draw(st.integers(1, 6))
    nodes = tuple(
        Node(f"n{n}", draw(st.sampled_from(models)).name, (f"s{n // 4}", f"d{n // 2}"))
        for n in range(count)
    )
    rates = st.floats(1, 100)
    links = {
        tier: Link(draw(rates), draw(st.floats(0, 20)), draw(st.none() | rates))
        for tier in ("spine", outer, "node")
        if draw(st.booleans())
    }
    shares = st.sampled_from([1.0, 0.5, 0.25, 0.0])
    worn = [DomainFacts("node", n.name, draw(st.none() | rates), draw(shares)) for n in nodes[:2]]
    worn += [DomainFacts("spine", "s0", draw(st.none() | rates), 1.0, draw(shares))]
    nics = [
        NicFacts(node.name, model.nics[0].name, draw(shares))
        for node in nodes[1:3]
        for model in models
        if model.name == node.machine and model.nics
    ]
    machines = {model.name: model for model in models}
    tiers = ("spine", outer, "node")
    return Fabric.build(Cluster("s", tiers, machines, nodes, links, (), tuple(worn), tuple(nics)))


@st.composite
def sites_and_groups(draw: st.DrawFn) -> tuple[Fabric, list[list[tuple[int, int]]]]:
    """A fabric and groups of one size, each GPU at most once a group."""
    fabric = draw(sites())
    places = [
        (n, g) for n in range(len(fabric.nodes)) for g in range(fabric.machine_of_node(n).gpus)
    ]
    ranks = draw(st.integers(1, min(12, len(places))))
    orders = st.permutations(places).map(lambda order: order[:ranks])
    return fabric, draw(st.lists(orders, min_size=1, max_size=4))


@dataclass(frozen=True)
class Walked:
    """What the twin finds for one group."""

    islands: int
    ring_GBps: float
    out_GBps: float
    hop_us: float


def walk(traffic_index: TrafficIndex, group: Ranks, beside: Sequence[Ranks]) -> Walked:
    """Follow one group's ring hop by hop. `beside` are all groups that run at the same time, this one included."""
    fabric = traffic_index.fabric
    islands = order_of_islands(traffic_index, group)
    inside = [ring_inside(traffic_index, group, island) for island in islands]
    out, hops_us = inf, []
    for here, there in zip(islands, (*islands[1:], islands[0]), strict=True):
        if len(islands) == 1:
            hops_us.append(0.0)
            break
        nics = nics_of(traffic_index, group, here, beside)
        out = min(out, nics)
        us = 0.0
        for number in range(1, traffic_index.island_tier + 1):
            tier, domain_of = traffic_index.tiers[number], fabric.domain_of_node[number]
            mine, others = (
                domain_of[nodes_in(traffic_index, here)[0]],
                domain_of[nodes_in(traffic_index, there)[0]],
            )
            before = islands[islands.index(here) - 1]
            crosses = mine != others or mine != domain_of[nodes_in(traffic_index, before)[0]]
            if crosses and not np.isnan(tier.GPU_GBps):
                gpus = sum(traffic_index.island_of_node[node] == here for node, _ in group)
                out = min(out, gpus * tier.GPU_GBps * tier.residual[mine])
            elif crosses and number < fabric.node_tier:
                out = min(out, nics * tier.residual[mine])
            if mine != others:
                us = max(us, tier.latency_us)
                capacity = tier.uplink_GBps[mine] * tier.residual[mine]
                out = min(out, capacity / leaving(traffic_index, number, int(mine), beside))
        hops_us.append(us)
    return Walked(len(islands), min(inside), out, sum(hops_us) / len(hops_us))


def nodes_in(traffic_index: TrafficIndex, island: int) -> list[int]:
    return [
        n
        for n in range(len(traffic_index.fabric.nodes))
        if traffic_index.island_of_node[n] == island
    ]


def order_of_islands(traffic_index: TrafficIndex, group: Ranks) -> list[int]:
    return list(dict.fromkeys(int(traffic_index.island_of_node[node]) for node, _ in group))


def ring_inside(traffic_index: TrafficIndex, group: Ranks, island: int) -> float:
    masks = masks_of(traffic_index, group, island)
    if len(masks) > 1:
        return min(
            traffic_index.hosts[int(traffic_index.kind_of_node[node])].port_GBps for node in masks
        )
    ((node, mask),) = masks.items()
    return traffic_index.inside(int(traffic_index.kind_of_node[node]), mask).ring_GBps


def masks_of(traffic_index: TrafficIndex, group: Ranks, island: int) -> dict[int, int]:
    masks: dict[int, int] = {}
    for node, gpu in group:
        if traffic_index.island_of_node[node] == island:
            masks[node] = masks.get(node, 0) | 1 << gpu
    return masks


def nics_of(
    traffic_index: TrafficIndex, group: Ranks, island: int, beside: Sequence[Ranks]
) -> float:
    masks, total = masks_of(traffic_index, group, island), 0.0
    for node, mask in masks.items():
        busy = mask
        for other in beside:
            if len(order_of_islands(traffic_index, other)) > 1:
                busy |= masks_of(traffic_index, other, island).get(node, 0)
        kind = int(traffic_index.kind_of_node[node])
        total += traffic_index.out_GBps(kind, mask, busy) * float(
            traffic_index.residual_of_node[node]
        )
    return min(total, NVLINK_DOMAIN_EGRESS_GBps) if len(masks) > 1 else total


def leaving(traffic_index: TrafficIndex, number: int, domain: int, beside: Sequence[Ranks]) -> int:
    """Hops of all these rings that leave a domain."""
    domain_of, hops = traffic_index.fabric.domain_of_node[number], 0
    for group in beside:
        ring = [
            domain_of[nodes_in(traffic_index, i)[0]] for i in order_of_islands(traffic_index, group)
        ]
        hops += sum(a == domain != b for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))
    return hops


def read(fabric: Fabric, groups: Sequence[Ranks], *, together: bool = False) -> Paths:
    table = np.array(groups, dtype=np.int64).reshape(len(groups), -1, 2)
    sharing = np.zeros(len(groups), np.int64) if together else each_alone(len(groups))
    return read_paths(TrafficIndex.of(fabric), table[:, :, 0], table[:, :, 1], sharing)


@settings(max_examples=examples(100), deadline=None)
@given(sites_and_groups(), st.booleans())
def test_arrays_find_what_walking_each_ring_finds(
    drawn: tuple[Fabric, list[list[tuple[int, int]]]], together: bool
) -> None:
    fabric, groups = drawn
    paths, traffic_index = read(fabric, groups, together=together), TrafficIndex.of(fabric)
    for number, group in enumerate(groups):
        walked = walk(traffic_index, group, groups if together else [group])
        assert paths.islands[number] == walked.islands
        assert isclose(paths.ring_GBps[number], walked.ring_GBps)
        assert isclose(paths.out_GBps[number], walked.out_GBps)
        assert isclose(paths.hop_us[number], walked.hop_us, abs_tol=1e-12)


def two_leaves(uplink: float | None = 200.0, model: str = "dgx-h100") -> Fabric:
    nodes = tuple(Node(f"n{n}", model, (f"l{n // 4}",)) for n in range(8))
    links = {"leaf": Link(50.0, 6.0, uplink)}
    return Fabric.build(Cluster("s", ("leaf", "node"), {model: machine(model)}, nodes, links))


def whole(*nodes: int, gpus: int = 8) -> list[tuple[int, int]]:
    return [(node, gpu) for node in nodes for gpu in range(gpus)]


def test_a_ring_that_goes_to_and_fro_shares_the_up_links_among_its_crossings() -> None:
    in_order, to_and_fro = read(
        two_leaves(), [whole(0, 1, 2, 3, 4, 5, 6, 7), whole(0, 4, 1, 5, 2, 6, 3, 7)]
    ).out_GBps
    assert (in_order, to_and_fro) == (200, 50)


def test_all_nics_of_a_node_carry_the_ring_side_by_side() -> None:
    assert read(two_leaves(None), [whole(0, 1)]).out_GBps[0] == 8 * 48
    assert read(two_leaves(None), [whole(0, 1, gpus=2)]).out_GBps[0] == 2 * 48


def test_ranks_of_a_node_may_stand_in_any_order() -> None:
    ranks = whole(0, 1, 2)
    mixed = ranks[::2] + ranks[1::2]
    one, other = read(two_leaves(), [ranks, mixed]).hop_us
    assert one == other


def test_rings_beside_each_other_share_nics_and_up_links() -> None:
    model = replace(
        machine("dgx-h100"), nics=(replace(machine("dgx-h100").nics[0], near=tuple(range(8))),)
    )
    nodes = tuple(Node(f"n{n}", "m", (f"l{n}",)) for n in range(2))
    fabric = Fabric.build(Cluster("s", ("leaf", "node"), {"m": model}, nodes))
    columns = [[(0, gpu), (1, gpu)] for gpu in range(8)]
    assert read(fabric, columns).out_GBps.tolist() == [48.0] * 8
    assert read(fabric, columns, together=True).out_GBps.tolist() == [6.0] * 8
    pairs = [[(node, gpu), (node + 4, gpu)] for node in range(4) for gpu in range(8)]
    assert read(two_leaves(), pairs, together=True).out_GBps.tolist() == [200 / 32] * 32


def test_an_nvlink_domain_above_nodes_is_one_island() -> None:
    model = machine("gb200-nvl72-tray")
    nodes = tuple(Node(f"n{n}", model.name, (f"r{n // 18}",)) for n in range(36))
    fabric = Fabric.build(Cluster("s", ("nvlink", "node"), {model.name: model}, nodes))
    paths = read(fabric, [whole(0, 17, gpus=4), whole(0, 18, gpus=4)])
    assert paths.islands.tolist() == [1, 2]
    assert paths.ring_GBps.tolist() == pytest.approx([18 * 40.1] * 2)
    assert paths.out_GBps.tolist() == [inf, 4 * 48]
    racks = read(fabric, [whole(*range(36), gpus=4)])
    assert racks.out_GBps[0] == NVLINK_DOMAIN_EGRESS_GBps


@pytest.mark.parametrize(
    ("model", "GBps"),
    [
        (Machine("alone", 1, "GH200-96GB"), 18 * 20.6),  # no matrix: the model's own links
        (Machine("two", 2, "GB200-186GB", (("X", "NV18"), ("NV18", "X"))), 18 * 40.1),
        (Machine("none", 2, "T4-16GB", (("X", "NODE"), ("NODE", "X"))), 12),  # cannot be; PCIe then
    ],
)
def test_small_trays_of_an_nvlink_domain_have_their_links(model: Machine, GBps: float) -> None:
    nodes = tuple(Node(f"n{n}", model.name, ("r0",)) for n in range(4))
    fabric = Fabric.build(Cluster("s", ("nvlink", "node"), {model.name: model}, nodes))
    paths = read(fabric, [whole(0, 1, 2, 3, gpus=model.gpus)])
    assert paths.ring_GBps.tolist() == pytest.approx([GBps])
    assert paths.out_GBps[0] == inf


def test_machines_of_more_gpus_than_a_word_has_bits_are_read() -> None:
    model = Machine("huge", 100, "H100-80GB")
    nodes = tuple(Node(f"n{n}", "huge", ("l0",)) for n in range(2))
    fabric = Fabric.build(Cluster("s", ("leaf", "node"), {"huge": model}, nodes))
    small, big = [(0, 1), (0, 2), (1, 3)], [(0, 97), (0, 98), (1, 99)]
    paths = read(fabric, [small, big], together=True)
    assert paths.out_GBps[0] == paths.out_GBps[1] == 48


def test_links_between_nodes_are_crossed_at_the_longest_step() -> None:
    hops = read(two_leaves(), [whole(0, 1, 2), whole(0, 4, 5), whole(0, 1, 4)])
    assert hops.longest_us.tolist() == pytest.approx([3.3, 6.0, 6.0])
    assert hops.hop_us.tolist() == pytest.approx([3.3, (6 + 3.3 + 6) / 3, (3.3 + 6 + 6) / 3])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), min_size=1), st.booleans())
def test_what_is_alike_gets_one_number(pairs: list[tuple[int, int]], huge: bool) -> None:
    kind = np.array([a for a, _ in pairs])
    mask = np.array([b * (1 << 70 if huge else 1) for _, b in pairs], object if huge else np.int64)
    first, number = number_equal_rows(kind, mask)
    assert len(first) == len(set(pairs))
    for entry, pair in enumerate(pairs):
        assert first[number[entry]] == pairs.index(pair)
