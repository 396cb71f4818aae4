"""A burn-in starts at once on exactly the cordoned nodes that it names, and on no others; nothing else starts there."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gantree.control.requests.burn_ins import burn_in_of
from gantree.model.events import (
    BurnInRequested,
    CordonRequested,
    GangEnded,
    GangStartFailed,
    NodeLost,
)
from gantree.model.facts import GangPlaced
from gantree.model.orders import StartGang
from gantree.model.phases import Phase
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Three nodes of 8 GPUs, of which n1 and n2 are cordoned and empty."""
    made = Stage(cluster(leaves=1, nodes=3))
    for node in ("n1", "n2"):
        made.tell(CordonRequested, node=node, reason="back from repair")
    yield made
    made.check_recovery()


def burn_in(stage: Stage, *nodes: str, name: str = "b") -> None:
    spec = burn_in_of(stage.scheduler.ledger, nodes, 600.0, "default", "op")
    stage.tell(BurnInRequested, job=name, spec=spec)


def rejected(stage: Stage, name: str = "b") -> str:
    return stage.scheduler.ledger.rejected[name]


def test_it_starts_on_the_nodes_it_names_with_all_their_gpus(stage: Stage) -> None:
    burn_in(stage, "n1", "n2")
    placement = stage.state("b").placement
    assert placement is not None
    assert placement.gpus_of_node() == {"n1": tuple(range(8)), "n2": tuple(range(8))}
    (start,) = [order for order in stage.orders if isinstance(order, StartGang)]
    assert start.check is not None
    assert (start.check.required, start.check.soak_s, start.check_replaces) == (True, 360.0, False)


def test_nothing_else_starts_there_meanwhile_or_afterwards(stage: Stage) -> None:
    burn_in(stage, "n1")
    stage.submit(job("j", members=2, gpus=8))
    assert stage.phase("j") is Phase.PENDING
    stage.started("b")
    stage.tell(GangEnded, job="b", attempt=1, exit_code=0)
    assert stage.phase("b") is Phase.SUCCEEDED
    assert stage.phase("j") is Phase.PENDING


def test_one_that_fails_is_over_and_is_not_started_again(stage: Stage) -> None:
    burn_in(stage, "n1")
    stage.tell(GangStartFailed, job="b", attempt=1, reason="node n1 failed the check: GPU 3")
    stage.tell(GangEnded, job="b", attempt=1, exit_code=126)
    assert (stage.phase("b"), stage.state("b").reason) == (
        Phase.FAILED,
        "node n1 failed the check: GPU 3",
    )


def test_one_whose_node_is_lost_is_over_too(stage: Stage) -> None:
    burn_in(stage, "n1")
    stage.started("b")
    stage.tell(NodeLost, node="n1")
    stage.tell(GangEnded, job="b", attempt=1, exit_code=137)
    assert stage.phase("b") is Phase.FAILED
    assert [fact for fact in stage.facts if isinstance(fact, GangPlaced)][1:] == []


def test_a_drain_does_not_move_it(stage: Stage) -> None:
    burn_in(stage, "n1")
    stage.started("b")
    stage.tell(CordonRequested, node="n1", drain=True)
    stage.wait(1)
    assert stage.phase("b") is Phase.RUNNING


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("n0", "node n0 is not cordoned: `gantree drain n0` first"),
        ("n9", "there is no node n9"),
    ],
)
def test_nodes_in_use_are_refused(stage: Stage, node: str, reason: str) -> None:
    spec = burn_in_of(stage.scheduler.ledger, ("n1",), 600.0, "default", "op")
    stage.tell(BurnInRequested, job="b", spec=replace(spec, on_cordoned=(node,)))
    assert rejected(stage) == reason


def test_a_node_where_a_gang_still_runs_is_refused() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("j", members=1, gpus=8))
    stage.tell(CordonRequested, node="n0")
    burn_in(stage, "n0")
    assert rejected(stage) == "node n0 has j: `gantree drain n0` lets them leave"
