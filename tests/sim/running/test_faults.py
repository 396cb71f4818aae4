"""Faults that are drawn: equal for equal seeds, as frequent as their rates say, and repaired before they come again."""

from dataclasses import replace
from itertools import groupby, pairwise

from gantree.model.cluster import Cluster
from gantree.sim.running.faults import Fault, Faults
from gantree.sim.running.model import DAY_S, FailureRate, Failures, RunningModel, Spot
from gantree.testing.builders import cluster
from gantree.topology.fabric.fabric import Fabric

SITE = cluster(leaves=2, nodes=4, gpus=8)
ALL = Failures(
    process=FailureRate(0.02, 0),
    GPU=FailureRate(0.05, 3600),
    node=FailureRate(0.5, 7200),
    domains=(("leaf", FailureRate(0.1, 1800)),),
    links=(("leaf", FailureRate(0.2, 1800, health=0.25)), ("node", FailureRate(0.1, 600))),
)


def faults(
    days: float, seed: int = 0, model: RunningModel | None = None, site: Cluster = SITE
) -> list[Fault]:
    """What happens in so many days from second 1000 on."""
    drawn = Faults(model or RunningModel(failures=ALL), Fabric.build(site), seed, 1000.0)
    found = []
    while (at := drawn.next_moment()) is not None and at < 1000 + days * DAY_S:
        found.append(drawn.pop())
    return found


def test_equal_seeds_give_equal_faults_and_others_give_others() -> None:
    assert faults(30) == faults(30)
    assert faults(30) != faults(30, seed=1)


def test_faults_come_in_the_order_of_time() -> None:
    assert all(a.at_s <= b.at_s for a, b in pairwise(faults(30)))


def test_what_is_broken_is_repaired_before_it_breaks_again() -> None:
    def component(fault: Fault) -> tuple[object, ...]:
        group = fault.kind if fault.kind in {"domain", "link"} else "node"
        return (group, fault.domain)

    for _, of_one in groupby(sorted(faults(200), key=component), key=component):
        states = [fault.up for fault in of_one if fault.kind != "process"]
        assert all(a != b for a, b in pairwise(states))
        assert states[0] is False


def test_each_kind_comes_as_often_as_its_rate_says() -> None:
    """Over 2,000 days within 5 %, less the time in which it is being repaired."""
    found = [fault for fault in faults(2000) if not fault.up]
    count = {
        kind: sum(fault.kind == kind for fault in found)
        for kind in ("process", "GPU", "node", "domain", "link")
    }
    components = {"process": 64, "GPU": 64, "node": 8, "domain": 2}
    per_day = {"process": 0.02, "GPU": 0.05, "node": 0.5, "domain": 0.1}
    broken = 0.4 * 3600 / DAY_S + 0.5 * 7200 / DAY_S
    for kind, number in components.items():
        up = 1 - broken if kind != "domain" else 1.0
        assert abs(count[kind] / (number * per_day[kind] * 2000 * up) - 1) < 0.06, kind
    assert abs(count["link"] / ((2 * 0.2 + 8 * 0.1) * 2000) - 1) < 0.06


def test_a_policy_cannot_change_them_for_they_do_not_know_of_each_other() -> None:
    """With more kinds of component the others fail as before."""
    fewer = RunningModel(failures=Failures(node=ALL.node, process=ALL.process, GPU=ALL.GPU))
    of_nodes = [fault for fault in faults(60) if fault.kind in {"node", "GPU", "process"}]
    assert faults(60, model=fewer) == of_nodes


def test_a_spot_node_is_taken_after_its_notice_and_comes_back() -> None:
    site = cluster(leaves=1, nodes=2, gpus=8)
    site = replace(site, nodes=(site.nodes[0], replace(site.nodes[1], spot=4.0)))
    found = faults(20, model=RunningModel(spot=Spot(notice_s=120, away_s=600)), site=site)
    assert {fault.domain[1] for fault in found} == {1}
    kinds = [(fault.kind, fault.up) for fault in found[:6]]
    assert kinds == [("notice", False), ("spot", False), ("spot", True)] * 2
    assert found[1].at_s == found[0].at_s + 120 == found[0].deadline_at
