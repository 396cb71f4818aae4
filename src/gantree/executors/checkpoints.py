"""The executor's side of the checkpoint protocol of one attempt: ask, and find out what has been saved.

Files in `checkpoint/` of the run directory:

    request.json        {"request": id, "deadline_at": s}: the newest request; written here
    agreed-<step>.json  the ranks save at this step; written by rank 0 through `gantree.training`
    rank-<r>.json       {"step", "request", "request_step"}: the last step whose shard of this rank is durable, and
                        the last request it has answered, at which step; written through `gantree.training`
    answer              one line, the step: written by a script that declared a signal, when all shards are durable
    saved.json          what was found out last; written here before anybody is told

The ranks save the same steps in the same order. So the step that all have reached is the smallest of their
last ones, even while some are already further, and a request is answered once it is the last answered request
of every rank.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gantree.executors.shim import read_json, write_json
from gantree.model.orders import SaveCheckpoint

RACY_NS = 100_000_000
"""A folder that changed this recently may change again without its time stamp showing it."""
UNRELIABLE = -1
"""A stamp that says nothing."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is complete, and the request that it answers, if any."""

    step: int
    request: str | None


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
        self._ranks = [str(folder / f"rank-{rank}.json") for rank in range(world_size)]
        self._answer_path = folder / "answer" if expects_answer else None
        self._now_ns = now_ns
        self._stamp = UNRELIABLE
        record = read_json(str(folder / "saved.json")) or {"saved": [], "answer": None}
        self._answer: list[int] | None = record["answer"]
        self._saved = tuple(Saved(step, request) for step, request in record["saved"])

    def ask(self, order: SaveCheckpoint) -> None:
        """Put down a request; the same one again changes nothing. Raises OSError."""
        if self._open_request() != order.request:
            self._note_answer()  # one that lies here already answers an older request, or none
            request = {"request": order.request, "deadline_at": order.deadline_at}
            write_json(str(self._folder / "request.json"), request)

    def look(self) -> tuple[Saved, ...]:
        """The last answer to a request and the last checkpoint of the job's own accord, durable on disk."""
        self._note_answer()
        stamp = folder_stamp(self._folder, self._now_ns())
        if stamp == UNRELIABLE or stamp != self._stamp:
            self._stamp = stamp
            for saved in self._from_ranks():
                self._note(saved)
        return self._saved

    def _open_request(self) -> str | None:
        request = read_json(str(self._folder / "request.json"))
        return None if request is None else request["request"]

    def _note(self, saved: Saved) -> None:
        """Keep it as the last of its kind, on disk first."""
        if saved in self._saved:
            return
        others = [each for each in self._saved if (each.request is None) != (saved.request is None)]
        known = (*others, saved)
        record = {"saved": [[each.step, each.request] for each in known], "answer": self._answer}
        write_json(str(self._folder / "saved.json"), record)
        self._saved = known

    def _from_ranks(self) -> list[Saved]:
        """What follows from the files of the ranks; nothing as long as one of them has none."""
        if not self._ranks or read_json(self._ranks[-1]) is None:
            return []
        records = [record for record in map(read_json, self._ranks) if record is not None]
        if len(records) < len(self._ranks):
            return []
        answered = {(record["request"], record["request_step"]) for record in records}
        answers = [Saved(step, request) for request, step in answered if request is not None]
        found = answers if len(answered) == 1 else []
        last_step = min(record["step"] for record in records)
        if all(answer.step != last_step for answer in answers):
            found.append(Saved(last_step, None))
        return found

    def _note_answer(self) -> None:
        """Take in the one-line answer of a script, once for every time it was written.

        Its folder's stamp does not show that it was written again, so the file itself is asked.
        """
        if self._answer_path is None:
            return
        try:
            stat = self._answer_path.stat()
            identity = [stat.st_ino, stat.st_mtime_ns, stat.st_size]
            if identity == self._answer:
                return
            step = int(self._answer_path.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return  # not there, or half written: its writer will finish it
        self._answer = identity
        request = self._open_request()
        is_answered = any(each.request == request for each in self._saved)
        self._note(Saved(step, None if is_answered else request))
