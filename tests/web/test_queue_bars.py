"""Queues as bars: what is used, borrowed and lent of what, and whose share is fair."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.api.views.queue_view import queues_json
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.web.pages.nodes import found_nodes
from gantree.web.pages.queues.bars import amount_bars, share_bars

RULES = (
    QueueRule("a", weight=3.0, guarantee={"gpus": 8}, limit={"gpus": 24}, cohort="all"),
    QueueRule("b", weight=1.0, guarantee={"gpus": 16}, cohort="all"),
    QueueRule("b/x", weight=1.0),
    QueueRule("b/y", weight=3.0),
    QueueRule("c", weight=4.0),
)


def rows_of(*jobs: tuple[str, str, int]) -> dict[str, dict[str, Any]]:
    stage = Stage(cluster(leaves=1, nodes=4), Policy(queues=RULES, share_users=True))
    stage.submit(*(replace(job(name, 1, gpus), queue=queue) for name, queue, gpus in jobs))
    return {row["name"]: row for row in queues_json(stage.scheduler.ledger, stage.now)}


def test_a_bar_is_as_long_as_the_limit_and_tells_own_borrowed_and_guaranteed() -> None:
    rows = rows_of(("j1", "a", 8), ("j2", "a", 4))
    (bar,) = amount_bars(rows["a"], rows["the cluster"])
    assert (bar.used, bar.borrowed, bar.guarantee, bar.limit) == (12, 4, 8, 24)
    assert (bar.own_part, bar.borrowed_part) == pytest.approx((8 / 24, 4 / 24))
    assert (bar.guarantee_at, bar.limit_at) == pytest.approx((8 / 24, 1))
    assert bar.words == "gpus: 12 in use, 4 of it borrowed, 8 guaranteed, at most 24"


def test_without_a_limit_a_bar_is_as_long_as_the_cluster() -> None:
    rows = rows_of(("j1", "c", 8))
    (bar,) = amount_bars(rows["c"], rows["the cluster"])
    assert bar.own_part + bar.borrowed_part == pytest.approx(8 / 32)
    assert bar.limit_at is None


def test_what_is_lent_is_told_and_drawn_within_the_guarantee() -> None:
    rows = rows_of(("j1", "a", 8), ("j2", "a", 8), ("j3", "a", 8))
    (bar,) = amount_bars(rows["b"], rows["the cluster"])
    assert bar.lent > 0 and bar.guarantee_at is not None
    assert 0 < bar.lent_part <= bar.guarantee_at
    assert "lent" in bar.words


def test_fair_parts_follow_the_weights_among_those_below_the_same_parent() -> None:
    rows = list(rows_of(("j1", "c", 8)).values())
    told = dict(zip([row["name"] for row in rows], share_bars(rows), strict=True))
    fair = {name: bar.fair for name, bar in told.items() if bar is not None}
    assert (fair["cohort all"], fair["c"]) == (0.5, 0.5)
    assert (fair["a"], fair["b"]) == (0.375, 0.125)
    assert (fair["b/x"], fair["b/y"]) == (0.03125, 0.09375)
    share = told["c"]
    assert share is not None and 0 < share.real <= 1
    assert told["the cluster"] is None


def node(name: str, state: str = "ready", free: int = 0, **more: Any) -> dict[str, Any]:
    row = {
        "node": name,
        "state": state,
        "free_gpus": free,
        "machine": "m8",
        "domains": {"leaf": "l0"},
    }
    return {**row, "labels": {}, "jobs": [], **more}


@pytest.mark.parametrize(
    ("which", "find", "names"),
    [
        ("all", "", ["n0", "n1", "n2", "n3"]),
        ("free", "", ["n1"]),
        ("cordoned", "", ["n2"]),
        ("all", "pool=a", ["n0"]),
        ("all", "TRAIN", ["n3"]),
        ("ready", "l0", ["n0", "n1", "n3"]),
        ("lost", "", []),
    ],
)
def test_nodes_are_found_by_state_name_domain_label_and_job(
    which: Any, find: str, names: list[str]
) -> None:
    rows = [
        node("n0", labels={"pool": "a"}),
        node("n1", free=4),
        node("n2", "cordoned", free=8),
        node("n3", jobs=[{"job": "train-7"}]),
    ]
    assert [row["node"] for row in found_nodes(rows, which, find)] == names
