"""What is true of every YAML file: positions, plain scalars, and the texts that are refused as a whole."""

import pytest

from gantree.model.errors import BadFields, Problem
from gantree.text.document import Rows, Table, Truth, read_documents, written


def _only(text: str) -> object:
    problems: list[Problem] = []
    (document,) = read_documents(text, "f.yaml", problems)
    assert problems == []
    return document.value


def _problem(text: str, max_bytes: int = 10_000) -> Problem:
    with pytest.raises(BadFields) as caught:
        read_documents(text, "f.yaml", [], max_bytes)
    (problem,) = caught.value.problems
    assert problem.source == "f.yaml"
    return problem


def test_tables_and_rows_know_their_path_and_lines() -> None:
    data = _only("a:\n  - b: 1\n    c: 2\n  - {d: 3}\n")
    assert isinstance(data, Table)
    rows = data["a"]
    assert isinstance(rows, Rows)
    assert [(row.path, row.line) for row in rows] == [("a[0]", 2), ("a[1]", 4)]
    assert (rows[0].line_of("c"), rows[0].path_of("c")) == (3, "a[0].c")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-3", -3), ("2.5", 2.5), ("1e3", 1000.0), (".5", 0.5), ("010", 10),
        ("on", "on"), ("no", "no"), ("1:30", "1:30"), ("0x10", "0x10"), (".inf", ".inf"), ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"), ("'3'", "3"), ("'true'", "true"), ("9" * 40, 1e40),
    ],
)  # fmt: skip
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    data = _only(f"a: {text}")
    assert isinstance(data, Table)
    assert data["a"] == value
    assert type(data["a"]) is type(value) or isinstance(data["a"], type(value))


def test_lines_are_counted_as_an_editor_counts_them() -> None:
    """YAML 1.1 ends a line at U+0085, U+2028 and U+2029 too; a person who looks for line 3 does not."""
    data = _only("a: 'x\u2028\u2029\x85y'\r\nb:\r  - c: 1\n  - 'd'\n")
    assert isinstance(data, Table)
    assert [data.line_of("a"), data.line_of("b"), *data["b"].lines] == [1, 2, 3, 4]
    assert _problem("a: 'x\u2028y'\nb:\n\t- c\n").line == 3
    assert _problem("a: 'x\u2028y'\nb:\n\t- c\n").hint
    assert _problem("a: '\u2028\u2028\u2028x").line == 1
    assert _problem("a: \u2028\rb: \x07").line == 2


@pytest.mark.parametrize("text", ["007", "1.50", "+5", "1e3", "7", "2.5", "True", "false", "abc"])
def test_a_scalar_remembers_how_it_was_written(text: str) -> None:
    data = _only(f"a: {text}")
    assert isinstance(data, Table)
    assert written(data["a"]) == text


def test_a_truth_is_no_number() -> None:
    data = _only("a: true\nb: FALSE")
    assert isinstance(data, Table)
    assert isinstance(data["a"], Truth)
    assert bool(data["a"])
    assert not bool(data["b"])
    assert not isinstance(data["a"], int)


def test_a_field_written_twice_is_a_problem_and_the_first_counts() -> None:
    problems: list[Problem] = []
    (document,) = read_documents("a: 1\nb:\n  c: 1\n  c: {d: 2}\n", "f", problems)
    assert document.value == {"a": 1, "b": {"c": 1}}
    assert [(problem.line, problem.field) for problem in problems] == [(4, "b.c")]


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("a: &x 1\nb: *x\n", 1, "anchor"),
        ("a: 1\nb: *x\n", 2, "alias"),
        ("a: !!python/object:os.system x\n", 1, "tag"),
        ("a: !x {b: 1}\n", 1, "tag"),
        ("a:\n  ? [b]\n  : c\n", 2, "a list or mapping as a field name"),
        ("[" * 40, 1, "more than 32 levels"),
        ("[" * 9000, 1, "more than 32 levels"),
        ("a:\n\tc: d\n", 2, "a character that no value may begin with"),
        ("a: [1, 2\nb: 3\n", 2, "text where ',' or ']' should be (while parsing a flow sequence)"),
        ("a: 1\n  b: 2\n", 2, "a second `:`, or a field that is indented too far"),
        ("- a\nb: 1\n", 2, "a field among the items of a list"),
        ("a:\n  - b\n c: 1\n", 3, "text that is indented like no field above it"),
        ("{a: 1,, b}", 1, "no value where one should be"),
        ("a: \"\\q\"", 1, "unknown escape character (while parsing a quoted scalar)"),
        ("a: 'x\n", 2, "the end of the file in an open quotation"),
        ("a: 1\nb: \x07\n", 2, "U+0007"),
        ("a: \ud800\n", 1, "U+D800"),
        ("a: " + "x" * 10_000, None, "a larger file"),
    ],
)  # fmt: skip
def test_unreadable_text_is_refused_with_its_line(text: str, line: int | None, found: str) -> None:
    problem = _problem(text)
    assert problem.line == line
    assert found in problem.found


def test_tabs_get_a_hint() -> None:
    assert _problem("a:\n\t- b\n").hint == "Indent with spaces, not with tabs."


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9))
    assert "anchor" in _problem("l0: &l0 [x]\n" + levels).found
