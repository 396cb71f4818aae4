"""A gang in a slower place has on record how long its step would take at its best place, and nothing else has."""

from dataclasses import replace

import pytest

from gantree.core.lifecycle import best_step
from gantree.formats import read_cluster
from gantree.model.cluster import Cluster, DataSet, Node
from gantree.model.jobs import AxisTraffic, DataNeed, Job, Spread, TopologySpec, Traffic
from gantree.model.placements import Placement
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.topology.hardware.catalog import machine

SITE = cluster(leaves=2, nodes=2, gpus=2)
TRAFFIC = Traffic((AxisTraffic("data", 1e9),), compute_s=0.01)


SLOW = {"n4", "n5"}
"""They are a leaf that a gang of two nodes leaves no GPU of, and have no NVLink."""
UNEVEN = """
name: uneven
tiers: [leaf, node]
machines:
  fast: {gpus: 2, gpu: H100-80GB, links: [[X, NV18], [NV18, X]]}
  slow: {gpus: 2, gpu: H100-80GB, links: [[X, SYS], [SYS, X]]}
nodes:
  - {names: "n[0-3]", machine: fast, at: {leaf: l0}}
  - {names: "n[4-5]", machine: slow, at: {leaf: l1}}
"""


def training(name: str) -> Job:
    plain = job(name, 2, 2, processes=2)
    return replace(plain, parallelism=(("data", 4),), traffic=TRAFFIC)


def stage_with_free(*free: int, site: Cluster = SITE) -> Stage:
    """All nodes are taken but these."""
    stage = Stage(site)
    names = [f"j{n}" for n in range(len(site.nodes))]
    gpus = site.machines[site.nodes[0].machine].gpus
    stage.submit(*(job(name, 1, gpus) for name in names))
    stage.started(*names)
    for name in names:
        if stage.nodes(name)[0] in {f"n{n}" for n in free}:
            stage.ended(name)
    return stage


def placed(stage: Stage, wanted: Job) -> Placement:
    stage.submit(wanted)
    placement = stage.state(wanted.name).placement
    assert placement is not None
    return placement


def test_a_gang_over_two_leaves_is_slower_than_at_its_best_place() -> None:
    predicted = placed(stage_with_free(0, 2), training("x")).predicted
    best = placed(stage_with_free(0, 1), training("x")).predicted
    assert predicted.step_s is not None and best.step_s is not None
    assert best.step_s < predicted.step_s
    assert predicted.best_step_s == best.step_s
    assert predicted.slower == pytest.approx(1 - best.step_s / predicted.step_s)
    assert 0 < predicted.slower < 1
    assert (best.best_step_s, best.slower) == (None, 0.0)


def test_the_best_place_is_that_which_the_job_may_have() -> None:
    apart = replace(training("x"), topology=replace(training("x").topology, required="spine"))
    assert placed(stage_with_free(0, 2), apart).predicted.slower > 0


def test_the_best_place_is_the_fastest_whatever_the_policy_prefers() -> None:
    packing = replace(Policy(), fragmentation_weight=100.0)
    stage = Stage(read_cluster(UNEVEN, "cluster.yaml"), packing)
    stage.submit(*(job(f"j{n}", 1, 2) for n in range(6)))
    for name in [name for name in (f"j{n}" for n in range(6)) if stage.nodes(name)[0] in SLOW]:
        stage.started(name)
        stage.ended(name)
    predicted = placed(stage, training("x")).predicted
    assert set(stage.nodes("x")) == SLOW and predicted.slower > 0


def test_a_gang_that_tells_no_traffic_has_no_best_step() -> None:
    silent = replace(training("x"), traffic=None)
    assert placed(stage_with_free(0, 2), silent).predicted.best_step_s is None


def test_data_that_a_gang_reads_is_not_that_of_another_gang() -> None:
    """The data is on one node of each leaf, so these two are the best place of a gang that reads it."""
    data = (DataSet("set", "node", "n0"), DataSet("set", "node", "n2"))
    stage = stage_with_free(0, 2, site=replace(SITE, data=data))
    assert placed(stage, training("x")).predicted.slower > 0
    stage.started("x")
    stage.ended("x")
    reads = replace(training("y"), data=(DataNeed("set", 1e6),))
    assert placed(stage, reads).predicted.best_step_s is None


def test_a_gang_that_spreads_over_leaves_is_not_compared_with_one_that_does_not() -> None:
    stage = stage_with_free(0, 2)
    assert placed(stage, training("x")).predicted.slower > 0
    stage.started("x")
    stage.ended("x")
    apart = replace(training("y"), topology=TopologySpec(spread=Spread("leaf", 1)))
    assert placed(stage, apart).predicted.best_step_s is None


def test_the_best_place_is_on_the_model_that_the_gang_has() -> None:
    machines = {name: machine(name) for name in ("dgx-h100", "dgx-a100")}
    of_node = ("dgx-h100", "dgx-h100", "dgx-a100", "dgx-a100", "dgx-a100", "dgx-a100")
    nodes = tuple(Node(f"n{n}", name, ("s0", f"l{n // 2}")) for n, name in enumerate(of_node))
    site = replace(SITE, machines=machines, nodes=nodes)
    models = tuple(one.gpu or "" for one in machines.values())
    shape = replace(training("x").roles[0].shape, gpus=8, models=models)
    role = replace(training("x").roles[0], shape=shape, processes=8)
    wants = replace(training("x"), roles=(role,), parallelism=(("data", 16),))
    on_h100 = placed(stage_with_free(0, 1, site=site), wants).predicted
    on_a100 = placed(stage_with_free(2, 3, site=site), wants).predicted
    assert on_h100.step_s != on_a100.step_s
    apart = placed(stage_with_free(2, 4, site=site), wants).predicted
    assert apart.best_step_s == on_a100.step_s


def test_of_a_gang_that_is_too_large_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_step, "MOST_GPUS", 3)
    assert placed(stage_with_free(0, 2), training("x")).predicted.best_step_s is None
