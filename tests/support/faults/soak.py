"""Runs many lives on all cores, prints how often each kind of fault came, and what failed.

    python -m support.faults.soak --seeds 2000 --first 0          # `make soak-faults`
    python -m support.faults.soak --seed 1234                     # one again: `make soak-seed SEED=1234`

A life that fails is run again with ever fewer actions; what is printed is the shortest run that still fails.
"""

import argparse
import gc
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from support.faults.life import Life
from support.faults.plan import Action
from support.faults.shrink import shrunk
from support.faults.tally import Tally, table

MEMORY = Path("/dev/shm")
SHRINK_WITHIN_S = 60.0
SHOWN = 3
"""So many failing lives are shortened and shown."""
LAST_LINES = 60
SAID_EVERY_S = 20.0


@dataclass(slots=True)
class Outcome:
    """What became of a life. error is "" for one that holds; trace and plan are those of the run."""

    seed: int
    error: str
    events: int = 0
    cpu_s: float = 0.0
    tally: Tally = field(default_factory=Tally)
    trace: list[str] = field(default_factory=list)
    plan: list[Action] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """What failed, without names and numbers."""
        return "".join(letter for letter in self.error[:60] if not letter.isdigit())


def lived(seed: int, plan: Sequence[Action] | None = None) -> Outcome:
    """Run one life, in memory where the machine has a place for it."""
    began = time.process_time()
    base = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="gantree-life-", dir=base) as place:
        life = Life(seed, Path(place), plan)
        error = ""
        with _Logged(life):
            try:
                life.run()
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}\n{_where(raised)}"
    spent = time.process_time() - began
    return Outcome(seed, error, life.events, spent, life.tally, life.trace, life.performed)


class TraceHandler(logging.Handler):
    """Adds what production code logs to the trace of a life."""

    def __init__(self, life: Life) -> None:
        super().__init__(logging.WARNING)
        self._life = life

    def emit(self, record: logging.LogRecord) -> None:
        """Add one line."""
        self._life.note(f"   log {record.levelname}: {record.getMessage()}")


class _Logged:
    """What production code logs goes to the trace, and nowhere else."""

    def __init__(self, life: Life) -> None:
        self._handlers = [TraceHandler(life)]

    def __enter__(self) -> None:
        root = logging.getLogger()
        self._before, root.handlers = root.handlers, list(self._handlers)

    def __exit__(self, *_: object) -> None:
        logging.getLogger().handlers = self._before


def _where(error: BaseException) -> str:
    """The innermost lines of a traceback."""
    return "".join(traceback.format_tb(error.__traceback__)[-3:])


def shortened(outcome: Outcome, within_s: float) -> Outcome:
    """The shortest run found that fails as a life did."""
    best = outcome

    def fails(plan: Sequence[Action]) -> bool:
        nonlocal best
        again = lived(outcome.seed, plan)
        if again.kind != outcome.kind:
            return False
        best = again
        return True

    shrunk(outcome.plan, fails, within_s)
    return best


def told(outcome: Outcome, shrink_s: float) -> str:
    """A failing life: the command that repeats it, what failed, and the shortest run that was found in a time."""
    best = shortened(outcome, shrink_s)
    lines = best.trace[-LAST_LINES:]
    return "\n".join(
        (
            f"FAILED: seed {outcome.seed}. Repeat: make soak-seed SEED={outcome.seed}",
            outcome.error,
            f"The shortest run found: {len(best.plan)} of {len(outcome.plan)} actions; its last {len(lines)} lines:",
            *lines,
            best.error.splitlines()[0] if best.error else "",
        )
    )


def _lived_lean(seed: int) -> Outcome:
    """Of a life that holds, what is counted alone."""
    outcome = lived(seed)
    if not outcome.error:
        outcome.trace, outcome.plan = [], []
    return outcome


def _settle_in() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def outcomes(seeds: range, workers: int) -> Iterator[Outcome]:
    """The lives of many seeds, as they end."""
    if workers == 1:
        _settle_in()
        yield from map(_lived_lean, seeds)
        return
    with get_context("fork").Pool(workers, _settle_in) as pool:
        yield from pool.imap_unordered(_lived_lean, seeds, chunksize=4)


def soak(seeds: range, workers: int, most_failures: int, shrink_s: float = SHRINK_WITHIN_S) -> int:
    """Run the lives and print what came of them; 1 if any failed, and then no more than some."""
    began = said = time.monotonic()
    tally, failed, least, events, cpu_s, lives = Tally(), [], 10**9, 0, 0.0, 0
    for outcome in outcomes(seeds, workers):
        lives += 1
        tally.update(outcome.tally)
        events += outcome.events
        cpu_s += outcome.cpu_s
        if outcome.error:
            failed.append(outcome)
            print(f"seed {outcome.seed}: {outcome.error.splitlines()[0][:200]}", flush=True)
            if len(failed) >= most_failures:
                break
        else:
            least = min(least, outcome.events)
        if time.monotonic() - said > SAID_EVERY_S:
            said = time.monotonic()
            print(f"{lives} of {len(seeds)} lives, {said - began:.0f} s", flush=True)
    for outcome in failed[:SHOWN]:
        print(told(outcome, shrink_s), flush=True)
    print(table(tally, lives))
    took_s = time.monotonic() - began
    print(
        f"{lives} lives ({seeds.start} to {seeds.stop - 1}), {events:,} events (at least {least} a life),"
        f" {len(failed)} failed; {took_s:.0f} s on {workers} cores, {cpu_s / max(1, lives):.2f} s of CPU a life"
    )
    return 1 if failed else 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2000, help="how many lives")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--seed", type=int, help="run this life alone, and print its trace if it fails"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--most-failures", type=int, default=10, help="stop after so many")
    parser.add_argument(
        "--shrink-s",
        type=float,
        default=SHRINK_WITHIN_S,
        help="how long each failing life is shortened, in seconds",
    )
    given = parser.parse_args()
    if given.seed is not None:
        return soak(range(given.seed, given.seed + 1), 1, 1, given.shrink_s)
    seeds = range(given.first, given.first + given.seeds)
    return soak(seeds, given.workers, given.most_failures, given.shrink_s)


if __name__ == "__main__":
    sys.exit(main())
