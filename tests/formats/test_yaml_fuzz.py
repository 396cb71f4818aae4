"""Whatever the text, a reader returns the model or raises a GantreeError, and a good file survives rewriting."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats import read_cluster, read_job, read_policy
from gantree.model.errors import BadFields, GantreeError

DATA = Path(__file__).parents[1] / "data"
CLUSTER = (DATA / "clusters" / "two-leaves.yaml").read_text(encoding="utf-8")
JOB = (DATA / "jobs" / "everything.yaml").read_text(encoding="utf-8")
POLICY = """\
preset: fifo
priorities: {urgent: 900}
evictions: {grace: 60s, min_run: 1m}
fragmentation_weight: 0.5
demand: [{each: {gpus: 1}, weight: 6}, {each: {mig: 1g.10gb}, gpu: A100-80GB}]
"""
Reader = Callable[[str, str], Any]
GOOD: list[tuple[Reader, str]] = [(read_cluster, CLUSTER), (read_job, JOB), (read_policy, POLICY)]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["n[0-3]", "0-9", "15m", "3g.40gb", "node", "leaf", "../x", "1" * 5000, "["])
)
WORDS = """
    name tiers links machines nodes allocations gpus gpu numa nics names machine at labels launch job node gang role
    members each run env topology slices required elastic min max checkpoint restarts after array queue priority
    preset evictions priorities queues parallelism (list) (count) mig instances profile start by share modes tenants
    shares compute isolation alone devices data tier spares spread at_most apart jobs box preferred cube demand weight
"""
words = st.sampled_from(WORDS.split())
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(words | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)
mutations = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.text(max_size=3)), max_size=6
)


def _told(reader: Reader, text: str) -> None:
    """Read; what goes wrong must be told in order, with words in every part."""
    try:
        reader(text, "f.yaml")
    except BadFields as error:
        lines = [problem.line or 0 for problem in error.problems]
        assert lines == sorted(lines)
        for problem in error.problems:
            assert problem.source == "f.yaml"
            assert problem.field
            assert problem.found
            assert problem.allowed
            assert str(problem).isprintable()
            assert (problem.line or 1) <= text.count("\n") + 2 + text.count("\r") + text.count(
                "\x85"
            )
    except GantreeError as error:
        assert str(error)


@pytest.mark.parametrize(("reader", "good"), GOOD)
@given(text=st.text(max_size=200))
def test_random_text_never_raises_anything_else(reader: Reader, good: str, text: str) -> None:
    _told(reader, text)
    _told(reader, good + text)


@pytest.mark.parametrize(("reader", "good"), GOOD)
@given(cuts=mutations)
def test_a_mutated_good_file_never_raises_anything_else(
    reader: Reader, good: str, cuts: list[tuple[int, int, str]]
) -> None:
    for place, length, text in cuts:
        start = place % len(good)
        good = good[:start] + text + good[start + length :]
    _told(reader, good)


@pytest.mark.parametrize(("reader", "good"), GOOD)
@given(data=st.data())
def test_a_value_of_another_kind_anywhere_never_raises_anything_else(
    reader: Reader, good: str, data: st.DataObject
) -> None:
    documents = list(yaml.safe_load_all(good))
    node: Any = documents[0]
    for _ in range(data.draw(st.integers(0, 4))):
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or not node[key]:
            break
        node = node[key]
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    node[data.draw(st.sampled_from(keys) if keys else st.just("x"))] = data.draw(trees)
    _told(reader, "\n---\n".join(json.dumps(document, indent=1) for document in documents))


@pytest.mark.parametrize(("reader", "good"), GOOD)
@settings(max_examples=50)
@given(tree=trees)
def test_any_tree_of_our_words_never_raises_anything_else(
    reader: Reader, good: str, tree: Any
) -> None:
    _told(reader, json.dumps(tree))


@pytest.mark.parametrize(("reader", "good"), GOOD)
def test_a_good_file_written_another_way_reads_the_same(reader: Reader, good: str) -> None:
    """Block style, flow style and JSON are one language. Numbers that are names are quoted to survive it."""
    quoted = good.replace("leaf: 00", 'leaf: "00"').replace("names: 007", 'names: "007"')
    quoted = quoted.replace("LR: 1e-4", 'LR: "1e-4"').replace("DEBUG: True", 'DEBUG: "True"')
    documents = list(yaml.safe_load_all(quoted))
    expected = reader(good, "f.yaml")
    for written in (
        yaml.safe_dump_all(documents, default_flow_style=False, sort_keys=False),
        yaml.safe_dump_all(
            documents, default_flow_style=True, sort_keys=False, explicit_start=True
        ),
        "\n---\n".join(json.dumps(document) for document in documents),
    ):
        assert reader(written, "f.yaml") == expected
