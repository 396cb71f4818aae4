"""Parameter servers: rates on links worked out by hand, and the mean of the slowest against draws."""

from random import Random

import pytest

from gantree.formats import read_cluster
from gantree.sim.experiments.inputs import cluster
from gantree.sim.experiments.network.asynchronous import SITES, price
from gantree.sim.experiments.network.parameter_servers import (
    async_step_s,
    expected_slowest,
    worker_GBps,
)
from gantree.topology.fabric.fabric import Fabric

SITE = """
name: two-leaves
tiers: [spine, leaf, node]
links:
  spine: {bandwidth_GBps: 10, latency_us: 1}
  leaf: {bandwidth_GBps: 10, latency_us: 1, uplink_GBps: 12}
nodes:
  - {names: "a[0-3]", machine: dgx-h100, at: {spine: s0, leaf: l0}}
  - {names: "b[0-3]", machine: dgx-h100, at: {spine: s0, leaf: l1}}
"""


@pytest.mark.parametrize(
    ("workers", "servers", "expected"),
    [
        ([0], [1], [10.0]),  # one NIC
        ([0, 0], [1, 2], [5.0, 5.0]),  # the NIC of the workers
        ([0, 1], [2], [5.0, 5.0]),  # the NIC of the server
        ([0, 1, 2], [4, 5, 6], [4.0, 4.0, 4.0]),  # the up-links of the leaf
        ([0, 4], [5], [5.0, 5.0]),  # the NIC of the server, though one of them crosses a leaf
        ([0], [0], [float("inf")]),
    ],
)
def test_workers_send_as_fast_as_the_links_of_all_let_them(
    workers: list[int], servers: list[int], expected: list[float]
) -> None:
    fabric = Fabric.build(read_cluster(SITE, "site"))
    assert worker_GBps(fabric, workers, servers) == pytest.approx(expected)


def test_a_server_on_a_full_nic_slows_all_of_a_worker() -> None:
    fabric = Fabric.build(read_cluster(SITE, "site"))
    # worker 0 sends to a server that three others send to as well, and to one that it has to itself
    assert worker_GBps(fabric, [0, 1, 2, 3], [4]) == pytest.approx([2.5] * 4)


@pytest.mark.parametrize("count", [1, 2, 16])
def test_the_mean_of_the_slowest(count: int) -> None:
    random = Random(1)
    drawn = [max(random.gauss(0, 1) for _ in range(count)) for _ in range(20_000)]
    assert expected_slowest(count) == pytest.approx(sum(drawn) / len(drawn), abs=0.03)


def test_a_step_takes_the_longer_of_computing_and_exchanging() -> None:
    assert async_step_s(0.5, 1e9, 4.0) == 0.5
    assert async_step_s(0.1, 1e9, 4.0) == 0.25


def test_all_places_have_16_workers() -> None:
    for site in SITES.values():
        assert {sum(count for _, count in place) for place in site.workers.values()} == {16}
    assert {len(nodes) for site in SITES.values() for nodes in site.servers.values()} == {4}


def test_where_nothing_is_sent_the_placement_does_not_matter() -> None:
    site = Fabric.build(cluster("ethernet-25g"))
    near, far = (price(site, "ethernet-25g", "resnet18", place) for place in ("full nodes", "four leaves"))  # fmt: skip
    assert near.async_s == pytest.approx(far.async_s)
