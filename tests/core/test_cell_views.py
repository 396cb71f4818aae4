"""How the cells stand is looked at once for all who ask at one moment, and anew when anything may have changed."""

from dataclasses import replace

import pytest

from gantree.core.cycle.cell_plans import CellPlans
from gantree.placement.request.placement_preferences import DEFAULT_PREFERENCES
from gantree.planning.cells.home import CellView
from gantree.policy.rules import Backfill, Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

POLICY = Policy(
    queues=(QueueRule("a", cells=(("node", 1),)), QueueRule("guests")), backfill=Backfill("any")
)


@pytest.fixture
def stage() -> Stage:
    """A guest runs on one of two nodes."""
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), POLICY)
    stage.submit(replace(job("guest", gpus=4), queue="guests"))
    stage.started("guest")
    return stage


def view(cells: CellPlans, stage: Stage, now: float, without: tuple[str, ...] = ()) -> CellView:
    return cells.view(stage.scheduler.ledger, now, without)


def test_one_view_serves_all_who_ask_at_a_moment(stage: Stage) -> None:
    cells = CellPlans(DEFAULT_PREFERENCES)
    first = view(cells, stage, 1.0)
    assert view(cells, stage, 1.0) is first
    left = view(cells, stage, 1.0, ("guest",))
    assert (first.cost_of_gpu > 0).sum() == 4
    assert (left.cost_of_gpu > 0).sum() == 0
    assert view(cells, stage, 1.0) is first


def test_what_a_guest_would_lose_grows_with_time(stage: Stage) -> None:
    cells = CellPlans(DEFAULT_PREFERENCES)
    assert view(cells, stage, 1.0).cost_of_gpu.max() < view(cells, stage, 100.0).cost_of_gpu.max()


def test_what_is_decided_is_seen(stage: Stage) -> None:
    cells = CellPlans(DEFAULT_PREFERENCES)
    assert view(cells, stage, 1.0).bound == ()
    stage.submit(replace(job("home", gpus=4), queue="a"))
    after = view(cells, stage, 1.0)
    assert [one.cell.queue for one in after.bound] == ["a"]
    assert after.homes == {"home": "a"}


def test_another_fabric_is_seen(stage: Stage) -> None:
    """Nothing need be decided for that: cells are read off the fabric of the moment."""
    cells, ledger = CellPlans(DEFAULT_PREFERENCES), stage.scheduler.ledger
    first = view(cells, stage, 1.0)
    assert first.cell_domains is cells.domains(ledger)
    cells._fabric = None
    second = view(cells, stage, 1.0)
    assert second.cell_domains is cells.domains(ledger)
    assert second.cell_domains is not first.cell_domains
