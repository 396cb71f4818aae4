"""Gangs that run and are not on record: taken over in one step where their place is free, else turned down."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.model.events import GangFound, OthersHold
from gantree.model.orders import StartGang
from gantree.model.phases import Phase
from gantree.model.placements import Domain, MemberPlacement, Placement, Predicted
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


def placed(node: str, *gpus: int) -> Placement:
    members = (MemberPlacement("worker", 0, node, gpus),)
    return Placement(members, Domain("node", node), Predicted(0.0, ()))


def found(stage: Stage, name: str, place: Placement, gpus: int = 2, **told: Any) -> None:
    spec = replace(job(name, gpus=gpus), **told)
    stage.tell(GangFound, job=name, spec=spec, attempt=3, placement=place)


def others(stage: Stage, *gpus: int) -> None:
    stage.tell(OthersHold, holder="theirs", members=(MemberPlacement("o", 0, "n0", gpus),))


def test_it_holds_its_place_and_goes_on_as_the_attempt_that_it_is() -> None:
    """Nothing is started; after its end the next attempt is the fourth. To hear of it twice changes nothing."""
    stage = Stage(cluster(leaves=1, nodes=1))
    found(stage, "old", placed("n0", 6, 7))
    found(stage, "old", placed("n0", 0, 1))
    state = stage.state("old")
    assert (state.phase, state.attempt, state.found) == (Phase.STARTING, 3, True)
    assert state.placement == placed("n0", 6, 7)
    assert not [order for order in stage.orders if isinstance(order, StartGang)]
    stage.submit(job("new", gpus=6))
    placement = stage.state("new").placement
    assert placement is not None
    assert placement.gpus_of_node() == {"n0": (0, 1, 2, 3, 4, 5)}


def test_what_others_hold_by_a_guess_is_counted_elsewhere() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    others(stage, 6, 7)
    found(stage, "old", placed("n0", 6, 7))
    held = {owner: m[0].gpus for owner, m in stage.scheduler.ledger.rooms().owners.items()}
    assert held == {"old": (6, 7), "site:theirs": (4, 5)}


@pytest.mark.parametrize(
    ("place", "gpus", "told", "reason"),
    [
        (placed("n0", 0, 1), 2, {}, "it was found running, and"),
        (placed("n9", 6, 7), 2, {}, "it was found running, and"),
        (placed("n0", 6), 2, {}, "otherwise than its job asks for"),
        (placed("n0", 6, 7), 2, {"priority": "nobody"}, "nobody"),
    ],
    ids=["room is taken", "no such node", "another number of GPUs", "no such class"],
)
def test_one_that_cannot_be_so_is_turned_down(
    place: Placement, gpus: int, told: dict[str, Any], reason: str
) -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("first", gpus=2))
    found(stage, "old", place, gpus, **told)
    ledger = stage.scheduler.ledger
    assert "old" not in ledger.jobs
    assert reason in ledger.rejected["old"]
