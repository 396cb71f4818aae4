"""sweep.yaml: what it may hold, errors by file, line and field, and overrides laid over policies."""

import pytest

from gantree.formats import read_policy
from gantree.formats.sweep import Override, Sweep, policy_with, read_sweep, short_name
from gantree.model.errors import BadFields, BadInput

GRID = "clusters: [a.yaml]\ntraces: [t.csv.gz]\npolicies: [fifo, b/mine.yaml]\n"


def problems(text: str) -> list[tuple[int | None, str, str, str]]:
    with pytest.raises(BadFields) as raised:
        read_sweep(text, "sweep.yaml")
    return [(each.line, each.field, each.found, each.allowed) for each in raised.value.problems]


def test_a_grid_is_read_and_one_file_needs_no_list() -> None:
    text = GRID.replace("[a.yaml]", "a.yaml") + (
        "overrides:\n"
        "  - name: deep\n"
        "    policy: {backfill: {depth: 64}, defragment: off, elastic: false}\n"
        "running: realistic\n"
        "seeds: [3, 1]\n"
        "limit: 10\n"
        "overheads: {start_s: 90s, save_s: 2}\n"
    )
    deep = Override("deep", '{"backfill": {"depth": 64}, "defragment": "off", "elastic": false}')
    assert read_sweep(text, "s.yaml") == Sweep(
        ("a.yaml",), ("t.csv.gz",), ("fifo", "b/mine.yaml"), (Override(), deep), "realistic", (3, 1),
        10, 90.0, 0.0, 2.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "seeds"),
    [("", (None,)), ("running: realistic\n", (0,)), ("running: x\nseeds: 7\n", (7,))],
)
def test_without_a_model_of_running_nothing_is_drawn(
    more: str, seeds: tuple[int | None, ...]
) -> None:
    assert read_sweep(GRID + more, "s").seeds == seeds


@pytest.mark.parametrize(
    ("more", "line", "field", "found", "allowed"),
    [
        ("overrides: [{name: x, policy: {backfill: {dept: 3}}}]", 4, "overrides[0].policy.backfill.dept", "", ""),
        ("overrides: [{name: x, policy: {preset: fair}}]", 4, "overrides[0].policy.preset", "", ""),
        ("overrides:\n- {name: x, policy: {}}\n- {name: x, policy: {}}", 6, "overrides[1]", "x twice", "each name"),
        ("seeds: [1, 2]", 4, "seeds", "seeds", "none, or a model of running"),
        ("running: x\nseeds: [1, 1]", 5, "seeds[1]", "1 twice", "each seed once"),
        ("limit: 0", 4, "limit", "`0`", "a whole number of 1 or more"),
        ("overheads: {start_s: soon}", 4, "overheads.start_s", "`soon`", ""),
        ("policy: fifo", 4, "policy", "", ""),
    ],
)  # fmt: skip
def test_mistakes_are_named_by_line_and_field(
    more: str, line: int, field: str, found: str, allowed: str
) -> None:
    [(at, named, was, may)] = problems(GRID + more + "\n")
    assert (at, named) == (line, field)
    assert found in was and allowed in may


def test_files_that_a_sweep_would_call_by_one_name_are_refused() -> None:
    text = GRID.replace("[a.yaml]", "[a.yaml, b.yaml, c/a.yaml]")
    assert problems(text) == [(1, "clusters[2]", "a twice", "each file name once")]


def test_a_grid_needs_each_of_its_dimensions() -> None:
    fields = {each[1] for each in problems("clusters: [a.yaml]\ntraces: []\n")}
    assert fields == {"policies", "traces"}


def test_a_grid_that_is_too_large_is_refused() -> None:
    names = ", ".join(f"n{number}.yaml" for number in range(400))
    text = GRID.replace("[a.yaml]", f"[{names}]").replace("[t.csv.gz]", f"[{names}]")
    assert problems(text)[0][2:] == ("a grid of 320000 simulations", "at most 100000")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("fifo", "fifo"),
        ("a/b/jobs.csv.gz", "jobs"),
        ("mine.yaml", "mine"),
        ("first-fit", "first-fit"),
    ],
)
def test_a_sweep_calls_files_by_their_names_without_endings(file: str, name: str) -> None:
    assert short_name(file) == name


POLICY = """preset: fair
defragment: off
backfill: {depth: 5, reservations: 2}
queues:
  - {name: a, weight: 2}
"""


def test_an_override_replaces_what_it_names_and_leaves_the_rest() -> None:
    [_, override] = read_sweep(
        GRID + "overrides: [{name: x, policy: {backfill: {depth: 64}, elastic: false}}]\n", "s"
    ).overrides
    expected = read_policy(
        POLICY.replace("depth: 5", "depth: 64") + "elastic: false\n", "expected.yaml"
    )
    assert policy_with(POLICY, "p.yaml", override) == expected
    assert policy_with(POLICY, "p.yaml", Override()) == read_policy(POLICY, "p.yaml")


def test_an_override_that_does_not_go_with_a_policy_names_both() -> None:
    [_, override] = read_sweep(
        GRID + "overrides: [{name: x, policy: {order: [stretch], preempt: {who: {zzz: [batch]}}}}]\n", "s"
    ).overrides  # fmt: skip
    with pytest.raises(BadInput, match=r"p.yaml with override x: .*zzz"):
        policy_with(POLICY, "p.yaml", override)


def test_a_mistake_in_the_policy_itself_is_its_own() -> None:
    with pytest.raises(BadFields, match=r"p.yaml:2: backfil"):
        policy_with("preset: fair\nbackfil: 3\n", "p.yaml", Override("x", "{}"))
