"""What results say of their inputs: equal values have equal digests, others have others, whatever the files say."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats import read_cluster, read_policy
from gantree.formats.traces import TraceJob
from gantree.sim.inputs import CountedTrace, digest_of, inputs_of, name_of

CLUSTER = """
name: small
tiers: [leaf, node]
nodes: [{names: "n[0-1]", machine: dgx-h100, at: {leaf: l0}}]
"""
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.frozensets(st.text(max_size=3), max_size=3)
    ),
    max_leaves=8,
)


def row(job: str, duration_s: float = 60) -> TraceJob:
    return TraceJob(job, submit_s=0, duration_s=duration_s, members=1, gpus_per_member=1)


def digest(*rows: TraceJob) -> str:
    trace = CountedTrace(rows)
    assert (list(trace), trace.jobs) == (list(rows), len(rows))
    return trace.digest


@given(PLAIN, PLAIN)
def test_digests_are_equal_exactly_for_equal_values(left: object, right: object) -> None:
    same = left == right and _kinds(left) == _kinds(right)
    assert (digest_of(left) == digest_of(right)) == same


def _kinds(value: object) -> object:
    """True and 1 are equal in Python, and no more than that."""
    if isinstance(value, tuple):
        return [_kinds(each) for each in value]
    if isinstance(value, dict):
        return {key: _kinds(each) for key, each in value.items()}
    return isinstance(value, bool)


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=5))
def test_the_order_of_a_mapping_does_not_count(told: dict[str, int]) -> None:
    assert digest_of(dict(reversed(told.items()))) == digest_of(told)


def test_a_field_with_its_default_is_not_in_a_digest() -> None:
    @dataclass(frozen=True)
    class Before:
        a: int
        b: int = 2

    @dataclass(frozen=True)
    class After:
        a: int
        b: int = 2
        c: dict[str, int] = field(default_factory=dict)

    After.__name__ = "Before"
    assert digest_of(Before(1)) == digest_of(After(1)) == digest_of(Before(1, 2))
    assert (
        len({digest_of(Before(1)), digest_of(Before(1, 3)), digest_of(After(1, c={"x": 1}))}) == 3
    )


def test_whole_numbers_are_the_same_with_and_without_a_point() -> None:
    assert digest(row("a", 60)) == digest(row("a", 60.0))


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:1],
        lambda rows: rows[::-1],
        lambda rows: [rows[0], replace(rows[1], duration_s=61)],
        lambda rows: [rows[0], replace(rows[1], queue="other")],
    ],
)
def test_another_trace_has_another_digest(
    change: Callable[[list[TraceJob]], list[TraceJob]],
) -> None:
    rows = [row("a"), row("b")]
    assert digest(*rows) != digest(*change(rows))


def test_what_was_run_is_named_with_its_digests() -> None:
    policy = read_policy("preset: fair\n", "mine.yaml")
    cluster = read_cluster(CLUSTER, "a.yaml")
    trace = CountedTrace([row("a")])
    list(trace)
    told = inputs_of(cluster, trace, policy, trace_name="t.csv", policy_name="mine.yaml", seed=7)
    assert told.document() == {
        "version": told.version,
        "cluster": {
            "name": "small",
            "digest": digest_of(read_cluster(CLUSTER + "# a note\n", "b")),
        },
        "trace": {"name": "t.csv", "digest": digest(row("a")), "jobs": 1},
        "policy": {"name": "mine.yaml", "digest": digest_of(policy)},
        "options": {},
        "seed": 7,
    }
    assert digest_of(policy) != digest_of(read_policy("preset: fifo\n", "mine.yaml"))
    assert digest_of(replace(cluster, name="other")) != told.cluster_digest


@pytest.mark.parametrize(
    ("file", "name"), [("a/b/jobs.csv.gz", "jobs.csv"), ("jobs.csv", "jobs.csv"), ("fair", "fair")]
)
def test_names_of_files_are_without_their_directories(file: str, name: str) -> None:
    assert name_of(file) == name
