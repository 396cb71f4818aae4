"""Budgets in policy.yaml: what they become, and where they are wrong."""

import pytest

from gantree.formats import read_policy
from gantree.model.errors import BadFields
from gantree.policy.budgets import cost
from gantree.policy.rules import Budget
from gantree.topology.hardware.prices import LIST_PRICES


def budgets(text: str) -> tuple[Budget, ...]:
    (rule,) = read_policy(f"queues:\n  - name: a\n    budget: {text}\n", "p.yaml").queues
    return rule.budgets


def test_a_budget_of_money_counts_hours_at_the_prices_that_are_written() -> None:
    (budget,) = budgets(
        "{month: 10000 EUR, prices: {gpus: {H100-80GB: 3.5, L4-24GB: 0.5}, cpus: 0.03}, "
        'alerts: ["100%", "50%", 80 %], at_limit: stop}'
    )
    assert (budget.period, budget.amount, budget.unit) == ("month", 10_000.0, "EUR")
    assert budget.alerts == (0.5, 0.8, 1.0) and budget.at_limit == "stop"
    held = {"gpus": 3.0, "gpus/H100-80GB": 2.0, "gpus/T4-16GB": 1.0, "cpus": 10.0, "nics": 8.0}
    assert cost(budget, held) == pytest.approx(2 * 3.5 + 3.5 + 0.3)  # a T4 counts as the dearest
    assert budget.per_s == 3600.0


def test_without_prices_a_budget_in_dollars_goes_by_list_prices_as_they_are_when_it_is_read() -> (
    None
):
    (budget,) = budgets("{week: 500.5 USD}")
    quotes = {
        quote.gpu: quote.USD_per_hour for quote in LIST_PRICES.quotes if quote.market == "on_demand"
    }
    assert budget.weights["gpus/H100-80GB"] == quotes["H100-80GB"]
    assert budget.other_gpus == max(quotes.values())
    (mixed,) = budgets("{week: 500.5 USD, prices: {gpus: {H100-80GB: 1}, memory_GiB: 0.01}}")
    assert mixed.weights["gpus/H100-80GB"] == 1.0 and mixed.weights["memory_GiB"] == 0.01
    assert mixed.weights["gpus/A100-80GB"] == quotes["A100-80GB"]
    (flat,) = budgets("{week: 500.5 USD, prices: {gpus: 2}}")
    assert flat.other_gpus == 2.0 and not flat.weights


def test_a_queue_may_have_a_budget_for_each_period_and_gpus_count_by_weights() -> None:
    minutes, total = budgets(
        "[{month: 300000 GPU-minutes, weights: {gpus: {L4-24GB: 0.2}, cpus: 0.01}}, {total: 9 GPU-hours}]"
    )
    assert cost(minutes, {"gpus": 2.0, "gpus/L4-24GB": 1.0, "cpus": 4.0}) == pytest.approx(1.24)
    assert minutes.per_s == 60.0 and minutes.alerts == (0.5, 0.8, 1.0)
    assert (total.period, total.at_limit, total.other_gpus) == ("total", "hold", 1.0)


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("{month: 10000}", "queues[0].budget.month", "an amount above 0 such as 10000 USD"),
        ("{month: 0 USD}", "queues[0].budget.month", "an amount above 0"),
        ("{month: 5 dollars}", "queues[0].budget.month", "an amount above 0"),
        ("{alerts: 50%}", "queues[0].budget.month", "one of day, week, month, total"),
        ("{month: 5 USD, week: 5 USD}", "queues[0].budget.week", "one of day, week"),
        ("[{day: 5 USD}, {day: 4 USD}]", "queues[0].budget[1].day", "one budget for each period"),
        ("{month: 5 EUR}", "queues[0].budget.prices", "prices.gpus in EUR"),
        ("{month: 5 EUR, prices: {cpus: 1}}", "queues[0].budget.prices", "prices.gpus in EUR"),
        ("{month: 5 USD, weights: {cpus: 1}}", "queues[0].budget.weights", "prices"),
        ("{month: 5 GPU-hours, prices: {cpus: 1}}", "queues[0].budget.prices", "weights"),
        ("{month: 5 USD, alerts: [0.5]}", "queues[0].budget.alerts[0]", "a percentage such as 80%"),
        ("{month: 5 USD, alerts: [0%]}", "queues[0].budget.alerts[0]", "a percentage such as 80%"),
        ("{month: 5 USD, at_limit: stopp}", "queues[0].budget.at_limit", "Did you mean `stop`?"),
        ("{month: 5 USD, prices: {gpus: {H100-80GB: -1}}}", "queues[0].budget.prices.gpus", "0 or more"),
        ("{monthly: 5 USD}", "queues[0].budget.monthly", "month"),
    ],
)  # fmt: skip
def test_a_bad_budget_is_refused_with_line_field_and_the_way_out(
    text: str, field: str, words: str
) -> None:
    with pytest.raises(BadFields) as refused:
        budgets(text)
    (problem,) = refused.value.problems
    assert (problem.source, problem.line) == ("p.yaml", 3)
    assert problem.field.startswith(field)
    assert words in f"{problem.allowed} {problem.hint}"
