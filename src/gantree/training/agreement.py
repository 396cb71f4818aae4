"""Agreement of all ranks on the step of a checkpoint, without waiting for each other.

A checkpoint must hold the same step of all ranks. If each rank polled for the request, some ranks would see it at step
s and others at s + 1. Those that save would then be missing in the next collective. So only rank 0 polls for requests
(and reads the clock, for periodic checkpoints). When it finds one at step s, it publishes the step s + lead as a file
named after that step. Every rank only tests whether the file of its current step exists.

Proof that no rank misses the file, for lead = 1: Each step has a collective whose result on every rank depends on rank
0. So no rank finishes the collective of step s + 1 before rank 0 enters it, and rank 0 enters it after its call of
should_checkpoint(s) returned, when the file exists. A rank that calls should_checkpoint(s + 1) after that collective
has finished it. A rank that calls it before that collective has finished the one of step s, which rank 0 entered after
should_checkpoint(s), because all ranks call it at the same place in the step. In both cases the file exists. With one
collective in every k steps the same holds for lead = k.

The file of a step never changes, so a slow rank finds it however far rank 0 has advanced. Rank 0 removes the files that
every rank has passed: when it is at step s, all ranks have tested s - lead - 1 and before.

Each rank records what it saved in one file, replaced at each save: the last step and the last answered request. The
executor takes the smallest last step over all ranks as complete. The file also holds the number of ranks, because a
launcher inside the member (torchrun) may start more processes than gantree did.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gantree.training.place import number


class Agreement:
    """One rank's side of the protocol. every_s: seconds of `clock` between periodic checkpoints (rank 0); None: none.

    world_size is written with each save; None: as many ranks as gantree started.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        every_s: float | None,
        clock: Callable[[], float] = time.monotonic,
        world_size: int | None = None,
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._every_s = every_s
        self._clock = clock
        self._world_size = world_size
        self._asked_at = clock()
        self._published: list[int] = []
        self._seen_request: tuple[int, int] | None = None
        self._agreed_request: dict[int, str | None] = {}
        self._answered: tuple[str | None, int | None] = (None, None)

    def should_checkpoint(self, step: int, lead: int) -> bool:
        """Return whether the ranks agreed on this step."""
        if self._rank == 0:
            self._decide(step, lead)
        agreed = _read(self._folder / _name(step))
        if agreed is None:
            return False
        self._agreed_request = {step: agreed["request"]}
        return True

    def saved(self, step: int) -> None:
        """Record durably that this rank's part of the checkpoint of a step is saved."""
        request = self._agreed_request.pop(step, None)
        if request is not None:
            self._answered = (request, step)
        answered_request, answered_step = self._answered
        record: dict[str, Any] = {
            "step": step,
            "request": answered_request,
            "request_step": answered_step,
        }
        if self._world_size is not None:
            record["world_size"] = self._world_size
        _publish(self._folder / f"rank-{self._rank}.json", record)

    def _decide(self, step: int, lead: int) -> None:
        """Rank 0: publish step + lead if there is a new request, or a periodic checkpoint is due."""
        request = self._new_request()
        if request is None and not self._is_time():
            return
        self._asked_at = self._clock()
        self._forget_before(step - lead)
        _publish(self._folder / _name(step + lead), {"request": request})
        self._published.append(step + lead)

    def _is_time(self) -> bool:
        return self._every_s is not None and self._clock() - self._asked_at >= self._every_s

    def _new_request(self) -> str | None:
        """Return the id of a new request, or None. Each request replaces the file, which gets a new inode."""
        try:
            with (self._folder / "request.json").open(encoding="utf-8") as file:
                stat = os.fstat(file.fileno())
                identity = (stat.st_ino, stat.st_mtime_ns)
                if identity == self._seen_request:
                    return None
                self._seen_request = identity
                return str(json.load(file)["request"])
        except FileNotFoundError:
            return None

    def _forget_before(self, step: int) -> None:
        for passed in [each for each in self._published if each < step]:
            (self._folder / _name(passed)).unlink(missing_ok=True)
            self._published.remove(passed)


def agreement_of(environment: Mapping[str, str]) -> Agreement | None:
    """Return the Agreement of this process; None if gantree did not start it."""
    run_dir = environment.get("GANTREE_RUN_DIR")
    if not run_dir:
        return None
    folder = Path(run_dir) / "checkpoint"
    if not folder.is_dir():
        print(f"gantree: no checkpoints: {folder} cannot be reached from here", file=sys.stderr)  # noqa: T201  # the script's own log is the only place its author looks
        return None
    every_s = environment.get("GANTREE_CHECKPOINT_EVERY_S")
    return Agreement(
        folder,
        number(environment, "RANK", 0),
        float(every_s) if every_s else None,
        world_size=number(environment, "WORLD_SIZE", 1),
    )


def _name(step: int) -> str:
    return f"agreed-{step}.json"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    record: dict[str, Any] = json.loads(text)
    return record


def _publish(path: Path, record: dict[str, Any]) -> None:
    """Write a file atomically and durably."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
