"""What another policy would change, in words: as a policy file says it, and short."""

from gantree.api.views.job_view import plain
from gantree.cli.queues.policy_diff import change_text
from gantree.control.requests.policy_change import rule_changes
from gantree.formats import read_policy

NOTHING: dict[str, list[str]] = {
    key: [] for key in ("starts", "stops", "loses_guarantee", "gains_guarantee", "priorities")
}
QUEUE = "queues: [{name: a, weight: 1, guarantee: {gpus: {H100-80GB: 8}}}]\n"


def told(before: str, after: str) -> list[str]:
    policies = (read_policy(f"preset: gantree\n{text}", "p.yaml") for text in (before, after))
    change = {**NOTHING, "rules": plain(list(rule_changes(*policies))), "without_queue": {}}
    rules, _, effects = change_text(change).partition("\n\n")
    assert effects == "No decision changes now."
    return rules.splitlines()


def test_what_is_doubtful_is_no_decision() -> None:
    change = {**NOTHING, "rules": [], "without_queue": {}, "warnings": ["queue b: no such model"]}
    assert change_text(change).splitlines()[-2:] == [
        "No decision changes now.",
        "queue b: no such model",
    ]


def test_a_rule_reads_as_in_a_policy_file() -> None:
    assert told("elastic: true", "elastic: false") == ["- elastic: true", "+ elastic: false"]
    assert told("", "half_life: 1d")[-1] == "+ half_life_s: 86400"
    assert told("", "") == ["No rule changes."]


def test_a_table_of_seventy_weights_takes_two_lines() -> None:
    before, after = told("gpu_weights: {by: price}", "gpu_weights: {by: speed}")
    assert before.startswith("- gpu_weights: {") and after.startswith("+ gpu_weights: {")
    assert after.count(":") == 5 and after.endswith(" more}")
    assert len(after) < 140


def test_each_rule_of_a_queue_has_a_line_of_its_own() -> None:
    lines = told("queues: [{name: b}]", QUEUE)
    assert lines == [
        "- queues.b.weight: 1",
        "+ queues.a.weight: 1",
        "+ queues.a.guarantee.gpus/H100-80GB: 8",
    ]


def test_budgets_are_told_in_a_line_each_without_list_prices() -> None:
    before = "queues: [{name: a, budget: [{month: 500 USD}, {total: 9 GPU-hours}]}]"
    prices = "prices: {gpus: {L4-24GB: 0.5}, cpus: 0.02}"
    after = f"queues: [{{name: a, budget: {{month: 800 USD, {prices}, at_limit: stop}}}}]"
    alerts = "alerts 50%, 80%, 100%"
    own = "gpus/L4-24GB 0.5, cpus 0.02"
    assert told(before, after) == [
        f"- queues.a.budget.month: 500 USD, {alerts}, at_limit hold, other GPUs 7.4, list prices",
        f"+ queues.a.budget.month: 800 USD, {alerts}, at_limit stop, other GPUs 7.4, {own}, list prices",
        f"- queues.a.budget.total: 9 GPU-hours, {alerts}, at_limit hold, other GPUs 1",
    ]
