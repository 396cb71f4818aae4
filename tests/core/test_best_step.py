"""A gang in a slower place has on record how long its step would take at its best place, and nothing else has."""

from dataclasses import replace

import pytest

from gantree.formats import read_cluster
from gantree.model.jobs import AxisTraffic, Job, Traffic
from gantree.model.placements import Placement
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

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


def stage_with_free(*free: int) -> Stage:
    """All nodes are taken but these."""
    stage = Stage(SITE)
    stage.submit(*(job(f"j{n}", 1, 2) for n in range(4)))
    stage.started("j0", "j1", "j2", "j3")
    for name in ("j0", "j1", "j2", "j3"):
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
