"""Gangs that share up-links: bytes by hand, half a link each, and who is left alone."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster, Link
from gantree.model.jobs import AxisTraffic, Job, Spread, Traffic
from gantree.model.orders import MemberLaunch
from gantree.policy.rules import Policy
from gantree.sim.run import simulate
from gantree.sim.running.contention import Contention
from gantree.sim.running.link_traffic import LinkTraffic, LinkTraffics
from gantree.sim.running.model import RunningModel
from gantree.sim.workload import job_of
from gantree.testing.builders import cluster
from gantree.topology.fabric.fabric import Fabric
from support.examples import examples

LEAF, NODE = 2, 3
CONTENTION = RunningModel(step_time=True, contention=True)
TRAFFIC = Traffic(axes=(AxisTraffic("data", 10e9, collective="all_gather"),), compute_s=0.0)


def site(leaf_GBps: float, leaves: int = 2, nodes: int = 4) -> Cluster:
    """Leaves whose up-links carry so much."""
    plain = cluster(leaves=leaves, nodes=nodes, gpus=8, nics=8)
    return replace(plain, links={"leaf": Link(50, 6, uplink_GBps=leaf_GBps)})


def gang(members: int, gpus: int = 8, traffic: Traffic = TRAFFIC, **more: Any) -> Job:
    return replace(job_of(TraceJob("g", 0, 1, members, gpus)), traffic=traffic, **more)


def launches(job: Job, *nodes: str) -> tuple[MemberLaunch, ...]:
    gpus = job.roles[0].shape.gpus
    return tuple(
        MemberLaunch("worker", n, node, n, n, 1, tuple(range(gpus)), (), ())
        for n, node in enumerate(nodes)
    )


def sent(job: Job, *nodes: str, fabric: Fabric | None = None) -> LinkTraffic:
    traffic = LinkTraffics(fabric or Fabric.build(site(400))).of(job, launches(job, *nodes))
    assert traffic is not None
    return traffic


def GB(traffic: LinkTraffic) -> dict[tuple[int, int], Any]:
    """GB of a step over each link, to be compared."""
    seconds = sum(seconds for _, seconds, crosses in traffic.flows if crosses)
    return {link: pytest.approx(GBps * seconds) for link, GBps in traffic.GBps_of_link.items()}


def test_a_ring_leaves_each_of_two_leaves_once() -> None:
    """16 ranks on n0 (leaf 0) and n4 (leaf 1): each hop carries 15/16 of the 10 GB that are gathered."""
    hop = 15 / 16 * 10
    traffic = sent(gang(2), "n0", "n4")
    assert GB(traffic) == {(LEAF, 0): hop, (LEAF, 1): hop, (NODE, 0): hop, (NODE, 4): hop}
    assert traffic.connections == 1


def test_an_order_that_goes_to_and_fro_leaves_a_leaf_twice() -> None:
    hop = 31 / 32 * 10
    traffic = sent(gang(4), "n0", "n4", "n1", "n5")
    assert GB(traffic)[LEAF, 0] == 2 * hop
    assert GB(sent(gang(4), "n0", "n1", "n4", "n5"))[LEAF, 0] == hop


def test_an_all_to_all_sends_from_each_rank_inside_to_each_outside() -> None:
    traffic = Traffic(axes=(AxisTraffic("data", 10e9, collective="all_to_all"),), compute_s=0.0)
    assert GB(sent(gang(4, traffic=traffic), "n0", "n1", "n2", "n4"))[LEAF, 1] == 8 * 24 / 32 * 10


def test_of_a_sum_in_the_switches_each_of_two_nodes_sends_the_message_once() -> None:
    traffic = Traffic(axes=(AxisTraffic("data", 10e9),), compute_s=0.0)
    assert GB(sent(gang(2, traffic=traffic), "n0", "n4"))[NODE, 0] == 10
    assert GB(sent(gang(3, traffic=traffic), "n0", "n1", "n4"))[NODE, 0] == 2 * 2 / 3 * 10


def test_tensor_groups_inside_nodes_send_nothing_over_links() -> None:
    """Eight data groups of two ranks, one of each node: eight rings side by side."""
    traffic = Traffic(axes=(AxisTraffic("data", 10e9), AxisTraffic("tensor", 50e9)), compute_s=0.0)
    found = sent(gang(2, traffic=traffic, parallelism=(("tensor", 8),)), "n0", "n4")
    assert GB(found)[LEAF, 0] == 8 * 10
    assert found.connections == 8
    assert [crosses for axis, _, crosses in found.flows] == [False, True]


def test_a_gang_in_one_node_sends_nothing() -> None:
    job = gang(2, gpus=4)
    assert LinkTraffics(Fabric.build(site(400))).of(job, launches(job, "n0", "n0")) is None


def test_places_of_one_shape_share_an_answer_for_links_of_their_own() -> None:
    fabric = Fabric.build(site(400))
    traffics = LinkTraffics(fabric)
    job = gang(2)
    for first, second, leaves in (("n0", "n4", {0, 1}), ("n5", "n1", {0, 1}), ("n1", "n2", set())):
        found = traffics.of(job, launches(job, first, second))
        assert found is not None
        nodes = {fabric.index_of_node[first], fabric.index_of_node[second]}
        assert {domain for tier, domain in found.GBps_of_link if tier == NODE} == nodes
        assert {domain for tier, domain in found.GBps_of_link if tier == LEAF} == leaves


def test_two_gangs_across_one_spine_get_half_of_it_each() -> None:
    """Both leave both leaves; each alone would fill the up-links."""
    fabric = Fabric.build(site(40))
    contention = Contention(fabric, shared=True)
    a, b = sent(gang(2), "n0", "n4", fabric=fabric), sent(gang(2), "n1", "n5", fabric=fabric)
    assert a.GBps_of_link[LEAF, 0] == pytest.approx(40, rel=0.1)
    contention.join("a", a)
    assert list(contention.changed()) == []
    contention.join("b", b)
    assert sorted(contention.changed()) == ["a", "b"]
    assert contention.share("a") == contention.share("b") == pytest.approx(0.5, rel=0.1)
    assert a.stretch(0.5) == pytest.approx(2)
    contention.leave("a")
    assert list(contention.changed()) == ["b"]
    assert contention.share("b") == 1
    assert list(contention.changed()) == []


def test_a_gang_that_comes_back_when_the_link_is_free_has_it_all() -> None:
    fabric = Fabric.build(site(40))
    contention = Contention(fabric, shared=True)
    a, b = sent(gang(2), "n0", "n4", fabric=fabric), sent(gang(2), "n1", "n5", fabric=fabric)
    contention.join("a", a)
    contention.join("b", b)
    list(contention.changed())
    contention.leave("a")
    contention.forget("b")
    list(contention.changed())
    contention.join("a", a)
    assert list(contention.changed()) == ["a"]
    assert contention.share("a") == 1


def test_a_degraded_link_slows_whoever_crosses_it_though_its_capacity_is_unknown() -> None:
    fabric = Fabric.build(cluster(leaves=2, nodes=4, gpus=8))
    contention = Contention(fabric, shared=False)
    contention.join("a", sent(gang(2), "n0", "n4", fabric=fabric))
    contention.join("b", sent(gang(2), "n5", "n6", fabric=fabric))
    contention.degrade((LEAF, 0), 0.25)
    assert list(contention.changed()) == ["a"]
    assert contention.share("a") == 0.25
    contention.degrade((LEAF, 0), 1.0)
    assert list(contention.changed()) == ["a"]
    assert contention.share("a") == 1


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 7)), max_size=25))
def test_shares_depend_on_who_is_there_not_on_who_came_when(steps: list[tuple[str, int]]) -> None:
    """After every step the shares are those of a fabric that all gangs join at once."""
    fabric = Fabric.build(site(60, leaves=3))
    places = ["n0 n4", "n1 n5", "n2 n8", "n3 n9", "n6 n10", "n0 n1", "n8 n9", "n4 n8 n0"]
    all_of = [sent(gang(len(at.split())), *at.split(), fabric=fabric) for at in places]
    live, there = Contention(fabric, shared=True), dict[int, None]()
    for sign, number in steps:
        if sign == "+":
            live.join(str(number), all_of[number])
            there[number] = None
        else:
            live.leave(str(number))
            there.pop(number, None)
        list(live.changed())
        fresh = Contention(fabric, shared=True)
        for each in there:
            fresh.join(str(each), all_of[each])
        list(fresh.changed())
        for each in there:
            assert live.share(str(each)) == pytest.approx(fresh.share(str(each)))


def test_in_a_run_two_gangs_across_one_spine_are_slower_until_one_is_done() -> None:
    """Two nodes a leaf: "spread" puts a member of each gang into each leaf. b, of half the work, ends first."""
    two = site(40, nodes=2)

    def across(row: TraceJob) -> Job:
        job = replace(job_of(row), traffic=TRAFFIC)
        return replace(job, topology=replace(job.topology, spread=Spread("leaf", 1)))

    rows = [TraceJob("a", 0, 100, 2, 8), TraceJob("b", 0, 50, 2, 8)]
    (alone,) = simulate(two, rows[:1], Policy(), running=CONTENTION, jobs=across).jobs
    a, b = simulate(two, rows, Policy(), running=CONTENTION, jobs=across).jobs
    assert alone.stretch is not None
    assert alone.stretch > 1
    assert b.end_s is not None
    assert b.end_s == pytest.approx(50 * 2 * alone.stretch, rel=0.02)
    assert a.end_s == pytest.approx(b.end_s + 50 * alone.stretch, rel=0.02)
    without = RunningModel(step_time=True)
    assert simulate(two, rows, Policy(), running=without, jobs=across).jobs[0] == alone
