"""Label keys that gangs ask domains of, and that are no tiers yet: they become tiers where they nest."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.nodes.asked_levels import MOST_ASKED
from gantree.model.phases import Phase
from support.pods import PodStage

ROW, RACK = "example.com/row", "example.com/rack"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
GANG = {"gantree.io/gang": "g"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """Two rows; the first has racks of one and two nodes, the second one of three."""
    with PodStage(tmp_path) as stage:
        for name, row, rack in (
            ("a0", "r0", "k0"), ("b0", "r0", "k1"), ("b1", "r0", "k1"),
            ("c0", "r1", "k2"), ("c1", "r1", "k2"), ("c2", "r1", "k2"),
        ):  # fmt: skip
            labels: Any = {"example_com__row": row, "example_com__rack": rack}
            stage.nodes(name, gpus=8, **labels, example_com__odd=name[1])
        yield stage


def gang(stage: PodStage, members: int, **annotations: str) -> list[str]:
    names = [f"g-{number}" for number in range(members)]
    told = {"gantree.io/gang-size": str(members), **annotations}
    for name in names:
        stage.pod(name, gpus=8, labels=GANG, annotations=told)
    return names


def tiers(stage: PodStage) -> tuple[str, ...]:
    fabric = stage.controller.ledger.fabric
    assert fabric is not None
    return tuple(fabric.cluster.tiers)


def why(stage: PodStage, name: str) -> str:
    conditions = stage.pods()[name]["status"].get("conditions") or []
    return next((str(each["message"]) for each in conditions if each["status"] == "False"), "")


def test_a_label_of_the_nodes_that_a_gang_asks_for_becomes_a_tier(stage: PodStage) -> None:
    stage.start()
    assert tiers(stage) == ("node",)
    names = gang(stage, 2, **{REQUIRED: RACK})
    stage.until(lambda: stage.bound(*names))
    assert {stage.node_of(name) for name in names} == {"b0", "b1"}
    assert tiers(stage) == ("rack", "node")


def test_a_further_label_is_put_where_it_nests_and_none_moves(stage: PodStage) -> None:
    stage.start(levels=(RACK,))
    names = gang(stage, 3, **{REQUIRED: ROW})
    stage.until(lambda: stage.bound(*names))
    assert len({stage.node_of(name)[0] == "c" for name in names}) == 1
    assert tiers(stage) == ("row", "rack", "node")


def test_a_label_that_divides_the_nodes_as_a_tier_does_is_that_tier(stage: PodStage) -> None:
    stage.start(levels=(RACK,))
    for name in ("a0", "b0", "b1", "c0", "c1", "c2"):
        body = {"metadata": {"labels": {"example.com/switch": f"s-{name[0]}"}}}
        stage.api.patch(f"/api/v1/nodes/{name}", body)
    names = gang(stage, 2, **{REQUIRED: "example.com/switch"})
    stage.until(lambda: stage.bound(*names))
    assert {stage.node_of(name) for name in names} == {"b0", "b1"}
    assert tiers(stage) == ("rack", "node")


def test_a_label_that_does_not_nest_is_refused_with_the_way_out(stage: PodStage) -> None:
    stage.start(levels=(RACK,))
    gang(stage, 2, **{REQUIRED: "example.com/odd"})
    stage.until(lambda: "--level" in why(stage, "g-0"))
    assert why(stage, "g-0") == (
        "Waiting: the site has no topology 'example.com/odd'; its tiers are rack, node. Nodes have that label, but it"
        " is made no tier (its domains do not nest in these, or 8 other labels were asked for): name the levels with"
        " --level, the widest first."
    )
    assert tiers(stage) == ("rack", "node")


def test_a_tier_that_a_gang_runs_in_is_there_after_a_restart(stage: PodStage) -> None:
    stage.start()
    names = gang(stage, 2, **{REQUIRED: RACK})
    stage.until(lambda: stage.bound(*names))
    stage.stop()
    stage.start()
    assert tiers(stage) == ("rack", "node")
    jobs = stage.controller.ledger.jobs
    stage.until(lambda: [state.phase for state in jobs.values()] == [Phase.RUNNING])


def test_after_many_labels_no_further_is_taken(stage: PodStage) -> None:
    labels = {f"example.com/l{number}": "x" for number in range(MOST_ASKED)}
    for name in ("a0", "b0", "b1", "c0", "c1", "c2"):
        stage.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
    stage.start()
    for number, key in enumerate(labels):
        stage.pod(f"p{number}", annotations={REQUIRED: key})
    stage.until(lambda: stage.bound(*(f"p{number}" for number in range(MOST_ASKED))))
    stage.pod("late", annotations={REQUIRED: RACK})
    stage.until(lambda: "8 other labels were asked for" in why(stage, "late"))
