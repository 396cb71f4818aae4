"""Conditions on texts, the same in every database: names as patterns, queues with all below them."""

from sqlalchemy import ColumnElement, or_

ESCAPE = "\\"
WILDCARDS = frozenset("*?")


def writable(text: str) -> str:
    """PostgreSQL's text has no NUL, and nobody's has a lone surrogate."""
    return text.encode(errors="replace").decode().replace("\0", "?")


def within(dialect: str, column: ColumnElement[str], queue: str) -> ColumnElement[bool]:
    """Of a queue, or of one below it."""
    literal = "".join(f"[{each}]" if each in "*?" else each for each in queue)
    below = matches(dialect, column, f"{literal if dialect == 'sqlite' else queue}/*")
    return or_(column == writable(queue), below)


def matches(dialect: str, column: ColumnElement[str], pattern: str) -> ColumnElement[bool]:
    """Whether a text is as a pattern with `*` and `?` has it. SQLite's LIKE ignores case, its GLOB does not."""
    pattern = writable(pattern)
    if dialect == "sqlite":
        return column.op("GLOB", is_comparison=True)(pattern.replace("[", "[[]"))
    for special in (ESCAPE, "%", "_"):
        pattern = pattern.replace(special, ESCAPE + special)
    return column.like(pattern.replace("*", "%").replace("?", "_"), escape=ESCAPE)
