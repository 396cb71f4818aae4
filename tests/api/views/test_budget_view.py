"""Budgets of queues as rows and in words, from a live ledger."""

from dataclasses import replace

import pytest

from gantree.api.views.accounting.budget_view import budget_in_words
from gantree.api.views.queue_view import queues_json
from gantree.policy.rules import Budget, Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

HOUR_S = 3600.0
DAY = Budget("day", 96.0, "USD", HOUR_S, {"gpus/H100-80GB": 2.0}, 2.0, at_limit="hold")


@pytest.mark.parametrize(
    ("budget", "hours", "words"),
    [
        (DAY, 3.0, "48 of 96 USD (50 %) this day, used up at 1970-01-01 06:00 UTC at the present 16 an hour"),
        (DAY, 6.5, "104 of 96 USD (108 %) this day, used up: nothing starts until 1970-01-02"),
        (replace(DAY, amount=1000.0), 3.0, "48 of 1,000 USD (5 %) this day, 384 at the present rate"),
        (replace(DAY, at_limit="warn"), 6.5, "104 of 96 USD (108 %) this day, 384 at the present rate"),
        (replace(DAY, period="total"), 7.0, "112 of 96 USD (117 %) in all, used up: nothing starts until it is raised"),
    ],
)  # fmt: skip
def test_a_budget_is_told_with_what_it_comes_to(budget: Budget, hours: float, words: str) -> None:
    rules = Policy(queues=(QueueRule("a", budgets=(budget,)), QueueRule("a/x")))
    stage = Stage(cluster(leaves=1, nodes=1), rules)
    stage.submit(replace(job("one", gpus=8), queue="a/x"))
    stage.wait(hours * HOUR_S)
    rows = {row["queue"]: row for row in queues_json(stage.scheduler.ledger, stage.now)}
    assert [row["budgets"] for name, row in rows.items() if name != "a"] == [[], []]
    (told,) = rows["a"]["budgets"]
    assert told["used"] == pytest.approx(16 * hours) and told["per_hour"] == pytest.approx(16)
    assert budget_in_words(told) == words
