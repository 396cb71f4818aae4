"""Runs the simulations of a sweep that are not finished, on so many processes, and says which failed.

A process that is killed, by the system for its memory say, takes its pool with it: what was not done then runs again,
each in a pool of its own, so that the one at fault is known. What comes out does not depend on the order.
"""

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from gantree.model.errors import BadInput, Conflict
from gantree.sim.sweep.plan import PlannedRun
from gantree.sim.sweep.worker import UNFINISHED, is_finished, run_planned

RUNS = "runs"
LOCK = ".lock"
KILLED = "its process was killed"
WATCH_S = 0.5

Advance = Callable[[int, int], None]
"""Called with (finished simulations, all)."""


def run_sweep(
    plan: Sequence[PlannedRun], out: Path, processes: int, advance: Advance, *, report: bool = False
) -> dict[str, str]:
    """Run what is not finished; why each simulation that failed did, by name. report: whether each gets a report.html.

    Raises Conflict where another sweep runs in the directory, BadInput where it cannot be written.
    """
    with _alone(out):
        directory = out / RUNS
        directory.mkdir(exist_ok=True)
        for left in directory.glob(f"{UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        waiting = [planned for planned in plan if not is_finished(planned, directory)]
        done = len(plan) - len(waiting)
        failed: dict[str, str] = {}
        for planned, error in _ended(waiting, directory, processes, report):
            done += 1
            advance(done, len(plan))
            if error is not None:
                failed[planned.name] = error
        return {planned.name: failed[planned.name] for planned in plan if planned.name in failed}


def _ended(
    plan: Sequence[PlannedRun], directory: Path, processes: int, report: bool
) -> Iterator[tuple[PlannedRun, str | None]]:
    """(simulation, why it failed) as they end."""
    if processes == 1 or len(plan) <= 1:
        for planned in plan:
            yield planned, run_planned(planned, directory, report)
        return
    again: list[PlannedRun] = []
    with _pool(min(processes, len(plan))) as pool:
        futures = {
            pool.submit(run_planned, planned, directory, report): planned for planned in plan
        }
        for future in as_completed(futures):
            try:
                error = future.result()
            except BrokenProcessPool:
                again.append(futures[future])
            else:
                yield futures[future], error
    for planned in again:
        yield planned, _run_apart(planned, directory, report)


def _run_apart(planned: PlannedRun, directory: Path, report: bool) -> str | None:
    with _pool(1) as pool:
        try:
            return pool.submit(run_planned, planned, directory, report).result()
        except BrokenProcessPool:
            return KILLED


def _pool(processes: int) -> ProcessPoolExecutor:
    context = get_context("spawn")
    return ProcessPoolExecutor(processes, context, _end_with_parent, (os.getpid(),))


def _end_with_parent(parent: int) -> None:
    """In a process of a pool: end it soon after the sweep is gone, which cannot tell it when it is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the directory's lock, which ends with the process."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK).open("w")
    except OSError as error:
        raise BadInput(f"--out {out}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"{out}: another gantree sweep runs in it") from None
        yield
