"""policy.yaml: presets and what overrides them, and what this version refuses to pass over."""

from dataclasses import replace

import pytest

from gantree.formats import read_policy
from gantree.formats.policies import PRESETS
from gantree.model.errors import BadFields, Unsupported
from gantree.model.jobs import Shape
from gantree.policy.rules import DEFAULT_PRIORITIES, Policy


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_alone_is_a_whole_policy(name: str) -> None:
    assert read_policy(f"preset: {name}\n", "p.yaml") == PRESETS[name]


def test_the_rest_overrides_the_preset() -> None:
    text = (
        "preset: fifo\npriorities: {urgent: 900, batch: 5}\npreempt: true\n"
        "evictions: {per_job_per_day: 4, min_run: 10m, grace: 60s}\n"
    )
    expected = Policy(
        priorities={**DEFAULT_PRIORITIES, "urgent": 900, "batch": 5},
        grace_s=60.0,
        min_run_s=600.0,
        evictions_per_day=4,
    )
    assert read_policy(text, "p.yaml") == expected


def test_what_a_site_prefers_of_places_is_read() -> None:
    text = (
        "fragmentation_weight: 1.5\ndemand:\n"
        "  - {each: {gpus: 1, cpus: 8}, weight: 6}\n"
        "  - {each: {mig: 3g.40gb}, gpu: A100-80GB, node_labels: {pool: a}}\n"
    )
    demand = (
        (Shape(1, 8.0), 6.0),
        (Shape(mig="3g.40gb", models=("A100-80GB",), labels=(("pool", "a"),)), 1.0),
    )
    policy = read_policy(text, "p.yaml")
    assert policy == replace(PRESETS["gantree"], fragmentation_weight=1.5, demand=demand)


def test_a_weight_of_nothing_is_no_missing_weight() -> None:
    assert read_policy("fragmentation_weight: 0\n", "p.yaml").fragmentation_weight == 0


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("preset: gantre\n", 1, "preset", "Did you mean `gantree`?"),
        ("preset: 3\n", 1, "preset", "`3`"),
        ("prest: fifo\n", 1, "prest", "Did you mean `preset`?"),
        ("preset: fifo\npriorities: {batch: high}\n", 2, "priorities.batch", "a whole number"),
        ("preset: fifo\npriorities: {batch: true}\n", 2, "priorities.batch", "`true`"),
        ("preset: fifo\npriorities: {a/b: 1}\n", 2, "priorities.a/b", "a name"),
        ("preset: fifo\npreempt: 1\n", 2, "preempt", "true or false"),
        ("preset: fifo\npreempt: yes\n", 2, "preempt", "true or false"),
        ("evictions:\n  grace: 1x\n", 2, "evictions.grace", "a duration"),
        ("evictions:\n  per_job_per_day: -1\n", 2, "evictions.per_job_per_day", "0 or more"),
        ("evictions:\n  minrun: 1m\n", 2, "evictions.minrun", "Did you mean `min_run`?"),
        ("fragmentation_weight: 11\n", 1, "fragmentation_weight", "a number from 0 to 10"),
        ("fragmentation_weight: heavy\n", 1, "fragmentation_weight", "`heavy`"),
        ("demand: {each: {gpus: 1}}\n", 1, "demand", "a list"),
        ("demand:\n  - {weight: 1}\n", 2, "demand[0].each", "required"),
        ("demand:\n  - {each: {}, weight: 0}\n", 2, "demand[0].weight", "above 0"),
        ("demand:\n  - {each: {gpus: 1, mig: 3g.40gb}}\n", 2, "demand[0].each.mig", "one of gpus, mig"),
        ("demand:\n  - {each: {mig: 3g.40gb}, gpu: T4-16GB}\n", 2, "demand[0].each.mig", "a GPU with MIG"),
        ("half_life: 7d\nprest: x\n", 2, "prest", "unknown field"),
        ("", 1, "document", "an empty file"),
        ("preset: fifo\n---\npreset: fifo\n", 3, "document", "a second document"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_line(text: str, line: int, field: str, words: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_policy(text, "p.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (line, field)
    assert words in str(problem)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("preset: fair\n", ["p.yaml:1: preset"]),
        ("preset: gantree\nqueues: [{name: a}]\n", ["p.yaml:2: queues"]),
        ("half_life: 7d\nbackfill: {}\n", ["p.yaml:1: half_life", "p.yaml:2: backfill"]),
        ("cells:\n  - {leaf: 1}\n", ["p.yaml:1: cells"]),
    ],
)
def test_what_this_version_cannot_honour_is_unsupported(text: str, where: list[str]) -> None:
    with pytest.raises(Unsupported) as caught:
        read_policy(text, "p.yaml")
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] + ": " + line.split(": ")[1] for line in lines] == where


@pytest.mark.parametrize(
    "text", ["\ufeffpreset: fifo\n", "preset: fifo\r\n", "{preset: fifo}", "preset: 'fifo'"]
)
def test_byte_order_mark_line_ends_and_quotes_do_not_matter(text: str) -> None:
    assert read_policy(text, "p.yaml") == PRESETS["fifo"]
