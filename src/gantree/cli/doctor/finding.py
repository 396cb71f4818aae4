"""What a check found, and what checks look at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

GIB = 1 << 30
MIB = 1 << 20


class Level(StrEnum):
    """How bad it is. Only `fail` makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and what to do about it ("" if nothing)."""

    check: str
    level: Level
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that answers: its process and version, and why it is not ready ("" if it is)."""

    pid: int
    version: str
    not_ready: str
    is_local: bool
    """Whether its process is one of this machine."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is checked. health is the answer of the daemon; wall is the present, in seconds since 1970."""

    state_dir: Path
    wall: float
    database: str | None = None
    listen: str | None = None
    daemon: Daemon | None = None
    environment: dict[str, str] = field(default_factory=dict)
    devices: Path = Path("/dev")


Check = Callable[[Subject], Iterator[Finding]]
Json = dict[str, Any]


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, found)


def warn(check: str, found: str, fix: str) -> Finding:
    """It works, and somebody should know."""
    return Finding(check, Level.WARN, found, fix)


def fail(check: str, found: str, fix: str) -> Finding:
    """It does not work, or it is unsafe."""
    return Finding(check, Level.FAIL, found, fix)
