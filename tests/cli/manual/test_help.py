"""`gantree help`: topics, commands, man pages."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from gantree.cli.lazy import LazyGroup
from gantree.cli.main import app
from gantree.cli.manual.man_pages import topic_page
from gantree.cli.manual.topics import NAMES, Block, Kind, Topic, as_text, topic

Gantree = Callable[..., Any]
DOCS = Path(__file__).parents[3] / "docs"
PROGRAM: Any = typer.main.get_command(app)


def test_the_list_has_every_topic_and_every_text_is_listed(gantree: Gantree) -> None:
    outcome = gantree("help")
    assert outcome.code == 0
    listed = [line.split()[0] for line in outcome.out.splitlines()[1 : len(NAMES) + 1]]
    texts = Path(__file__).parents[3] / "src" / "gantree" / "cli" / "manual" / "texts"
    assert listed == list(NAMES)
    assert sorted(path.stem for path in texts.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_is_printed_within_80_columns(gantree: Gantree, name: str) -> None:
    outcome = gantree("help", name)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"{name.upper()} - ")
    assert "`" not in outcome.out
    assert [line for line in outcome.out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", NAMES)
def test_commands_that_a_topic_shows_are_taken(name: str) -> None:
    for line in shown_commands(name):
        words = line.split()[1:]
        command = PROGRAM
        while hasattr(command, "commands") and words and words[0] in command.commands:
            word = words.pop(0)
            is_lazy = isinstance(command, LazyGroup)
            command = command.load(word) if is_lazy else command.commands[word]
        assert command is not PROGRAM, line
        own = words[: words.index("--")] if "--" in words else words
        options = {option for parameter in command.params for option in parameter.opts}
        if not hasattr(command, "commands"):
            assert {word for word in own if word.startswith("-")} <= options, line


def shown_commands(name: str) -> list[str]:
    """The command lines in a topic, without what explains them."""
    blocks = topic(name).blocks
    lines = [line for block in blocks if block.kind is Kind.CODE for line in block.text.split("\n")]
    spans = [span for block in blocks for span in re.findall(r"`(gantree [a-z][^`]*)`", block.text)]
    commands = [line for line in lines if line.startswith("gantree ")]
    return [re.split(r" {2,}| \| ", line)[0] for line in (*commands, *spans)]


def test_the_exit_statuses_are_those_of_the_docs() -> None:
    page = (DOCS / "cli.md").read_text().partition("| exit status | means |")[2]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page.partition("\n\n")[0], flags=re.MULTILINE)
    said = [block.text for block in topic("exit-codes").blocks if block.kind is Kind.ITEM]
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)|\\", r"\1", text) for _, text in rows]
    stated = [re.sub(r" \(hung\)| \(operations\)", "", text) for text in plain]
    assert [text.split(":")[0] for text in said] == [code for code, _ in rows]
    for item, text in zip(said, stated, strict=True):
        assert item.partition(": ")[2] == text


def test_a_topic_named_as_a_command_points_to_it(gantree: Gantree) -> None:
    assert gantree("help", "jobs").out.endswith(
        "gantree jobs --help lists the options of the command.\n"
    )


@pytest.mark.parametrize("words", [["submit"], ["topo", "import"]])
def test_the_help_of_a_command_is_that_of_its_option(gantree: Gantree, words: list[str]) -> None:
    assert gantree("help", *words).out == gantree(*words, "--help").out != ""


@pytest.mark.parametrize(("word", "near"), [("preemtion", "preemption"), ("sumbit", "submit")])
def test_an_unknown_topic_is_bad_input_with_a_suggestion(
    gantree: Gantree, word: str, near: str
) -> None:
    outcome = gantree("help", word)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"Did you mean `{near}`?" in outcome.err


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All man pages."""
    from gantree.cli.manual.man_pages import write_man_pages

    directory = tmp_path_factory.mktemp("man")
    write_man_pages(directory, PROGRAM)
    return directory


def test_there_is_a_man_page_for_every_command_and_topic(pages: Path) -> None:
    names = {path.name for path in pages.glob("man?/*")}
    assert {"gantree.1", "gantree-jobs.1", "gantree-topo-import.1"} <= names
    assert {f"gantree-{name}.7" for name in NAMES} <= names
    jobs = (pages / "man1" / "gantree-jobs.1").read_text()
    assert r"\fB\-\-columns NAME,...\fR" in jobs
    assert "gantree jobs \\-\\-queue" in jobs


def test_no_line_of_a_man_page_is_a_request_by_accident(pages: Path) -> None:
    known = {"TH", "SH", "TP", "PP", "IP", "nf", "fi"}
    found = {
        line.split()[0]
        for path in pages.glob("man?/*")
        for line in path.read_text().splitlines()
        if line[:1] in (".", "'")
    }
    assert found <= {f".{name}" for name in known}


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc checks man pages")
def test_mandoc_has_no_complaint_about_a_man_page(pages: Path) -> None:
    words = ["mandoc", "-Tlint", "-Wwarning", *map(str, sorted(pages.glob("man?/*")))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_directory_that_cannot_be_written_is_one_sentence(
    gantree: Gantree, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    outcome = gantree("help", "--man", tmp_path / "file")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("gantree: ")


def test_text_is_wrapped_to_the_terminal() -> None:
    lines = as_text(topic("exit-codes"), 60).splitlines()
    assert 50 < max(map(len, lines)) <= 60


def test_text_that_looks_like_a_request_of_roff_is_text() -> None:
    text = ".so file \\n 'x' \\fB"
    page = topic_page(Topic("x", "y", (Block(Kind.PARAGRAPH, text), Block(Kind.CODE, "'br"))))
    assert "\\&.so file \\en 'x' \\efB\n" in page
    assert "\n    'br\n" in page
