"""`place`, `what-if`, `ranks` and `cost` try the ways of a job as the daemon does, and refuse where none is open."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.core.explain.explain import why
from gantree.formats import read_cluster, read_job
from gantree.testing.stage import Stage

Gantree = Callable[..., Any]
CLUSTER = """
name: mixed
tiers: [node]
machines:
  t4: {gpus: 8, gpu: T4-16GB}
nodes:
  - {names: t0, machine: t4}
  - {names: a0, machine: dgx-a100}
  - {names: h0, machine: dgx-h100}
  - {names: s0, machine: dgx-h100, spot: {per_day: 0.5}}
"""
MODEL = {
    "parameters": "13B", "layers": 40, "hidden": 5120, "sequence": 4096, "batch": 256, "sharded": "optimizer",
}  # fmt: skip


def of(models: str | list[str], **more: object) -> dict[str, object]:
    """A job of one member on a whole node of these models."""
    role = {"role": "w", "members": 1, "each": {"gpus": 8}, "gpu": models, "run": ["true"]}
    return {"name": "j", "gang": [role], "expected": "10h", "checkpoint": {"every": "15m"}, **more}


BOTH = ["A100-80GB", "H100-80GB"]
CASES: dict[str, tuple[dict[str, object], list[str | None]]] = {
    "as listed": (of(BOTH, model=MODEL), ["a0", "h0", None]),
    "by time": (of(BOTH, model=MODEL, choose="time"), ["h0", "a0", None]),
    "by cost, on spot": (of(BOTH, model=MODEL, choose="cost", spot=True), ["s0", "h0", "a0", None]),
    "money for one": (of(BOTH, model=MODEL, budget_USD=700), ["h0", None]),
    "too large": (of("T4-16GB", model=MODEL), [None]),
    "too dear": (of(BOTH, budget_USD=1), [None]),
}  # fmt: skip


@pytest.fixture
def words(tmp_path: Path) -> Callable[..., list[Path]]:
    """A cluster file, and a job file so many times."""

    def write(job: dict[str, object], times: int) -> list[Path]:
        (tmp_path / "c.yaml").write_text(CLUSTER)
        (tmp_path / "j.yaml").write_text(json.dumps(job))
        return [tmp_path / "c.yaml", *[tmp_path / "j.yaml"] * times]

    return write


def decided(job: dict[str, object], times: int) -> list[tuple[str | None, str]]:
    """(node, why there is none) of a job that is handed in so often to the scheduler of the daemon."""
    stage = Stage(read_cluster(CLUSTER, "c.yaml"))
    (spec,) = read_job(json.dumps(job), "j.yaml")
    stage.submit(*(replace(spec, name=f"j{number}") for number in range(times)))
    found: list[tuple[str | None, str]] = []
    for name in (f"j{number}" for number in range(times)):
        told = why(stage.scheduler.ledger, name, 0).sentence
        found.append((stage.nodes(name)[0], "") if stage.nodes(name) else (None, told))
    return found


def told(placements: Sequence[Any]) -> list[tuple[str | None, str]]:
    return [
        (each["members"][0]["node"], "") if each["placed"] else (None, each["why"]["sentence"])
        for each in placements
    ]


@pytest.mark.parametrize("case", CASES)
def test_ways_are_tried_in_their_order_and_told_in_the_words_of_the_daemon(
    gantree: Gantree, words: Callable[..., list[Path]], case: str
) -> None:
    job, nodes = CASES[case]
    outcome = gantree("place", *words(job, len(nodes)), "--json")
    assert outcome.code == 3
    placements = outcome.json()["placements"]
    assert [node for node, _ in told(placements)] == nodes
    assert told(placements) == decided(job, len(nodes))
    (trial,) = gantree("what-if", *words(job, len(nodes)), "--json").json()["trials"]
    assert trial["placements"] == placements


def test_ranks_are_those_of_the_way_that_it_got(
    gantree: Gantree, words: Callable[..., list[Path]]
) -> None:
    job, _ = CASES["by cost, on spot"]
    (placed,) = gantree("place", *words(job, 1), "--ranks", "--json").json()["placements"]
    assert placed["ranks"]["ranks"]
    (trial, without) = gantree("what-if", *words(job, 1), "--without", "s0", "--json").json()[
        "trials"
    ]
    assert [each["placements"][0]["members"][0]["node"] for each in (trial, without)] == [
        "s0",
        "h0",
    ]


@pytest.mark.parametrize("case", CASES)
def test_what_is_ranked_and_priced_is_the_place_that_the_job_gets(
    gantree: Gantree, words: Callable[..., list[Path]], case: str
) -> None:
    job, nodes = CASES[case]
    placed, ranked, priced = (
        gantree(command, *words(job, 1), "--json") for command in ("place", "ranks", "cost")
    )
    (place,) = placed.json()["placements"]
    if nodes[0] is None:
        assert (ranked.code, priced.code) == (3, 3)
        assert ranked.json()["why"] == priced.json()["why"] == place["why"]
        return
    assert {placed["node"] for placed in ranked.json()["ranks"]} == {nodes[0]}
    assert priced.json()["domain"] == place["domain"] == {"tier": "node", "name": nodes[0]}


def test_an_elastic_gang_is_ranked_and_priced_at_the_size_that_it_gets(
    gantree: Gantree, words: Callable[..., list[Path]]
) -> None:
    role = {"role": "w", "members": 4, "each": {"gpus": 8}, "gpu": BOTH, "run": ["true"]}
    job = of(BOTH, elastic={"min": 1, "max": 4}, gang=[role])
    assert len(gantree("ranks", *words(job, 1), "--json").json()["members"]) == 2
    assert gantree("cost", *words(job, 1), "--json").json()["gpus"] == 16
