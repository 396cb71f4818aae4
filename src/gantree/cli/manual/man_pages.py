"""Man pages (roff, the `man` macros) of all commands and topics: `gantree-jobs(1)`, `gantree-queues(7)`.

click-man would be the library for this; it knows only Click's own classes, which Typer's are not any more, and does not
escape what roff reads as a request.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantree import __version__
from gantree.cli.examples import EXAMPLES
from gantree.cli.lazy import LazyGroup
from gantree.cli.manual.topics import NAMES, Block, Kind, Topic, topic


def write_man_pages(directory: Path, program: Any) -> list[Path]:
    """Write a page for each command below man1 and one for each topic below man7; returns their paths.

    Raises OSError.
    """
    pages = {
        **{Path("man1") / f"{name}.1": text for name, text in _command_pages(program)},
        **{Path("man7") / f"gantree-{name}.7": topic_page(topic(name)) for name in NAMES},
    }
    for path, text in pages.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, "utf-8")
    return [directory / path for path in pages]


def _command_pages(
    command: Any, name: str = "gantree", parent: Any = None
) -> Iterator[tuple[str, str]]:
    """(name with dashes, page) of a command and of all below it."""
    context = command.context_class(command, info_name=name, parent=parent)
    below = list(_below(command, context))
    page_name = context.command_path.replace(" ", "-")
    yield page_name, _command_page(command, context, [(word, each) for word, each in below])
    for word, each in below:
        yield from _command_pages(each, word, context)


def _below(command: Any, context: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        return
    for word in command.list_commands(context):
        each = command.load(word) if isinstance(command, LazyGroup) else command.commands[word]
        if not each.hidden:
            yield word, each


def _command_page(command: Any, context: Any, below: list[tuple[str, Any]]) -> str:
    path = context.command_path
    name = path.replace(" ", "-")
    summary, _, more = (command.help or "").strip().partition("\n")
    lines = [_title(name, 1), ".SH NAME", rf"{_plain(name)} \- {_plain(summary.rstrip('.'))}"]
    lines += [".SH SYNOPSIS", rf"\fB{_plain(path)}\fR {_plain(_usage(command, context))}"]
    lines += [".SH DESCRIPTION", _plain(summary), *_paragraphs(more)]
    lines += _records("OPTIONS", _parameters(command, context))
    lines += _records("COMMANDS", [(word, _summary_of(each)) for word, each in below])
    lines += _example(path.removeprefix("gantree "))
    lines += [".SH EXIT STATUS", rf"See \fB{_plain('gantree-exit-codes')}\fR(7)."]
    see = [f"{name}-{word}" for word, _ in below] or ["gantree"]
    sections = [rf"\fB{_plain(each)}\fR(1)" for each in see]
    lines += [".SH SEE ALSO", ",\n".join([*sections, rf"\fB{_plain('gantree-start')}\fR(7)"])]
    return "\n".join(lines) + "\n"


def _example(path: str) -> list[str]:
    """The section of a command's example."""
    return [".SH EXAMPLES", ".nf", _plain(EXAMPLES[path]), ".fi"] if path in EXAMPLES else []


def _usage(command: Any, context: Any) -> str:
    return " ".join(command.collect_usage_pieces(context))


def _parameters(command: Any, context: Any) -> list[tuple[str, str]]:
    """Arguments and options with their help."""
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    return [(names, text) for names, text in filter(None, records)]


def _summary_of(command: Any) -> str:
    return (command.help or "").strip().partition("\n")[0]


def _records(head: str, records: list[tuple[str, str]]) -> Iterator[str]:
    """A section of terms, each with its explanation; nothing where there are none."""
    if not records:
        return
    yield f".SH {head}"
    for term, text in records:
        yield ".TP"
        yield rf"\fB{_plain(term)}\fR"
        yield _plain(" ".join(text.split())) or r"\&"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.strip():
            yield ".PP"
            yield _plain(" ".join(paragraph.split()))


def topic_page(shown: Topic) -> str:
    """The page of a topic."""
    name = f"gantree-{shown.name}"
    lines = [_title(name, 7), ".SH NAME", rf"{_plain(name)} \- {_plain(shown.summary)}"]
    lines.append(".SH DESCRIPTION")
    before: Kind | None = None
    for block in shown.blocks:
        lines += _block_lines(block, follows_text=before not in (None, Kind.HEADING))
        before = block.kind
    lines += [".SH SEE ALSO", r"\fBgantree\fR(1)"]
    return "\n".join(lines) + "\n"


def _block_lines(block: Block, *, follows_text: bool) -> Iterator[str]:
    match block.kind:
        case Kind.HEADING:
            yield f'.SH "{_plain(block.text.upper())}"'
        case Kind.ITEM:
            yield r".IP \(bu 2"
            yield _emphasised(block.text)
        case Kind.CODE:
            if follows_text:
                yield ".PP"
            yield ".nf"
            yield from (_plain(f"    {line}") for line in block.text.splitlines())
            yield ".fi"
        case Kind.PARAGRAPH:
            if follows_text:
                yield ".PP"
            yield _emphasised(block.text)


def _title(name: str, section: int) -> str:
    made_at = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    day = time.strftime("%Y-%m-%d", time.gmtime(made_at))
    return (
        f'.TH "{_plain(name.upper())}" "{section}" "{day}" "gantree {__version__}" "gantree manual"'
    )


def _emphasised(text: str) -> str:
    """Text with what stands in backquotes in bold."""
    return re.sub(r"`([^`]*)`", r"\\fB\1\\fR", _plain(text))


def _plain(text: str) -> str:
    """Text in which roff sees neither requests nor escapes."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)
