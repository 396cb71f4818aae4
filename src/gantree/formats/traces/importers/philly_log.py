"""Philly's own log, cluster_job_log (github.com/msr-fiddle/philly-traces): JSON, an object a job.

A job runs for as long as all its attempts did together; members are the machines of its last attempt, where these had
GPUs alike. vc becomes the queue. Times are wall clocks. Jobs that never ran, or of which an attempt has no end, are
left out. Objects are read one by one: the file has a hundred thousand of them.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from gantree.formats.traces import cells
from gantree.formats.traces.cells import Cell
from gantree.formats.traces.importers.document import DocumentFormat
from gantree.formats.traces.importers.members import equal_members
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.table import MAX_PROBLEMS, LeftOut, Row
from gantree.formats.traces.text_file import bad_file, opened
from gantree.model.errors import BadFields, Problem
from gantree.text.words import shortened

CHUNK_CHARS = 1 << 20
MAX_OBJECT_CHARS = 64 << 20
KEYS = ("jobid", "submitted_time", "attempts", "vc")
_HEAD_CHARS = 4096


def _knows(path: Path) -> bool:
    """Whether a file begins with a list of objects with these keys."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD_CHARS).lstrip()
    return head.startswith(b"[") and any(f'"{key}"'.encode() in head for key in KEYS[:2])


def _read(path: Path, left_out: Counter[str]) -> Iterator[Row]:
    problems: list[Problem] = []
    with opened(path) as file:
        for line, entry in _objects(file, path):
            try:
                yield line, _job(entry)
            except LeftOut as left:
                left_out[str(left)] += 1
            except _BadEntry as bad:
                problems.append(Problem(str(path), line, bad.key, bad.found, bad.allowed))
            if len(problems) >= MAX_PROBLEMS:
                break
    if problems:
        raise BadFields(problems)


def _objects(file: TextIO, path: Path) -> Iterator[tuple[int, Any]]:
    """The elements of a list of JSON, each with the line that it begins in. Raises BadFields."""
    decoder, line = json.JSONDecoder(), 1
    text = file.read(CHUNK_CHARS)
    if text.lstrip()[:1] != "[":
        raise bad_file(path, "no list", "a list of jobs in JSON")
    at = text.index("[") + 1
    line += text.count("\n", 0, at)
    while True:
        start = at + len(text) - at - len(text[at:].lstrip(" \t\r\n,"))
        line += text.count("\n", at, start)
        if text[start : start + 1] == "]":
            return
        try:
            entry, end = decoder.raw_decode(text, start)
        except RecursionError:
            raise _bad_json(path, line, ValueError("more brackets than a job has")) from None
        except ValueError as error:
            more = file.read(max(CHUNK_CHARS, len(text) - start))
            if not more or len(text) - start > MAX_OBJECT_CHARS:
                raise _bad_json(path, line, error) from None
            text, at = text[start:] + more, 0
            continue
        yield line, entry
        line += text.count("\n", start, end)
        at = end


def _bad_json(path: Path, line: int, error: ValueError) -> BadFields:
    found = getattr(error, "msg", str(error))
    return BadFields([Problem(str(path), line, "document", found, "a whole list of jobs in JSON")])


class _BadEntry(Exception):
    """A value that is not as published."""

    def __init__(self, key: str, found: Any, allowed: str) -> None:
        self.key, self.found, self.allowed = key, f"`{shortened(str(found))}`", allowed


def _cell(entry: Any, key: str, kind: Cell) -> Any:
    text = entry.get(key) if isinstance(entry, dict) else None
    try:
        return kind.parse(text if isinstance(text, str) else str(text))
    except (ValueError, OverflowError):
        raise _BadEntry(key, text, kind.allowed) from None


def _job(entry: Any) -> TraceJob:
    attempts = entry.get("attempts") if isinstance(entry, dict) else None
    if not isinstance(attempts, list):
        raise _BadEntry("attempts", attempts, "a list")
    if not all(isinstance(each, dict) for each in attempts):
        raise _BadEntry("attempts", attempts, "a list of objects")
    gpus_of_machines = _gpus_of_machines(attempts)
    if not gpus_of_machines:
        raise LeftOut("never ran on a GPU")
    alike = len(set(gpus_of_machines)) == 1
    members, gpus_per_member = (
        (len(gpus_of_machines), gpus_of_machines[0])
        if alike
        else equal_members(sum(gpus_of_machines))
    )
    return TraceJob(
        job_id=_cell(entry, "jobid", cells.NAME),
        submit_s=_cell(entry, "submitted_time", cells.WALL_CLOCK),
        duration_s=sum(map(_ran_s, attempts)),
        members=members,
        gpus_per_member=gpus_per_member,
        queue=_cell(entry, "vc", cells.QUEUE),
        user=_cell(entry, "user", cells.TEXT) if entry.get("user") else "",
    )


def _gpus_of_machines(attempts: list[dict[str, Any]]) -> list[int]:
    """GPUs on each machine of the last attempt that had any."""
    for attempt in reversed(attempts):
        details = attempt.get("detail") or []
        if not isinstance(details, list) or not all(map(_is_machine, details)):
            raise _BadEntry("attempts.detail", details, "a list of objects with lists of gpus")
        gpus = [len(each["gpus"] or ()) for each in details]
        if any(gpus):
            return [count for count in gpus if count]
    return []


def _is_machine(detail: Any) -> bool:
    return isinstance(detail, dict) and isinstance(detail.get("gpus", 0), list | None)


def _ran_s(attempt: Any) -> float:
    """Seconds that an attempt ran; the log has none for an end or a start that was lost."""
    if attempt.get("start_time") in (None, "None") or attempt.get("end_time") in (None, "None"):
        raise LeftOut("an attempt has no start or no end")
    start_s = _cell(attempt, "start_time", cells.WALL_CLOCK)
    return max(0.0, float(_cell(attempt, "end_time", cells.WALL_CLOCK) - start_s))


PHILLY_LOG = DocumentFormat("philly", "Philly 2017 (cluster_job_log)", _knows, _read)
