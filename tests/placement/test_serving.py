"""Where a service goes: each of its instances on GPUs with links between them."""

from pathlib import Path

import pytest

from gantree.formats import read_cluster, read_job
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

EXAMPLE = Path(__file__).parents[2] / "examples/serving"


def chat() -> Job:
    (job,) = read_job((EXAMPLE / "chat.yaml").read_text(encoding="utf-8"), "chat.yaml")
    return job


def test_the_example_takes_two_bridged_pairs() -> None:
    cluster = read_cluster((EXAMPLE / "cluster.yaml").read_text(encoding="utf-8"), "cluster.yaml")
    answer = place(Occupancy(Fabric.build(cluster)), chat(), PlacementPreferences())
    assert isinstance(answer, Placement)
    assert [member.gpus for member in answer.members] == [(2, 3), (4, 5)]
    assert answer.predicted.step_s == pytest.approx(0.341, abs=0.001)


def test_an_exact_search_finds_no_slower_place() -> None:
    pytest.importorskip("ortools")
    cluster = read_cluster((EXAMPLE / "cluster.yaml").read_text(encoding="utf-8"), "cluster.yaml")
    answer = place(Occupancy(Fabric.build(cluster)), chat(), PlacementPreferences(exact_s=2.0))
    assert isinstance(answer, Placement)
    assert answer.predicted.step_s == pytest.approx(0.341, abs=0.001)
