"""How all ranks save at the same step although nobody waits for anybody.

A checkpoint must hold one step of all ranks. If each rank looked for the request by itself, some would see it
at step s and some at s + 1; those that save would leave the others alone in the next collective. So only
rank 0 looks for requests (and at the clock, for periodic checkpoints). Having seen one at step s, it publishes
"all save at s + lead" as a file named after that step; every rank only asks whether the file of its own
present step exists.

Why nobody can miss it, for lead = 1. Every step has a collective in which each rank's result depends on
rank 0's part, so no rank can finish the collective of step s + 1 before rank 0 has entered it; rank 0 enters it
after its should_checkpoint(s) has returned, hence after the file is there. A rank that asks in step s + 1 after
the collective has finished it; a rank that asks before has finished that of step s, which rank 0 entered after
its should_checkpoint(s), since it asks at the same place. Either way the file is there. With one collective in
every k steps the same holds for lead = k.

A step's file never changes, so a slow rank finds it however far rank 0 has gone on. Rank 0 removes files that
every rank has passed: when it is at step s, all have asked for s - lead - 1 and before.

What a rank has saved is in one file of its own, replaced at each save: the last step, and the last request
answered. From the smallest last step over all ranks the executor learns what is complete. It also says how many ranks
there are: a launcher inside the member (torchrun) may have started more processes than gantree knows of.
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
    """One rank's part. every_s: rank 0 also asks for a checkpoint each so many seconds of `clock`.

    world_size is told in what it saves; None: as many ranks as gantree started.
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
        """True if the ranks agreed on this step."""
        if self._rank == 0:
            self._decide(step, lead)
        agreed = _read(self._folder / _name(step))
        if agreed is None:
            return False
        self._agreed_request = {step: agreed["request"]}
        return True

    def saved(self, step: int) -> None:
        """Say durably that this rank's part of a step is safe."""
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
        """Rank 0: agree on step + lead if a new request is there or it is time."""
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
        """A request that was not seen before: each is a file of its own under the same name."""
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
    """The part that this process has by its environment; None if gantree did not start it."""
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
    """The whole file or none, on disk before anybody can see it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
