"""Prints answers: JSON for programs, aligned plain columns for people.

Tables are plain text on purpose: they are piped into grep, and Rich would cost `gantree jobs` half its time.
What is worth colour (the cluster's picture, progress) uses Rich where it is drawn.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import typer

LINE = 100
"""Characters of a line of JSON."""


def print_json(document: Any) -> None:
    """One JSON document on stdout, and a line end."""
    typer.echo(json_text(document))


def json_text(value: Any, indent: str = "") -> str:
    """JSON in which whatever is short enough stands on one line, so that a matrix reads as one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= LINE or not isinstance(value, dict | list) or not value:
        return flat
    inner = indent + "  "
    if isinstance(value, list):
        parts = [json_text(each, inner) for each in value]
        return f"[\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}]"
    named = [
        f"{json.dumps(key, ensure_ascii=False)}: {json_text(each, inner)}"
        for key, each in value.items()
    ]
    return f"{{\n{inner}" + f",\n{inner}".join(named) + f"\n{indent}}}"


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A left-aligned table; no space at the ends of lines."""
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def printable(cell: str) -> str:
    """A cell without control characters: words of users must not steer a terminal, nor break a line."""
    if cell.isprintable():
        return cell
    return "".join(sign if sign.isprintable() else "?" for sign in cell)


def moment(at: float) -> str:
    """A moment in seconds since 1970 by the local clock: "2026-11-21 23:05:10"."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A length of time in at most two units: "45s", "3m20s", "2d4h"."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return "".join(parts[:2])
