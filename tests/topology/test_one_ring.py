"""The short way to the paths of one group: the same figures as the arrays give."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Link, Node
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.traffic.one_ring import OneRing
from gantree.topology.traffic.paths import each_alone, read_paths
from gantree.topology.traffic.traffic_index import TrafficIndex

MACHINES = ("dgx-h100", "dgx-a100", "dgx-1-v100")
NODES = 12


def traffic_index(links: dict[str, Link] | None = None) -> TrafficIndex:
    nodes = tuple(
        Node(f"n{n}", MACHINES[n % len(MACHINES)], (f"s{n // 6}", f"l{n // 2}"))
        for n in range(NODES)
    )
    machines = {name: machine(name) for name in MACHINES}
    cluster = Cluster("rings", ("spine", "leaf", "node"), machines, nodes, links or {})
    return TrafficIndex.of(Fabric.build(cluster))


TERRAIN = traffic_index()
RANKS = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, 7)), min_size=2, max_size=40)


@given(RANKS)
def test_a_group_read_alone_has_the_paths_that_the_arrays_give(
    ranks: list[tuple[int, int]],
) -> None:
    ring = OneRing.of(TERRAIN)
    assert ring is not None
    table = np.array(ranks, dtype=np.int64)
    ours, theirs = (
        ring.read((node, (gpu,)) for node, gpu in ranks).paths(),
        read_paths(TERRAIN, table[None, :, 0], table[None, :, 1], each_alone(1)),
    )
    for field in fields(ours):
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        assert mine == pytest.approx(other), field.name


def test_tiers_that_bound_traffic_have_no_short_way() -> None:
    assert OneRing.of(traffic_index({"leaf": Link(25.0, 5.0)})) is None
    assert OneRing.of(traffic_index({"spine": Link(25.0, 5.0, 100.0)})) is None
