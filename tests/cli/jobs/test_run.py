"""`gantree run`, as far as it needs no daemon: names, environments, and output that is followed twice."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.api.streams.log_gaps import dropped
from gantree.cli.jobs.job_names import name_of
from gantree.cli.jobs.log_follow import new_bytes, new_lines
from gantree.cli.options import class_or_number
from gantree.text.exported_variables import exported, variables_in

Gantree = Callable[..., Any]
texts = st.lists(st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b".")), max_size=8)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--steps", "3"], "train"),
        (["/usr/bin/python3.11", "/data/my train.py"], "my-train"),
        (["python", "-m", "torch"], "python"),
        (["bash", "-c", "true"], "bash"),
        (["./run_me.sh"], "run_me"),
        (["sleep", "3"], "sleep"),
        (["/"], "run"),
        (["x" * 90], "x" * 63),
        (["é"], "run"),
    ],
)
def test_a_job_is_named_after_its_script(command: list[str], name: str) -> None:
    assert name_of(command) == name


def test_a_variable_of_the_callers_own_place_is_not_passed_on() -> None:
    places = ("GANTREE_TOKEN", "SLURM_PROCID", "CUDA_VISIBLE_DEVICES", "PWD", "BASH_FUNC_f%%")
    own = {"PATH": "/bin", "HOME": "/root", **dict.fromkeys(places, "x"), "ODD": "\udcff"}
    assert exported("ALL", own).inherited == {"PATH": "/bin", "HOME": "/root"}
    assert exported("GANTREE_TOKEN", own).named == {"GANTREE_TOKEN": "x"}


def test_a_file_of_variables_may_be_one_of_env_0() -> None:
    text = "A=two\nlines\0B=2\0"
    assert dict(variables_in(text, "f", {})) == {"A": "two\nlines", "B": "2"}


@pytest.mark.parametrize("wish", ["MISSING", "=x", ""])
def test_a_variable_that_cannot_be_passed_on_is_bad_input(gantree: Gantree, wish: str) -> None:
    outcome = gantree("run", "--env", wish, "--", "true")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--env" in outcome.err


@pytest.mark.parametrize("words", [("--", "\udcff"), ("--env", "A=\udcff", "--", "true")])
def test_words_that_are_not_utf8_are_bad_input(gantree: Gantree, words: tuple[str, ...]) -> None:
    outcome = gantree("run", *words)
    assert outcome.code == 2
    assert outcome.err.startswith("gantree: the command line: not UTF-8 text: ")


def test_a_job_file_in_a_directory_that_is_not_utf8_is_bad_input(
    gantree: Gantree, tmp_path: Path, job_file: Callable[..., Path]
) -> None:
    directory = tmp_path / "\udcff"
    directory.mkdir()
    file = job_file("a", 1, 1).rename(directory / "a.yaml")
    outcome = gantree("submit", "--state", tmp_path, file)
    assert outcome.code == 2
    assert outcome.err.startswith("gantree: the directory of the file: not UTF-8 text: ")


@pytest.mark.parametrize(
    ("word", "priority"),
    [
        (None, None),
        ("7", 7),
        ("-7", -7),
        ("batch", "batch"),
        ("7x", "7x"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_priority_is_a_number_or_a_class(word: str | None, priority: str | int | None) -> None:
    assert class_or_number(word) == priority


def chunked(text: bytes, random: Random) -> list[bytes]:
    """The text cut at random places."""
    cuts = sorted(random.randrange(len(text) + 1) for _ in range(4))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def interleaved(lines_of_rank: list[list[bytes]], random: Random) -> bytes:
    """All lines with their prefixes, the order of each rank kept."""
    queues = [
        [b"[%d] %s\n" % (rank, line) for line in lines] for rank, lines in enumerate(lines_of_rank)
    ]
    merged = []
    while any(queues):
        merged.append(random.choice([queue for queue in queues if queue]).pop(0))
    return b"".join(merged)


@given(st.lists(texts, min_size=1, max_size=3), st.randoms(use_true_random=False), st.data())
def test_lines_of_mixed_ranks_are_printed_once_over_any_number_of_breaks(
    lines_of_rank: list[list[bytes]], random: Random, data: st.DataObject
) -> None:
    printed: dict[bytes, int] = {}
    out = b""
    for _ in range(data.draw(st.integers(0, 3))):
        whole = interleaved(lines_of_rank, random)
        broken_off = whole[: random.randrange(len(whole) + 1)]
        out += b"".join(new_lines(chunked(broken_off, random), printed))
    out += b"".join(new_lines(chunked(interleaved(lines_of_rank, random), random), printed))
    for rank, lines in enumerate(lines_of_rank):
        prefix = b"[%d] " % rank
        got = [line.removeprefix(prefix) for line in out.split(b"\n") if line.startswith(prefix)]
        assert got == lines


@given(st.binary(max_size=60), st.randoms(use_true_random=False), st.integers(0, 3))
def test_bytes_of_one_rank_are_printed_once_over_any_number_of_breaks(
    text: bytes, random: Random, breaks: int
) -> None:
    printed: dict[bytes, int] = {}
    out = b""
    for _ in range(breaks):
        broken_off = text[: random.randrange(len(text) + 1)]
        out += b"".join(new_bytes(chunked(broken_off, random), printed))
    assert out + b"".join(new_bytes(chunked(text, random), printed)) == text


def test_what_comes_behind_a_gap_is_printed_again_rather_than_lost() -> None:
    """The first stream had all 8 lines; of the second the middle was dropped, and one line is new."""
    lines = [b"line %d\n" % number for number in range(9)]
    rest = b"".join([lines[0], dropped(40), *lines[6:]])
    printed: dict[bytes, int] = {}
    assert b"".join(new_bytes([b"".join(lines[:8])], printed)) == b"".join(lines[:8])
    assert b"".join(new_bytes([rest], printed)).endswith(b"".join(lines[6:]))
    of_ranks = [b"[1] " + line for line in rest.splitlines(keepends=True)]
    printed = {b"[1": 8}
    assert b"".join(new_lines(of_ranks, printed)) == b"".join(of_ranks[1:])
