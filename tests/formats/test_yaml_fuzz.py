"""Whatever the text, a reader returns the model or raises a GantreeError, and a good file survives rewriting."""

import io
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats import (
    read_cluster,
    read_job,
    read_policy,
    read_script,
    read_submission,
)
from gantree.formats.access.reader import read_access
from gantree.formats.job.reader import read_submission_objects
from gantree.formats.traces import read_trace_text
from gantree.model.errors import BadFields, GantreeError
from support.examples import examples

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
ACCESS = """\
users: {ada: {grants: [{role: operator}]}, bob: {grants: {role: user, queue: research/nlp}}}
groups: {ops: {members: [ada], grants: [{role: viewer}]}}
unix: {ada: ada}
oidc: {issuer: "https://login.example.org", audience: gantree}
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=train --nodes=2 --gpus-per-node=4 --time=1-02:03:04
#SBATCH --array=0-9%2 --signal=B:USR1@60 --dependency=afterok:1 --constraint="a&b" --mem=10G
#GANTREE --required leaf --elastic 1-4 --env A=1,B=2
python train.py
"""
TRACE = """\
job_id,submit_s,duration_s,members,gpus_per_member,queue,priority,elastic_min,elastic_max
a,0,1.5e3,2,8,research/nlp,batch,1,4
b,10,20,1,0,,-5,,
"""
SERVICE = """\
kind: service
name: chat
gang: [{role: r, members: 1, run: [./serve]}]
replicas: {min: 1, max: 8, floor: 1}
port: 8000
ready: {http: /health, every: 2s, failures: 3}
update: {surge: 1}
spread: leaf
scale:
  "on": [{metric: concurrency, target: 8}, {query: sum(x), target: 10, per_replica: true}]
  up: {at_most: 4, per: 60s}
route: {models: [llama-8b], concurrency: 32, affinity: prefix}
"""
Reader = Callable[[str, str], Any]
GOOD: list[tuple[Reader, str]] = [
    (read_cluster, CLUSTER),
    (read_job, JOB),
    (read_submission, SERVICE),
    (read_policy, POLICY),
    (read_access, ACCESS),
]


def script(text: str, source: str) -> Any:
    return read_script(text, source, ["./train.sh"], environment={"PATH": "/bin", "A": "1"})


def trace(text: str, source: str) -> Any:
    return read_trace_text(io.StringIO(text, newline=""), source)


MUTATED: list[tuple[Reader, str]] = [*GOOD, (script, SCRIPT), (trace, TRACE)]
STRANGE_WORDS = (
    "1e400", "-1e400", ".nan", ".inf", "-.inf", "0x7f", "0o17", "1:30", "2026-01-01", "yes", "no", "on", "~", "<<",
    "!!python/object:os.system", "&a", "*a", "1" + "0" * 30, "-1", "9" * 400, "../x", "a/b", ".", "..", "%2e%2e",
    "-rf", "a\tb", "\ufeff", "\r\n", "\u2028", "\u202e", "\uff0e\uff0e", "\0", "0-1000000000", "0-9%0",
    "n[0-999999999]",
    "9" * 30 + "d", "- ", "? ", ": ", "---\n", "%TAG ! x\n", "a" * 300, "n[0-9][0-9]", "1-2-3:4:5", "b:usr1@-1",
)  # fmt: skip
"""What other readers of YAML, shells and file systems take for something else than what it looks like."""
EXAMPLES = examples(150)
"""Files of each kind and property."""

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
    kind replicas port ready http update surge drain scale metric target query route models
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
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(STRANGE_WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | words, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


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
            assert (problem.line or 1) <= text.count("\n") + 2 + text.count("\r")
    except GantreeError as error:
        assert str(error)


@pytest.mark.parametrize(("reader", "good"), GOOD)
@given(text=st.text(max_size=200))
def test_random_text_never_raises_anything_else(reader: Reader, good: str, text: str) -> None:
    _told(reader, text)
    _told(reader, good + text)


@pytest.mark.parametrize(("reader", "good"), MUTATED)
@settings(max_examples=EXAMPLES)
@given(cuts=mutations)
def test_a_mutated_good_file_never_raises_anything_else(
    reader: Reader, good: str, cuts: list[tuple[int, int, str]]
) -> None:
    for place, length, text in cuts:
        start = place % len(good)
        good = good[:start] + text + good[start + length :]
    _told(reader, good)


@pytest.mark.parametrize(("reader", "good"), MUTATED)
@settings(max_examples=EXAMPLES)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 10**6), st.booleans(), st.sampled_from(STRANGE_WORDS)), max_size=3
    )
)
def test_a_good_file_with_strange_words_never_raises_anything_else(
    reader: Reader, good: str, changes: list[tuple[int, bool, str]]
) -> None:
    for place, is_added, word in changes:
        spans = [found.span() for found in re.finditer(r"[A-Za-z0-9._/-]+", good)]
        start, end = spans[place % len(spans)]
        good = good[: end if is_added else start] + word + good[end:]
    _told(reader, good)


@settings(max_examples=EXAMPLES)
@given(objects=st.lists(st.dictionaries(words, json_values, max_size=4), max_size=3))
def test_any_objects_of_a_request_never_raise_anything_else(objects: list[object]) -> None:
    with suppress(GantreeError):
        read_submission_objects(objects, "f.yaml")


@pytest.mark.parametrize(("reader", "good"), GOOD)
@settings(max_examples=EXAMPLES)
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
@settings(max_examples=examples(50))
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
