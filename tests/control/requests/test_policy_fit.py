"""A policy that does not suit the site, or the jobs that it would rule, is refused before the daemon starts."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.control.requests.policy_fit import (
    check_fit,
    jobs_without_queue,
    limits_of_nothing,
    unpriced_models,
    weights_of_nothing,
)
from gantree.core.ledger.ledger import Ledger
from gantree.core.scheduler import Scheduler
from gantree.model.errors import BadInput
from gantree.policy.rules import Budget, Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.topology.fabric.fabric import Fabric

SITE = cluster(leaves=2, nodes=2)  # 32 H100


def fit(*queues: QueueRule) -> None:
    check_fit(Policy(queues=queues), SITE, Ledger())


def test_limits_of_a_model_that_no_node_has_are_told() -> None:
    known, other = {"gpus/H100-80GB": 4.0}, {"gpus": 4.0, "gpus/H100": 4.0}
    a = QueueRule("a", limit=other, lend=known, borrow=known, user_limit=other)
    told = limits_of_nothing(Policy(queues=(a, QueueRule("b", limit=known))), Fabric.build(SITE))
    why = "no node has this model; models here: H100-80GB. Did you mean `H100-80GB`?"
    assert told == [
        f"queue a: limit.gpus.H100: {why}",
        f"queue a: user.limit.gpus.H100: {why}",
    ]


def test_gpu_models_without_a_price_are_told() -> None:
    prices = {"gpus/L4-24GB": 0.7, "gpus/A100-80GB": 3.5, "cpus": 9.0}
    money = Budget("month", 1e4, "USD", 3600.0, prices, 3.5)
    rules = (
        QueueRule("a", budgets=(money,)),
        QueueRule("b", budgets=(replace(money, weights={**prices, "gpus/H100-80GB": 6.0}),)),
        QueueRule("c", budgets=(replace(money, other_gpus=1.0),)),
        QueueRule("d", budgets=(replace(money, unit="GPU-hours"),)),
    )
    assert unpriced_models(Policy(queues=rules), Fabric.build(SITE)) == [
        "queue a: budget.month: H100-80GB has no price and costs as much as the dearest, 3.5 USD an hour: "
        "write prices.gpus.H100-80GB"
    ]


def test_weights_of_a_model_that_no_node_has_are_told() -> None:
    """A weight beside the right name counts nothing, so the model that was meant counts 1."""
    hours = Budget("month", 5e3, "GPU-hours", 3600.0, {"gpus/H100": 0.2, "cpus": 0.01}, 1.0)
    right = replace(hours, weights={"gpus/H100-80GB": 0.2})
    money = replace(hours, unit="USD")
    rules = (QueueRule("a", budgets=(right, hours)), QueueRule("b", budgets=(money,)))
    assert weights_of_nothing(Policy(queues=rules), Fabric.build(SITE)) == [
        "queue a: budget.month: weights.gpus.H100: no node has this model; models here: H100-80GB. "
        "Did you mean `H100-80GB`?"
    ]


def test_what_the_cluster_holds_is_taken() -> None:
    fit()
    fit(QueueRule("a", guarantee={"gpus": 16}), QueueRule("b", guarantee={"gpus/H100-80GB": 16}))
    fit(QueueRule("a", cells=(("leaf", 1),)), QueueRule("b", cells=(("node", 2),)))
    fit(QueueRule("a", cells=(("leaf", 1),)), QueueRule("b", guarantee={"gpus": 16}))
    above, owner = QueueRule("a", guarantee={"gpus": 32}), QueueRule("a/b", cells=(("leaf", 1),))
    fit(above, owner, QueueRule("a/c", guarantee={"gpus": 16}))  # what is above holds for both


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ((QueueRule("a", guarantee={"gpus": 20}), QueueRule("b", guarantee={"gpus": 20})),
         "queue b: guarantee.gpus.any: GPUs guaranteed altogether: 40 \\(a 20, b 20\\), and cluster test has 32"),
        ((QueueRule("a", guarantee={"gpus": 40}), QueueRule("a/b", guarantee={"gpus": 20})),
         "queue a: guarantee.gpus.any: GPUs guaranteed altogether: 40 \\(a 40\\)"),
        ((QueueRule("a"), QueueRule("a/b", guarantee={"gpus/H100-80GB": 33})),
         "queue a/b: guarantee.gpus.H100-80GB: H100-80GB guaranteed altogether: 33 "),
        ((QueueRule("a", guarantee={"devices/fpga": 1}),), "queue a: guarantee.devices.fpga: .* has 0"),
        ((QueueRule("a", guarantee={"gpus/H100": 1}),),
         "queue a: guarantee.gpus.H100: no node has this model; models here: H100-80GB. Did you mean"),
        ((QueueRule("a", cells=(("leaf", 3),)),), "queue a: cells.leaf: 3 cells of tier leaf do not fit .*: 2"),
        ((QueueRule("a", cells=(("leaf", 2),)), QueueRule("b", cells=(("node", 1),))),
         "queue b: cells.node: 1 cell of tier node does not fit"),
        ((QueueRule("a", guarantee={"gpus": 20}), QueueRule("b", cells=(("gpus", 4), ("leaf", 1)))),
         "queue b: cells.gpus: GPUs guaranteed altogether: 40 \\(a 20, b 20 in cells\\), and cluster test has 32; "
         "guarantee less, own fewer cells, or"),
        ((QueueRule("a", cells=(("leaf", 1),)), QueueRule("b", guarantee={"gpus/H100-80GB": 17})),
         "queue b: guarantee.gpus.any: GPUs guaranteed altogether: 33 \\(a 16 in cells, b 17\\)"),
        ((QueueRule("a", cells=(("laef", 1),)),), "queue a: cells.laef: .* no such tier; .* Did you mean `leaf`?"),
    ],
)  # fmt: skip
def test_what_it_does_not_hold_is_refused_in_numbers(
    queues: tuple[QueueRule, ...], words: str
) -> None:
    with pytest.raises(BadInput, match=f"^policy: {words}"):
        fit(*queues)


@pytest.mark.parametrize("rule", [{"guarantee": {"gpus": 40}}, {"cells": (("leaf", 3),)}])
def test_where_nodes_come_and_go_it_is_only_logged(
    rule: Any, caplog: pytest.LogCaptureFixture
) -> None:
    policy = Policy(queues=(QueueRule("a", **rule),))
    check_fit(policy, SITE, Ledger(), may_grow=True)
    assert "more is guaranteed than there is now: policy: queue a: " in caplog.text


def test_all_that_does_not_fit_is_told_at_once_in_the_order_of_the_policy() -> None:
    with pytest.raises(BadInput) as caught:
        fit(
            QueueRule("a", guarantee={"gpus/H100": 40}),
            QueueRule("b", cells=(("leaf", 9),)),
            QueueRule("c", guarantee={"cpus": 1}),
        )
    fields = [line.split(": ")[1:3] for line in str(caught.value).splitlines()]
    assert fields == [
        ["queue a", "guarantee.gpus.H100"],
        ["queue b", "cells.leaf"],
        ["queue c", "guarantee.cpus"],
    ]


def test_jobs_of_a_queue_that_the_policy_lacks_are_found_until_they_end() -> None:
    stage = Stage(SITE, Policy(queues=(QueueRule("old"), QueueRule("new"))))
    stage.submit(*(replace(job(name), queue=name[:3]) for name in ("old-1", "old-2", "new-1")))
    stage.started("old-1", "old-2", "new-1")
    assert jobs_without_queue(stage.scheduler.ledger) == {}
    assert lost_under(stage, QueueRule("new")) == {"old": ["old-1", "old-2"]}
    stage.ended("old-1")
    assert lost_under(stage, QueueRule("new")) == {"old": ["old-2"]}
    assert lost_under(stage) == {}


def lost_under(stage: Stage, *queues: QueueRule) -> dict[str, list[str]]:
    """The jobs without a queue where these are the queues from now on."""
    after = Scheduler(Policy(queues=queues))
    after.recover(stage.facts)
    return jobs_without_queue(after.ledger)


def test_a_class_that_a_job_still_has_must_stay() -> None:
    stage = Stage(SITE)
    stage.submit(job("a", priority="serving"), job("b", priority="batch"))
    stage.started("a", "b")
    without = replace(Policy(), priorities={"batch": 1})
    with pytest.raises(BadInput, match=r"a has not ended.*`serving`.*keep the class"):
        check_fit(without, SITE, stage.scheduler.ledger)
    stage.ended("a")
    check_fit(without, SITE, stage.scheduler.ledger)
