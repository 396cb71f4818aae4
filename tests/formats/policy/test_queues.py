"""The queues of policy.yaml: what they become, and contradictions between them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats import read_policy
from gantree.model.errors import BadFields
from gantree.policy.rules import QueueRule

QUEUES = """\
queues:
  - name: research
    weight: 2
    cohort: all
    guarantee: {gpus: {any: 80, H100-80GB: 64}, cpus: 1000, memory_GiB: 8000, nics: 64, devices: {fpga: 2}}
    limit: {gpus: 128}
    lend: {gpus: {H100-80GB: 32}}
    borrow: {gpus: 16}
    most_running: 100
    most_waiting: 0
    user: {limit: {gpus: 16}, most_running: 4}
    queues:
      - name: nlp
        queues: [{name: llm}]
      - {name: vision, guarantee: {gpus: 40}}
  - name: serving
    cells: [{nvlink: 2}, {leaf: 1}, {gpus: 16}]
"""


def test_a_tree_of_queues_is_read_parents_first() -> None:
    research, nlp, llm, vision, serving = read_policy(QUEUES, "p.yaml").queues
    assert research == QueueRule(
        "research", 2.0, "all",
        guarantee={"gpus": 80.0, "gpus/H100-80GB": 64.0, "cpus": 1000.0, "memory_GiB": 8000.0,
                   "nics": 64.0, "devices/fpga": 2.0},
        limit={"gpus": 128.0}, lend={"gpus/H100-80GB": 32.0}, borrow={"gpus": 16.0},
        most_running=100, most_waiting=0, user_limit={"gpus": 16.0}, most_running_per_user=4,
    )  # fmt: skip
    assert (nlp, llm) == (QueueRule("research/nlp"), QueueRule("research/nlp/llm"))
    assert vision == QueueRule("research/vision", guarantee={"gpus": 40.0})
    assert serving == QueueRule("serving", cells=(("nvlink", 2), ("leaf", 1), ("gpus", 16)))


def test_cells_may_be_one_mapping() -> None:
    (queue,) = read_policy("queues: [{name: a, cells: {leaf: 1, gpus: 8}}]", "p.yaml").queues
    assert queue.cells == (("leaf", 1), ("gpus", 8))


def test_the_same_name_under_two_parents_is_two_queues() -> None:
    text = "queues: [{name: a, queues: [{name: x}]}, {name: b, queues: [{name: x}]}]"
    paths = [queue.path for queue in read_policy(text, "p.yaml").queues]
    assert paths == ["a", "a/x", "b", "b/x"]


@pytest.mark.parametrize(
    "queue",
    [
        "limit: {gpus: 8}, queues: [{name: x, limit: {gpus: 16}}]",
        "guarantee: {gpus: 8}, queues: [{name: x, guarantee: {gpus: 8}}, {name: y}]",
        "guarantee: {gpus: 8}, lend: {gpus: {T4: 8}}",
        "guarantee: {gpus: {T4: 4, A100: 4}}, lend: {gpus: 8}",
        "guarantee: {gpus: 8}, limit: {gpus: {T4: 4}}",
        "cells: {leaf: 1}, lend: {gpus: 4}",
        "cells: {leaf: 1}, guarantee: {cpus: 64}",
        "queues: [{name: x, guarantee: {cpus: 4}}], lend: {cpus: 4}",
        "guarantee: {cpus: 0.5}, limit: {cpus: 0.5}, lend: {cpus: 0}",
        "lend: {gpus: 0}",
        "guarantee: {gpus: 8}, lend: {gpus: 2, idle_after: 1h, keep: {gpus: 6}, return_within: 1m}",
        "queues: [{name: x, guarantee: {gpus: {T4: 4}}}], lend: {idle_after: 10m, keep: {gpus: {T4: 4}}}",
        "lend: {return_within: 30s}",
    ],
)
def test_what_is_no_contradiction(queue: str) -> None:
    assert read_policy(f"queues: [{{name: a, {queue}}}]", "p.yaml").queues[0].path == "a"


@pytest.mark.parametrize(
    ("queues", "line", "field", "words"),
    [
        ("{name: a}\n  - {name: b}\n  - {name: a}", 4, "queues[2].name", "first in line 2"),
        ("{name: a, queues: [{name: x}, {name: x}]}", 2, "queues[0].queues[1].name", "each name once"),
        ("{weight: 1}", 2, "queues[0].name", "required"),
        ("{name: a/b}", 2, "queues[0].name", "a name"),
        ("{name: a, weight: 0}", 2, "queues[0].weight", "above 0"),
        ("{name: a, wieght: 1}", 2, "queues[0].wieght", "Did you mean `weight`?"),
        ("{name: a, queues: [{name: x, limits: {}}]}", 2, "queues[0].queues[0].limits", "`limit`?"),
        ("{name: a, limit: {gpu: 8}}", 2, "queues[0].limit.gpu", "Did you mean `gpus`?"),
        ("{name: a, limit: {tpus: 8}}", 2, "queues[0].limit.tpus", "unknown field"),
        ("{name: a, limit: {gpus: lots}}", 2, "queues[0].limit.gpus", "a mapping of models"),
        ("{name: a, limit: {gpus: {T4: -1}}}", 2, "queues[0].limit.gpus.T4", "0 or more"),
        ("{name: a, limit: 8}", 2, "queues[0].limit", "gpus, cpus"),
        ("{name: a, guarantee: {gpus: 9}, limit: {gpus: 8}}", 2, "queues[0].limit.gpus", "at least its guarantee, 9"),
        ("{name: a, guarantee: {gpus: {T4: 5, A100: 4}}, limit: {gpus: 8}}",
         2, "queues[0].limit.gpus", "its guarantee, 9"),
        ("{name: a, guarantee: {devices: {f: 9}}, limit: {devices: {f: 8}}}",
         2, "queues[0].limit.devices.f", "`8` f devices"),
        ("name: a\n    limit:\n      gpus: {T4: 8}\n    queues: [{name: x, guarantee: {gpus: {T4: 9}}}]",
         4, "queues[0].limit.gpus.T4", "the guarantees below it, 9"),
        ("{name: a, cells: {gpus: 16}, limit: {gpus: 8}}", 2, "queues[0].limit.gpus", "16"),
        ("{name: a, guarantee: {gpus: 8}, queues: [{name: x, guarantee: {gpus: 5}}, {name: y, guarantee: {gpus: 4}}]}",
         2, "queues[0].guarantee.gpus", "guarantees below it, 9"),
        ("{name: a, guarantee: {gpus: 8}, queues: [{name: x, queues: [{name: y, guarantee: {gpus: {T4: 9}}}]}]}",
         2, "queues[0].guarantee.gpus", "guarantees below it, 9"),
        ("{name: a, guarantee: {gpus: 8}, lend: {gpus: 9}}", 2, "queues[0].lend.gpus", "at most its guarantee, 8"),
        ("{name: a, guarantee: {gpus: 8}, lend: {gpus: {T4: 9}}}", 2, "queues[0].lend.gpus.T4", "its guarantee, 8"),
        ("{name: a, guarantee: {gpus: 8}, lend: {idle_after: 0s}}", 2, "queues[0].lend.idle_after", "longer than 0s"),
        ("{name: a, lend: {idle_after: 1h}}", 2, "queues[0].lend.idle_after", "beside a guarantee"),
        ("{name: a, cells: {leaf: 1}, lend: {idle_after: 1h}}", 2, "queues[0].lend.idle_after", "guarantee in amounts"),
        ("name: a\n    guarantee: {gpus: 8}\n    lend:\n      keep: {gpus: 4}", 5, "queues[0].lend.keep", "idle_after"),
        ("{name: a, guarantee: {gpus: 8}, lend: {gpus: 4, idle_after: 1h, keep: {gpus: 5}}}",
         2, "queues[0].lend.keep.gpus", "does not lend at any time, 4"),
        ("{name: a, guarantee: {gpus: 8}, lend: {idle_after: 1h, keep: {gpu: 5}}}",
         2, "queues[0].lend.keep.gpu", "Did you mean `gpus`?"),
        ("{name: a, queues: [{name: x, lend: {return_within: 29s}}]}",
         2, "queues[0].queues[0].lend.return_within", "evictions.grace, 30 s"),
        ("{name: a, queues: [{name: x, idle: {exempt: {priorities: [servin]}}}]}",
         2, "queues[0].queues[0].idle.exempt.priorities[0]", "Did you mean `serving`?"),
        ("{name: a, idle: {warn: 10m, reclaim: 5m}}", 2, "queues[0].idle.reclaim", "a time after warn, 10 min"),
        ("{name: a, idle: never}", 2, "queues[0].idle", "none, or a mapping such as {warn: 10m, reclaim: 15m}"),
        ("{name: a, idle: {below: 1}}", 2, "queues[0].idle.below", "from 0 to 0.99"),
        ("{name: a, lend: {cpus: 1}}", 2, "queues[0].lend.cpus", "its guarantee, 0"),
        ("{name: a, cells: {leaf: 1}, lend: {cpus: 1}}", 2, "queues[0].lend.cpus", "its guarantee, 0"),
        ("{name: a, cells: [{leaf: 1}], guarantee: {gpus: {T4: 8}}}", 2, "queues[0].cells", "the cell `gpus`"),
        ("{name: a, cells: [{leaf: 1}], queues: [{name: x}]}", 2, "queues[0].cells", "without queues below"),
        ("{name: a, cells: [{leaf: 1}, {leaf: 2}]}", 2, "queues[0].cells[1].leaf", "each tier once"),
        ("{name: a, cells: {leaf: 0}}", 2, "queues[0].cells.leaf", "1 or more"),
        ("{name: a, cells: {gpu: 8}}", 2, "queues[0].cells.gpu", "Did you mean `gpus`?"),
        ("{name: a, cells: 3}", 2, "queues[0].cells", "a mapping"),
        ("{name: a, most_running: -1}", 2, "queues[0].most_running", "0 or more"),
        ("{name: a, user: {most_running: 0}}", 2, "queues[0].user.most_running", "1 or more"),
    ],
)  # fmt: skip
def test_a_wrong_queue_is_named_with_its_line(
    queues: str, line: int, field: str, words: str
) -> None:
    with pytest.raises(BadFields) as caught:
        read_policy(f"queues:\n  - {queues}\n", "p.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (line, field)
    assert words in str(problem)


def test_a_boost_is_of_a_queue_that_there_is() -> None:
    boosts = "boosts: [{by: 1, until: 2026-12-01, queue: %s}]\n"
    tree = "queues: [{name: a, queues: [{name: nlp}]}]\n"
    assert read_policy(boosts % "a/nlp" + tree, "p.yaml").boosts[0].queue == "a/nlp"
    assert read_policy(boosts % "any", "p.yaml").boosts[0].queue == "any"
    with pytest.raises(BadFields, match="Did you mean `a/nlp`"):
        read_policy(boosts % "a/nlb" + tree, "p.yaml")


amounts = st.none() | st.integers(0, 6)
leaves = st.fixed_dictionaries({"guarantee": amounts, "limit": amounts, "lend": amounts})
trees = st.recursive(
    leaves,
    lambda inner: st.fixed_dictionaries(
        {"guarantee": amounts, "limit": amounts, "lend": amounts, "queues": st.lists(inner, max_size=3)}
    ),
    max_leaves=6,
)  # fmt: skip


def _written(tree: dict[str, Any], name: str = "q") -> dict[str, Any]:
    told = ("guarantee", "limit", "lend")
    children = [_written(child, f"c{n}") for n, child in enumerate(tree.get("queues", []))]
    return {
        "name": name,
        **{field: {"cpus": tree[field]} for field in told if tree[field] is not None},
        "queues": children,
    }


def _guaranteed(tree: dict[str, Any]) -> int:
    """CPUs that a queue is guaranteed: a plain twin for one resource."""
    if tree["guarantee"] is not None:
        return int(tree["guarantee"])
    return sum(_guaranteed(child) for child in tree.get("queues", []))


def _contradictions(tree: dict[str, Any]) -> Iterator[str]:
    children = tree.get("queues", [])
    if tree["limit"] is not None and _guaranteed(tree) > tree["limit"]:
        yield "limit"
    if tree["guarantee"] is not None and sum(map(_guaranteed, children)) > tree["guarantee"]:
        yield "guarantee"
    if (tree["lend"] or 0) > _guaranteed(tree):
        yield "lend"
    for child in children:
        yield from _contradictions(child)


@given(trees)
def test_every_contradiction_is_told_and_nothing_else(tree: dict[str, Any]) -> None:
    told: list[str] = []
    try:
        read_policy(json.dumps({"queues": [_written(tree)]}), "p.yaml")
    except BadFields as error:
        told = [problem.field.rpartition(".")[0].rpartition(".")[2] for problem in error.problems]
    assert sorted(told) == sorted(_contradictions(tree))
