"""The topics of `gantree help`: where their texts are, and the blocks that a text consists of.

A text is Markdown of a few kinds of blocks: `# name: summary` first, `## ` headings, paragraphs, `- ` items, and code,
indented by four spaces. Names in backquotes are emphasised. The texts are in the package; docs/cli.md links to them.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from importlib.resources import files

NAMES = (
    "start", "jobs", "gangs", "topology", "queues", "preemption", "checkpoints", "arrays", "environment", "logs",
    "files", "exit-codes", "troubleshooting",
)  # fmt: skip
"""In the order in which people need them."""
WIDEST = 100


class Kind(Enum):
    """What a block is."""

    HEADING = auto()
    PARAGRAPH = auto()
    ITEM = auto()
    CODE = auto()


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a text: its lines joined, unless they are code."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, its line in the list, and its text."""

    name: str
    summary: str
    blocks: tuple[Block, ...]


def topic(name: str) -> Topic:
    """One of NAMES."""
    text = (files(__package__) / "texts" / f"{name}.md").read_text("utf-8")
    title, _, body = text.partition("\n")
    stated, _, summary = title.removeprefix("# ").partition(": ")
    assert stated == name, title
    return Topic(name, summary, tuple(_blocks(body)))


def _blocks(body: str) -> Iterator[Block]:
    lines: list[str] = []
    for line in [*body.splitlines(), ""]:
        starts_anew = line.startswith("- ") or not line
        if lines and starts_anew and not (lines[0].startswith("    ") and line):
            yield _block(lines)
            lines = []
        if line:
            lines.append(line)


def _block(lines: list[str]) -> Block:
    if lines[0].startswith("    "):
        return Block(Kind.CODE, textwrap.dedent("\n".join(lines)))
    text = " ".join(line.strip() for line in lines)
    for mark, kind in (("## ", Kind.HEADING), ("- ", Kind.ITEM)):
        if text.startswith(mark):
            return Block(kind, text.removeprefix(mark))
    return Block(Kind.PARAGRAPH, text)


def as_text(shown: Topic, width: int) -> str:
    """A topic for a terminal of so many columns."""
    wide = max(40, min(width, WIDEST))
    parts = [f"{shown.name.upper()} - {shown.summary}"]
    before = Kind.HEADING
    for block in shown.blocks:
        apart = "" if block.kind is before is Kind.ITEM else "\n"
        parts.append(apart + _text_of(block, wide))
        before = block.kind
    return "\n".join(parts)


def _text_of(block: Block, wide: int) -> str:
    if block.kind is Kind.CODE:
        return textwrap.indent(block.text, "  ")
    plain = block.text.replace("`", "")
    if block.kind is Kind.HEADING:
        return plain.upper()
    first, rest = ("  - ", "    ") if block.kind is Kind.ITEM else ("", "")
    return textwrap.fill(
        plain, wide, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
