"""Prometheus' text format as it is read here: what is wanted of it, and what is no text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gantree.model.errors import BadInput
from gantree.telemetry.exposition import finite, names_matcher, node_of, samples
from support.examples import examples

FIND = names_matcher({"a_total", "a"})


def test_lines_of_these_names_are_read_and_no_others() -> None:
    text = '# HELP a x\n# TYPE a gauge\na 1\na_total{b="c",d="}, e"} 2.5e1 1700000000000\nab 3\na:b 4\n'
    found = [(name, dict(labels), value) for name, labels, value in samples(text, FIND)]
    assert found == [("a", {}, 1.0), ("a_total", {"b": "c", "d": "}, e"}, 25.0)]


@pytest.mark.parametrize(
    "text", ['a{b="c"', 'a{b="c"}\n', "a x\n", "a{b=c} 1\n", 'a{b="c" 1\n', "a 1\na 2", 'a{b="c"e="f"} 1\n']
)  # fmt: skip
def test_what_is_half_written_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="no metrics in Prometheus' text format"):
        list(samples(text, FIND))


def test_what_is_no_count_is_left_out() -> None:
    assert [value for _, _, value in finite("a NaN\na -1\na +Inf\na 0\n", FIND)] == [0.0]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), st.text(max_size=8), max_size=3
    ),
    st.floats(allow_nan=False),
)
@settings(max_examples=examples(100))
def test_a_line_is_read_as_the_library_of_prometheus_reads_it(
    labels: dict[str, str], value: float
) -> None:
    """The twin: prometheus_client's own parser. Characters that end a line are no part of a label."""
    labels = {key: "".join(told.splitlines()) for key, told in labels.items()}
    escaped = {key: told.replace("\\", "\\\\").replace('"', '\\"') for key, told in labels.items()}
    inside = ",".join(f'{key}="{told}"' for key, told in escaped.items())
    text = f"a{{{inside}}} {value!r}\n"
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    (found,) = samples(text, FIND)
    assert (dict(found[1]), found[2]) == (sample.labels, sample.value)


@pytest.mark.parametrize(
    ("labels", "node"),
    [({"instance": "n1:9400"}, "n1"), ({"nodename": "n2", "instance": "x:1"}, "n2"), ({}, "")],
)
def test_a_node_is_named_by_its_labels(labels: dict[str, str], node: str) -> None:
    assert node_of(labels) == node
