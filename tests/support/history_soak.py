"""Random lives with restarts, in each of which the book must equal a recount of its facts, on all cores.

    python -m support.history_soak --lives 10000 --first 0          # `make soak-accounting`

A life is a seed in one of three policies. At its end the roll-ups, their sums and the record of ended jobs are compared
with a plain walk over all facts (`history_recount`), as they are, and once more after they were made from the facts
again. The seeds of lives that differ are printed with what does; `--lives 1 --first SEED` is one of them again.
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
from multiprocessing import get_context
from pathlib import Path

from gantree.journal.sqlite import SqliteJournal
from support.history_lives import HistoryLives
from support.history_recount import check_equal, check_rebuilt

POLICIES = ("shares", "turns", "moves")
MEMORY = Path("/dev/shm")
SAID_EVERY = 100


def wrong_in(seed: int, steps: int) -> str:
    """What differs in a life; "" where nothing does."""
    base = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="gantree-life-", dir=base) as place:
        journal = SqliteJournal(Path(place))
        try:
            lives = HistoryLives(journal, POLICIES[seed % len(POLICIES)], seed)
            lives.live(steps)
            check_equal(lives)
            check_rebuilt(lives)
        except Exception:
            return traceback.format_exc()
        finally:
            journal.close()
    return ""


def _lived(asked: tuple[int, int]) -> tuple[int, str]:
    return asked[0], wrong_in(*asked)


def main() -> None:
    """Run them; exit 1 where one differs."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--lives", type=int, default=300)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--steps", type=int, default=80)
    options.add_argument("--workers", type=int, default=os.cpu_count())
    given = options.parse_args()
    began, wrong = time.monotonic(), 0
    asked = [(seed, given.steps) for seed in range(given.first, given.first + given.lives)]
    with get_context("forkserver").Pool(given.workers) as pool:
        for count, (seed, told) in enumerate(pool.imap_unordered(_lived, asked), 1):
            if told:
                wrong += 1
                print(f"seed {seed} differs:\n{told}", flush=True)
            if count % SAID_EVERY == 0 or count == given.lives:
                spent_s = time.monotonic() - began
                print(f"{count} lives in {spent_s:.0f} s, {wrong} differ", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
