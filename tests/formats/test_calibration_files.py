"""calibration.yaml: what was measured, read back as it was written, and what is wrong with it told by line."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats import read_calibration, write_calibration
from gantree.formats.calibration.form import CalibrationForm
from gantree.formats.schemas import DIALECT
from gantree.model.cluster import Link
from gantree.model.errors import BadFields, GantreeError
from gantree.model.jobs import COLLECTIVES
from gantree.topology.fabric.calibration import Calibration, MeasuredRow
from support.examples import examples

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "calibration.schema.json"
TEXT = """\
measured: {backend: gloo, host: n0, date: 2026-11-21}
links:
  NV18: {bandwidth_GBps: 365, latency_us: 3.1}
  node: {bandwidth_GBps: 47.5, latency_us: 14, uplink_GBps: 400}
rows:
  - {collective: all_reduce, ranks: 8, nodes: 1, bytes: 1048576, time_s: 0.0001, busbw_GBps: 24.5, within: NV18}
"""


def test_the_figures_are_where_they_belong() -> None:
    assert read_calibration(TEXT, "c.yaml") == Calibration(
        "gloo",
        "n0",
        "2026-11-21",
        {"NV18": Link(365.0, 3.1), "node": Link(47.5, 14.0, 400.0)},
        (MeasuredRow("all_reduce", 8, 1, 1048576, 0.0001, 24.5, "NV18"),),
    )


def test_links_and_rows_may_be_left_out() -> None:
    calibration = read_calibration(TEXT.splitlines()[0], "c.yaml")
    assert (calibration.links, calibration.rows) == ({}, ())


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "told"),
    [
        ("backend: gloo", "backend: glo", 1, "measured.backend", "Did you mean `gloo`?"),
        ("backend: gloo", "backend: 3", 1, "measured.backend", "nccl, rccl, gloo"),
        ("backend: gloo, ", "", 1, "measured", "backend"),
        ("2026-11-21", "2026-02-30", 1, "measured.date", "a date such as 2026-11-21"),
        ("2026-11-21", "20261121", 1, "measured.date", "a date such as 2026-11-21"),
        ("bandwidth_GBps: 365", "bandwidth_GBps: 0", 3, "links.NV18.bandwidth_GBps", "above 0"),
        ("bandwidth_GBps: 365", "bandwidth: 365", 3, "links.NV18", "bandwidth_GBps"),
        ("latency_us: 14", "latency_us: -1", 4, "links.node.latency_us", "0 or more"),
        ("all_reduce", "allreduce", 6, "rows[0].collective", "Did you mean `all_reduce`?"),
        ("ranks: 8", "ranks: 0", 6, "rows[0].ranks", "1 or more"),
        ("nodes: 1", "nodes: 9", 6, "rows[0].nodes", "at most its 8 ranks"),
        ("bytes: 1048576", "bytes: 1M", 6, "rows[0].bytes", "a whole number"),
        ("time_s: 0.0001", "time_s: 0", 6, "rows[0].time_s", "above 0"),
        (", within: NV18", "", 6, "rows[0]", "within"),
        ("within: NV18", "within: NV18, unit: s", 6, "rows[0].unit", "unknown field"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_line(
    old: str, new: str, line: int, field: str, told: str
) -> None:
    assert old in TEXT
    with pytest.raises(BadFields) as caught:
        read_calibration(TEXT.replace(old, new), "c.yaml")
    problem = caught.value.problems[0]
    assert (problem.line, problem.field.startswith(field)) == (line, True), problem
    assert told in str(caught.value)
    assert str(problem).startswith(f"c.yaml:{line}: ")


@pytest.mark.parametrize(
    "text", ["", "[]", "3", f"{TEXT}---\n{TEXT}", "links: {}", "measured: {}", "{", "a: &b [*b]"]
)
def test_what_is_no_calibration_is_refused(text: str) -> None:
    with pytest.raises(BadFields):
        read_calibration(text, "c.yaml")


WORDS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,12}", fullmatch=True)
HOSTS = st.text(
    st.characters(exclude_categories=("C", "Z")) | st.just(" "), min_size=1, max_size=20
)
AMOUNTS = st.floats(1e-9, 1e12)
LINKS = st.builds(Link, AMOUNTS, st.floats(0, 1e9), st.none() | AMOUNTS)


@st.composite
def measured_rows(draw: st.DrawFn) -> MeasuredRow:
    ranks = draw(st.integers(1, 100_000))
    return MeasuredRow(
        draw(st.sampled_from(COLLECTIVES)),
        ranks,
        draw(st.integers(1, ranks)),
        draw(st.integers(0, 1 << 50)),
        draw(AMOUNTS),
        draw(st.floats(0, 1e12)),
        draw(WORDS),
    )


CALIBRATIONS = st.builds(
    Calibration,
    st.sampled_from(["nccl", "rccl", "gloo"]),
    HOSTS,
    st.dates().map(lambda day: day.isoformat()),
    st.dictionaries(WORDS, LINKS, max_size=4),
    st.lists(measured_rows(), max_size=4).map(tuple),
)


@settings(max_examples=examples(100))
@given(CALIBRATIONS)
def test_what_is_written_is_read_back_as_it_was(calibration: Calibration) -> None:
    text = write_calibration(calibration)
    found = read_calibration(text, "c.yaml")
    assert found == calibration
    assert list(found.links) == list(calibration.links)
    assert write_calibration(found) == text


@settings(max_examples=examples(100))
@given(CALIBRATIONS, st.data())
def test_a_damaged_file_is_read_or_refused(calibration: Calibration, data: st.DataObject) -> None:
    text = write_calibration(calibration)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    try:
        read_calibration(text[:start] + data.draw(st.text(max_size=4)) + text[end:], "c.yaml")
    except GantreeError as error:
        assert "c.yaml" in str(error)


def test_the_schema_in_the_docs_is_up_to_date() -> None:
    kept = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert kept == {"$schema": DIALECT, **CalibrationForm.model_json_schema()}
