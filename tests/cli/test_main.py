"""The program around the commands: its list, its errors, its start."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gantree import __version__
from gantree.cli.examples import EXAMPLES
from gantree.cli.lazy import LazyGroup
from gantree.cli.main import app
from gantree.cli.options import state_dir

Gantree = Callable[..., Any]
HEAVY = {"numpy", "pydantic", "yaml", "fastapi", "uvicorn", "rich", "pynvml"}


PROGRAM: Any = typer.main.get_command(app)
COMMANDS = (
    *PROGRAM.list_commands(None),
    *(
        "topo show",
        "topo page",
        "topo graph",
        "topo import",
        "topo catalog",
        "topo measure",
        "bench decisions",
        "bench gang",
        "bench fill",
        "bench refusal",
        "bench tas",
        "bench memory",
        "bench queue",
        "bench reclaim",
        "trace describe",
        "trace import",
        "trace slice",
        "trace scale",
        "trace synthesize",
    ),
)


def loaded(name: str) -> tuple[str, Any]:
    """A command's help line as its group lists it, and the command itself."""
    group: Any = PROGRAM
    for word in name.split():
        listed = group.commands[word]
        command = group.load(word) if isinstance(group, LazyGroup) else listed
        group = command
    return listed.help, command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_the_first_line_of_each_help(name: str) -> None:
    listed, command = loaded(name)
    assert command.help.splitlines()[0] == listed.splitlines()[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(gantree: Gantree, name: str) -> None:
    outcome = gantree(*name.split(), "--help")
    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: gantree {name} ")


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    if not hasattr(command, "list_commands"):
        yield " ".join(path), command
        return
    for name in command.list_commands(None):
        below = command.load(name) if isinstance(command, LazyGroup) else command.commands[name]
        yield from leaves(below, (*path, name))


def test_every_command_has_an_example_that_it_takes() -> None:
    found = dict(leaves(PROGRAM))
    assert found.keys() == EXAMPLES.keys()
    for name, command in found.items():
        program, *words = shlex.split(EXAMPLES[name])
        assert program == "gantree"
        own = words[1:] if name == "topo show" else words[len(name.split()) :]
        assert " ".join(words).startswith(name.removesuffix(" show") if "topo" in name else name)
        command.make_context(name, own)  # a usage error for what it does not take


@pytest.mark.parametrize("name", ["logs", "topo page", "policy apply", "bench gang"])
def test_the_help_ends_with_the_example(gantree: Gantree, name: str) -> None:
    printed = " ".join(gantree(*name.split(), "--help").out.split())
    assert printed.endswith(f"Example: {EXAMPLES[name]}")


def mentions(page: str, option: str) -> bool:
    """Whether a page has an option as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", page) is not None


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_docs(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    options = [option for parameter in loaded(name)[1].params for option in parameter.opts]
    long_options = [option for option in options if option.startswith("--") and option != "--help"]
    assert [option for option in long_options if not mentions(page, option)] == []


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"topo show", "bench", "topo", "daemon"}))
def test_every_command_has_a_section_in_the_docs(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert re.search(rf"^### `gantree {re.escape(name)}(?![\w-])", page, flags=re.MULTILINE)


def test_the_version_is_that_of_the_package(gantree: Gantree) -> None:
    assert gantree("--version").out == f"gantree {__version__}\n"


def test_without_a_word_the_help_is_printed(gantree: Gantree) -> None:
    outcome = gantree()
    assert outcome.code == 2
    assert "Commands:" in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["jbos"], "Did you mean 'jobs'?"),
        (["place"], "Missing argument 'CLUSTER'"),
        (["jobs", "--al"], "No such option: --al"),
        (["run", "-n", "0", "true"], "'--members' / '-n'"),
        (["topo", "import", "lspci", "f"], "no kind of source 'lspci'"),
    ],
)
def test_a_wrong_command_line_is_bad_input(gantree: Gantree, words: list[str], told: str) -> None:
    outcome = gantree(*words)
    assert outcome.code == 2
    assert outcome.out == ""
    assert told in outcome.err


@pytest.mark.parametrize(
    "words", [["jobs"], ["why", "a"], ["logs", "a"], ["cancel", "a"], ["topo"], ["run", "true"]]
)
def test_without_a_daemon_a_sentence_says_how_to_start_one(
    gantree: Gantree, tmp_path: Path, words: list[str]
) -> None:
    outcome = gantree(words[0], "--state", tmp_path, *words[1:])
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        f"gantree: no daemon answers in {tmp_path}; start one: gantree up --state {tmp_path}\n"
    )


@pytest.mark.parametrize(
    "name",
    ["jobs.submit", "jobs.run", "jobs.list", "jobs.logs", "jobs.control", "nodes", "explain.why"],
)
def test_what_talks_to_the_daemon_imports_nothing_heavy(name: str) -> None:
    script = (
        f"import sys, gantree.cli.main, gantree.cli.{name}, http.client\n"
        f"print(*sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_state_directory_follows_option_then_xdg_then_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert state_dir(None) == tmp_path / ".local/state/gantree"
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert state_dir(None) == Path("/var/state/gantree")
    assert state_dir(Path("/here")) == Path("/here")


def test_the_state_directory_may_come_from_the_environment(
    gantree: Gantree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(tmp_path / "elsewhere"))
    assert f"no daemon answers in {tmp_path / 'elsewhere'};" in gantree("jobs").err


def test_bash_completes_the_commands_and_their_options() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gantree.cli"],
        env={
            "_GANTREE_COMPLETE": "complete_bash",
            "COMP_WORDS": "gantree ca",
            "COMP_CWORD": "1",
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["cancel"]


def test_a_state_directory_that_cannot_be_made_is_one_sentence(
    gantree: Gantree, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    outcome = gantree("up", "--virtual", "dgx-h100:1", "--state", tmp_path / "file")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == f"gantree: {tmp_path / 'file'} cannot be a state directory: file exists\n"


def test_a_full_disk_under_the_output_is_one_sentence(cluster_file: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gantree.cli", "topo", str(cluster_file), "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "gantree: no space left on device\n")


def test_a_file_without_an_end_is_bad_input(gantree: Gantree) -> None:
    outcome = gantree("place", "/dev/zero", "/dev/zero")
    assert (outcome.code, outcome.err) == (2, "gantree: /dev/zero: larger than 32 MiB\n")


def test_a_state_directory_that_is_a_file_has_no_daemon(gantree: Gantree, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = gantree("jobs", "--state", tmp_path / "file")
    assert outcome.code == 1
    assert outcome.err.startswith(f"gantree: no daemon answers in {tmp_path / 'file'}; start one")


@pytest.mark.parametrize(
    ("command", "word"),
    [
        *(
            (command, word)
            for command in ("why", "logs", "cancel")
            for word in ("", "\udcff", "a/\udcff")
        ),
    ],
)
def test_a_word_that_is_no_job_name_is_no_job(
    gantree: Gantree, tmp_path: Path, command: str, word: str
) -> None:
    outcome = gantree(command, "--state", tmp_path, "--", word)
    assert (outcome.code, outcome.err) == (1, f"gantree: there is no job {word!r}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("up", "--virtual", "dgx-h100:1", "--state", "DEEP"),
        ("jobs", "--state", "DEEP"),
        ("simulate", "--cluster", "CLUSTER", "--trace", "TRACE", "--out", "DEEP"),
        ("ranks", "CLUSTER", "JOB", "--out", "DEEP"),
    ],
    ids=lambda words: words[0],
)
def test_a_folder_deeper_than_can_be_made_is_bad_input(
    gantree: Gantree,
    cluster_file: Path,
    job_file: Callable[..., Path],
    tmp_path: Path,
    words: tuple[str, ...],
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_s,duration_s,members,gpus_per_member\n1,0,10,1,1\n")
    files = {
        "DEEP": tmp_path.joinpath(*["d"] * 1990),
        "CLUSTER": cluster_file,
        "JOB": job_file("a", 1, 1),
        "TRACE": trace,
    }
    done = gantree(*(files.get(word, word) for word in words))
    assert done.code == 2
    assert re.search(r"gantree: --(state|out): found a directory \d+ levels deep", done.err)
