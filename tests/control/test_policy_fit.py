"""A policy that does not suit the site, or the jobs that it would rule, is refused before the daemon starts."""

from dataclasses import replace

import pytest

from gantree.control.policy_fit import check_fit
from gantree.core.ledger import Ledger
from gantree.model.errors import BadInput
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

SITE = cluster(leaves=2, nodes=2)  # 32 H100


def fit(*queues: QueueRule) -> None:
    check_fit(Policy(queues=queues), SITE, Ledger())


def test_what_the_cluster_holds_is_taken() -> None:
    fit()
    fit(QueueRule("a", guarantee={"gpus": 16}), QueueRule("b", guarantee={"gpus/H100-80GB": 16}))
    fit(QueueRule("a", cells=(("leaf", 1),)), QueueRule("b", cells=(("node", 2),)))


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ((QueueRule("a", guarantee={"gpus": 20}), QueueRule("b", guarantee={"gpus": 20})), "40 GPUs .*a 20, b 20.* 32"),
        ((QueueRule("a", guarantee={"gpus/A100-80GB": 1}),), "1 A100-80GB .* has 0"),
        ((QueueRule("a", cells=(("leaf", 3),)),), "queue a: 3 cells of tier leaf do not fit"),
        ((QueueRule("a", cells=(("laef", 1),)),), "did you mean 'leaf'"),
    ],
)  # fmt: skip
def test_what_it_does_not_hold_is_refused_in_numbers(
    queues: tuple[QueueRule, ...], words: str
) -> None:
    with pytest.raises(BadInput, match=f"policy: .*{words}"):
        fit(*queues)


def test_a_class_that_a_job_still_has_must_stay() -> None:
    stage = Stage(SITE)
    stage.submit(job("a", priority="serving"), job("b", priority="batch"))
    stage.started("a", "b")
    without = replace(Policy(), priorities={"batch": 1})
    with pytest.raises(BadInput, match=r"a has not ended.*`serving`.*keep the class"):
        check_fit(without, SITE, stage.scheduler.ledger)
    stage.ended("a")
    check_fit(without, SITE, stage.scheduler.ledger)
