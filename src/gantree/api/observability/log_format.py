"""Format of the daemon's log: structlog over the standard logging, so that libraries' lines have it too.

On a terminal a line is for people, elsewhere it is one JSON object. Fields (job, attempt, cause, turn, epoch) come
from structlog's context, which control binds, and from `extra`. Nothing secret leaves: values of fields that are named
like secrets, Authorization headers, bearer tokens and passwords in addresses are blotted out in every line.
"""

import logging
import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

REDACTED = "***"
CLIENT_LIBRARIES = ("httpx", "httpcore")
"""They log a line for each request, with the whole address."""


class Format(StrEnum):
    """How lines look; AUTO: TEXT on a terminal, JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


class Level(StrEnum):
    """The least that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


_SECRET_NAME = re.compile(
    r"(?i)(^|[_.-])(authorization|cookie|password|passwd|pgpassword|secret|token|api[_-]?key)s?$"
)
_SECRETS = (
    (re.compile(r"(?i)\b(authorization['\"]?\s*[:=]\s*['\"]?)([a-z]+\s+)?[^\s'\",;]+"), r"\1\2" + REDACTED),
    (re.compile(r"\b((?i:bearer)|(?i:basic)(?=\s+\S*[A-Z0-9=]))\s+[A-Za-z0-9._~+/=-]{6,}"), r"\1 " + REDACTED),
    (re.compile(r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), REDACTED),
    (re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@]*):[^\s/]+@"), r"\1:" + REDACTED + "@"),
    (
        re.compile(
            r"(?i)\b([a-z0-9_]*(?:password|passwd|secret|token|api[_-]?key)['\"]?\s*[=:]\s*['\"]?)"
            r"[^\s'\"&,;]+"
        ),
        r"\1" + REDACTED,
    ),
)  # fmt: skip


def set_up(level: Level, form: Format, stream: TextIO | None = None) -> None:
    """Send every line of this process from a level on to a stream (standard error)."""
    out = stream or sys.stderr
    as_json = form is Format.JSON or (form is Format.AUTO and not out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter(as_json=as_json, colours=out.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for library in CLIENT_LIBRARIES:
        logging.getLogger(library).setLevel(max(logging.WARNING, root.level))


def formatter(*, as_json: bool, colours: bool = False) -> logging.Formatter:
    """What makes a line of a record."""
    fields: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.ExtraAdder(),
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        last += [structlog.processors.format_exc_info, redact, structlog.processors.JSONRenderer()]
    else:
        last += [
            structlog.processors.format_exc_info,
            redact,
            structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0),
        ]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=fields, processors=last)


def redact(logger: WrappedLogger, name: str, line: EventDict) -> EventDict:
    """Blot out what is secret in a line, however deep it stands."""
    return {key: _blotted(key, value) for key, value in line.items()}


def _blotted(key: str, value: Any) -> Any:
    if _SECRET_NAME.search(key) and value is not None:
        return REDACTED
    if isinstance(value, Mapping):
        return {str(name): _blotted(str(name), each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_blotted("", each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redacted(value.decode(errors="replace") if isinstance(value, bytes) else str(value))


def redacted(text: str) -> str:
    """Return a text with recognisable secrets redacted."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text
