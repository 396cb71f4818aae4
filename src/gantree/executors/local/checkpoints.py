"""The executor's side of the checkpoint protocol of one attempt: requests, and what has been saved.

Files in `checkpoint/` of the run directory:

    request.json        {"request": id, "deadline_at": s}: the newest request; written here
    agreed-<step>.json  the ranks save at this step; written by rank 0 through `gantree.training`
    rank-<r>.json       {"step", "request", "request_step", "world_size"}: the last step whose shard of this rank is
                        durable, the last request it has answered, at which step, and how many ranks there are, where a
                        launcher in the members started more than gantree did; written through `gantree.training`
    answer              one line, the step: written by a script that declared a signal, when all shards are durable
    saved.json          the last result; written here before it is reported

The ranks save the same steps in the same order. So the step that all have reached is the smallest of their
last ones, even while some are already further, and a request is answered once it is the last answered request
of every rank.

The folder belongs to the job, which may put anything there: files that are no records are ignored.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from gantree.executors.local.shim.shim import write_json
from gantree.executors.report_records import is_step
from gantree.model.orders import SaveCheckpoint

RACY_NS = 100_000_000
"""A folder that changed this recently may change again without its time stamp showing it."""
UNRELIABLE = -1
"""A stamp of no file."""
SHOWN = 0o644
"""Mode of files that ranks read, possibly as another user than the daemon; the folder excludes all other users."""
LONGEST_RECORD = 4096
"""Bytes that are read of a file in the folder; a record is far shorter."""
MAX_LAUNCHED = 4096
"""Processes that a launcher may start for each one of gantree's."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is complete, and the request that it answers, if any."""

    step: int
    request: str | None


@dataclass(frozen=True, slots=True)
class _RankRecord:
    """What one rank has saved last, and the last request that it has answered, at which step."""

    step: int
    request: str | None
    request_step: int | None
    world_size: int


def start_of(path: Path, most_bytes: int = LONGEST_RECORD) -> bytes:
    """The first bytes of a file, whatever kind of file it is; none where it cannot be read.

    A link is not followed: the daemon may be allowed to read, or to open, what the job is not.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, most_bytes)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def record_in(path: Path, most_bytes: int = LONGEST_RECORD) -> dict[str, Any]:
    """The record in a file; an empty one where there is none."""
    try:
        record = json.loads(start_of(path, most_bytes))
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _rank_record_in(path: Path) -> _RankRecord | None:
    """The record of a rank; None where there is none."""
    record = record_in(path)
    step, request, at = (record.get(name) for name in ("step", "request", "request_step"))
    ranks = record.get("world_size", 0)
    if not is_step(step) or not is_step(ranks):
        return None
    if request is None:
        return _RankRecord(step, None, None, ranks)
    return _RankRecord(step, request, at, ranks) if _is_request(request) and is_step(at) else None


def _saved_in(record: dict[str, Any]) -> tuple[Saved, ...]:
    """What saved.json holds, as far as it is whole."""
    pairs = record.get("saved")
    return tuple(
        Saved(pair[0], pair[1])
        for pair in (pairs if isinstance(pairs, list) else ())
        if isinstance(pair, list) and len(pair) == 2 and is_step(pair[0])
        if pair[1] is None or _is_request(pair[1])
    )


def _is_request(value: object) -> TypeGuard[str]:
    """Requests are ours, and ids of ours are ASCII."""
    return isinstance(value, str) and value.isascii()


def folder_stamp(folder: Path, now_ns: int) -> int:
    """When names in a folder last changed, in ns; UNRELIABLE if too recent, or if there is no such folder."""
    try:
        changed_ns = folder.stat().st_mtime_ns
    except FileNotFoundError:
        return UNRELIABLE
    return changed_ns if now_ns - changed_ns > RACY_NS else UNRELIABLE


class CheckpointWatch:
    """Watches `checkpoint/` of one attempt."""

    def __init__(
        self, folder: Path, world_size: int, expects_answer: bool, now_ns: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._world_size = world_size
        self._answer_path = folder / "answer" if expects_answer else None
        self._now_ns = now_ns
        self._stamp = UNRELIABLE
        record = record_in(folder / "saved.json")
        self._answer: list[int] | None = record.get("answer")
        self._saved = _saved_in(record)

    def request(self, order: SaveCheckpoint) -> None:
        """Put down a request; the same one again changes nothing. Raises OSError."""
        if self._open_request() != order.request:
            self._note_answer()  # one that lies here already answers an older request, or none
            request = {"request": order.request, "deadline_at": order.deadline_at}
            write_json(str(self._folder / "request.json"), request, SHOWN)

    def poll(self) -> tuple[Saved, ...]:
        """The last answer to a request and the last checkpoint of the job's own accord, durable on disk."""
        self._note_answer()
        stamp = folder_stamp(self._folder, self._now_ns())
        if stamp == UNRELIABLE or stamp != self._stamp:
            self._stamp = stamp
            for saved in self._from_ranks():
                self._note(saved)
        return self._saved

    def _open_request(self) -> str | None:
        request = record_in(self._folder / "request.json").get("request")
        return request if _is_request(request) else None

    def _note(self, saved: Saved) -> None:
        """Keep it as the last of its kind, on disk first."""
        if saved in self._saved:
            return
        others = [each for each in self._saved if (each.request is None) != (saved.request is None)]
        known = (*others, saved)
        record = {"saved": [[each.step, each.request] for each in known], "answer": self._answer}
        write_json(str(self._folder / "saved.json"), record, SHOWN)
        self._saved = known

    def _from_ranks(self) -> list[Saved]:
        """What follows from the files of the ranks; nothing as long as one of them has none."""
        first = self._record_of(0)
        if first is None:
            return []
        most = self._world_size * MAX_LAUNCHED
        world_size = max(self._world_size, min(first.world_size, most))
        if self._record_of(world_size - 1) is None:
            return []
        records = [first]
        for rank in range(1, world_size):
            record = self._record_of(rank)
            if record is None:
                return []
            records.append(record)
        answered = {(record.request, record.request_step) for record in records}
        answers = [
            Saved(step, request)
            for request, step in answered
            if request is not None and step is not None
        ]
        found = answers if len(answered) == 1 else []
        last_step = min(record.step for record in records)
        if all(answer.step != last_step for answer in answers):
            found.append(Saved(last_step, None))
        return found

    def _record_of(self, rank: int) -> _RankRecord | None:
        return _rank_record_in(self._folder / f"rank-{rank}.json")

    def _note_answer(self) -> None:
        """Read the one-line answer of a script, once for each time it is written.

        The stamp of its folder does not change when it is written again, so the file itself is read.
        """
        if self._answer_path is None:
            return
        try:
            stat = self._answer_path.stat()
            identity = [stat.st_ino, stat.st_mtime_ns, stat.st_size]
            if identity == self._answer:
                return
            step = int(start_of(self._answer_path))
        except (OSError, ValueError):
            return  # not there, or half written: its writer will finish it
        if not is_step(step):
            return
        self._answer = identity
        request = self._open_request()
        is_answered = any(each.request == request for each in self._saved)
        if is_answered and any(each.step == step for each in self._saved):
            return  # several ranks say so, one after the other
        self._note(Saved(step, None if is_answered else request))
