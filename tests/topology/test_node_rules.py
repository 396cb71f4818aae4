"""Rules on nodes: what a text means is what Kubernetes' node affinity and tolerations mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Node
from gantree.model.node_rules import (
    NODES_LABEL,
    TOLERATES_LABEL,
    Alternatives,
    Requirement,
    Taint,
    Toleration,
    read_rule,
    read_tolerations,
    rule_text,
)

KEYS = st.sampled_from(["zone", "pool", "nvidia.com/gpu.product", "a-b", "metadata.name"])
VALUES = st.sampled_from(["a", "b", "H100-80GB", "7", ""])
NUMBERS = st.integers(-9, 99).map(lambda number: (str(number),))
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement,
        KEYS,
        st.sampled_from(["in", "notin"]),
        st.lists(VALUES, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Requirement, KEYS, st.sampled_from(["exists", "absent"])),
    st.builds(Requirement, KEYS, st.sampled_from([">", "<"]), NUMBERS),
)
RULES = st.lists(st.lists(REQUIREMENTS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3)


def node(labels: dict[str, str] | None = None, *taints: Taint) -> Node:
    return Node("n0", "m", labels=tuple((labels or {}).items()), taints=taints)


@given(RULES.map(tuple))
def test_a_rule_is_read_as_it_was_written(rule: Alternatives) -> None:
    assert read_rule(rule_text(rule)) == rule


@pytest.mark.parametrize(
    ("rule", "labels", "admitted"),
    [
        ("zone in (a,b)", {"zone": "b"}, True),
        ("zone in (a,b)", {"zone": "c"}, False),
        ("zone in (a,b)", {}, False),
        ("zone notin (a)", {}, True),  # as in Kubernetes
        ("zone notin (a)", {"zone": "a"}, False),
        ("spot", {"spot": ""}, True),
        ("spot", {}, False),
        ("!spot", {}, True),
        ("!spot", {"spot": "x"}, False),
        ("cpus > 8", {"cpus": "9"}, True),
        ("cpus > 8", {"cpus": "8"}, False),
        ("cpus < 8", {"cpus": "many"}, False),
        ("zone in (a) && !spot", {"zone": "a", "spot": ""}, False),
        ("zone in (a) && !spot || pool", {"spot": "", "pool": "x"}, True),
        ("metadata.name in (n0)", {}, True),
        ("metadata.name in (n1)", {}, False),
        ("", {}, False),  # no alternative: no node
    ],
)
def test_a_rule_admits_what_it_says(rule: str, labels: dict[str, str], admitted: bool) -> None:
    assert node(labels).admits([(NODES_LABEL, rule)]) is admitted


@pytest.mark.parametrize(
    ("tolerations", "taint", "admitted"),
    [
        ("", Taint("k"), False),
        ("k", Taint("k"), True),
        ("k", Taint("k", "v", "NoExecute"), True),
        ("k=v", Taint("k", "v"), True),
        ("k=v", Taint("k", "w"), False),
        ("k=v:NoExecute", Taint("k", "v"), False),
        ("k:NoSchedule", Taint("k", "w"), True),
        ("other, *", Taint("k"), True),
        ("*:NoExecute", Taint("k"), False),
        ("", Taint("k", "", "PreferNoSchedule"), True),
    ],
)
def test_a_taint_keeps_away_who_does_not_tolerate_it(
    tolerations: str, taint: Taint, admitted: bool
) -> None:
    assert node({}, taint).admits([(TOLERATES_LABEL, tolerations)]) is admitted
    assert node({}, taint).admits([]) is (taint.effect == "PreferNoSchedule")
    assert node({}).admits([(TOLERATES_LABEL, tolerations)])


def test_tolerations_are_read_as_they_were_written() -> None:
    written = (Toleration("a", "b", "NoSchedule"), Toleration("*"), Toleration("a/b", None, "X"))
    assert read_tolerations(", ".join(map(str, written))) == written


@pytest.mark.parametrize("text", ["zone in", "!zone in (a)", "a && ", "zone > many", "(a)"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no requirement"):
        read_rule(text)


def test_what_is_no_toleration_is_refused() -> None:
    with pytest.raises(ValueError, match="is no toleration"):
        read_tolerations("a b")
