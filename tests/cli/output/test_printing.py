"""What people and programs get to read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.cli.output.printing import columns, json_text, span
from gantree.cli.output.refusals import relaxation_text
from gantree.text.words import plural, ranges

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
documents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40
)


@given(documents)
def test_json_reads_back_as_what_was_printed(document: Any) -> None:
    assert json.loads(json_text(document)) == document


def test_a_matrix_is_printed_row_by_row() -> None:
    row = ["NV18"] * 8
    assert json_text({"links": [row] * 8}).splitlines()[2] == f"    {json.dumps(row)},"


@given(st.lists(st.integers(0, 40), max_size=20))
def test_ranges_keep_every_number_in_its_order(numbers: list[int]) -> None:
    read_back: list[int] = []
    for run in filter(None, ranges(numbers).split(",")):
        first, _, last = run.partition("-")
        read_back += range(int(first), int(last or first) + 1)
    assert read_back == numbers


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 3), "0-3"), ((0, 2, 1), "0,2,1"), ((4, 5, 0), "4-5,0")],
)
def test_ranges_join_rising_neighbours_only(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"), (0, "0s"), (0.4, "0s"), (59.6, "1m"), (61, "1m1s"), (3600, "1h"),
        (3601, "1h"), (5400, "1h30m"), (86_400 * 2 + 3600 * 4 + 5, "2d4h"), (86_460, "1d"),
    ],
)  # fmt: skip
def test_a_span_has_at_most_two_neighbouring_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_columns_are_aligned_and_lines_have_no_tail() -> None:
    assert columns(("JOB", "NOTE"), [("long-name", ""), ("a", "b")]) == (
        "JOB        NOTE\nlong-name\na          b"
    )


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_one_is_singular(count: int, text: str) -> None:
    assert plural(count, "node") == text


@pytest.mark.parametrize(
    ("relaxation", "text"),
    [
        ({"patch": {"members": 6}, "comm_ratio": None}, "members: 6"),
        (
            {"patch": {"topology.required": "spine"}, "comm_ratio": 1.07},
            "topology.required: spine (communication 7 % slower)",
        ),
        (
            {"patch": {"topology.required": None}, "comm_ratio": 0.9},
            "topology.required: none (communication 10 % faster)",
        ),
        (
            {"patch": {"topology.required": "leaf"}, "comm_ratio": 1.001},
            "topology.required: leaf (communication as fast)",
        ),
        (
            {
                "patch": {
                    "topology.required": None,
                    "topology.slices": [
                        {"members": 4, "required": "zone"},
                        {"members": 2, "required": "zone", "role": "worker"},
                    ],
                },
                "comm_ratio": None,
            },
            "topology.required: none, topology.slices: 4 per zone, 2 of role worker per zone",
        ),
        ({"patch": {"topology.slices": None}, "comm_ratio": None}, "topology.slices: none"),
    ],
)
def test_a_patch_says_what_it_costs(relaxation: dict[str, Any], text: str) -> None:
    assert relaxation_text(relaxation) == text
