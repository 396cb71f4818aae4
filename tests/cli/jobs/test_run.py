"""`gantree run`, as far as it needs no daemon: names, environments, and output that is followed twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from gantree.cli.jobs.job_names import name_of
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
