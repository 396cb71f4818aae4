"""What a transaction of the SQLite journal costs beside the same one written by hand with `sqlite3`.

    python benchmarks/transactions.py [--times 400] [--place /dev/shm]

Appends of 1, 20 and 100 submissions and turns of 1, 20 and 100 facts, by the journal and by hand in turn, each on a
file of its own. What is written is made text in the same way in both; by hand there is also the look at who leads,
which is what keeps an old leader from writing. Prints the median microseconds of processor time of each, and their
ratio. In memory by default, so that no disk hides the difference.
"""

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from gantree.journal.encoding.codec import EVENT_CODEC, FACT_CODEC, Codec
from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.model.events import Event, JobSubmitted
from gantree.model.facts import Fact, GangRunning
from gantree.testing.builders import job

SIZES = (1, 20, 100)
LOOK = "SELECT epoch, holder FROM leadership"
APPEND = (
    "INSERT INTO inbox (seq, id, observed_at, kind, version, data) VALUES"
    " ((SELECT coalesce(max(seq), 0) + 1 FROM inbox), ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
)
LAST = "SELECT turn, last_fact, last_order FROM turns ORDER BY turn DESC LIMIT 1"
TURN = "INSERT INTO turns (turn, epoch, cursor, last_fact, last_order) VALUES (?, ?, ?, ?, ?)"
FACTS = "INSERT INTO facts (seq, turn, kind, version, data) VALUES (?, ?, ?, ?, ?)"


class ByHand:
    """The transactions of a journal on its own tables, without the journal."""

    def __init__(self, place: Path) -> None:
        journal = SqliteJournal(place)
        self._epoch = journal.lead("by hand", 60.0)
        journal.close()
        self._connection = sqlite3.connect(place / FILE, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = FULL")

    def append(self, events: Sequence[Event]) -> None:
        rows = [(each.id, each.observed_at, *row(EVENT_CODEC, each)) for each in events]
        self._begin()
        self._connection.executemany(APPEND, rows)
        self._connection.execute("COMMIT")

    def commit(self, cursor: int, facts: Sequence[Fact]) -> None:
        rows = [row(FACT_CODEC, each) for each in facts]
        self._begin()
        turn, fact, order = self._connection.execute(LAST).fetchone() or (0, 0, 0)
        told = (turn + 1, self._epoch, cursor, fact + len(facts), order)
        self._connection.execute(TURN, told)
        numbered = [(seq, turn + 1, *each) for seq, each in enumerate(rows, fact + 1)]
        self._connection.executemany(FACTS, numbered)
        self._connection.execute("COMMIT")

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        epoch, _ = self._connection.execute(LOOK).fetchone()
        assert epoch == self._epoch


def row(codec: Codec[Event] | Codec[Fact], value: Event | Fact) -> tuple[str, int, str]:
    """What is written of an event or a fact."""
    code = codec.encode(value)  # type: ignore[arg-type]  # each codec is given its own
    return code.kind, code.version, code.data


def submissions() -> Iterator[Event]:
    """Without end."""
    spec = job("job", gpus=8)
    for number in count(1):
        told = f"job-{number}"
        yield JobSubmitted(id=told, observed_at=float(number), job=told, spec=spec)


def spent_us(work: Callable[[], object]) -> float:
    """Processor time of this thread."""
    began_ns = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - began_ns) / 1e3


def measure(place: Path, times: int) -> dict[str, dict[str, float]]:
    """All sizes, in turn."""
    journal, by_hand, source = (
        SqliteJournal(place / "ours"),
        ByHand(place / "theirs"),
        submissions(),
    )
    epoch, found = journal.lead("ours", 60.0), {}
    assert epoch is not None
    for size in SIZES:
        ours, theirs = list[float](), list[float]()
        for _ in range(times):
            told = [next(source) for _ in range(size)]
            ours.append(spent_us(partial(journal.append_inbox, told, epoch)))
            theirs.append(spent_us(partial(by_hand.append, told)))
        found[f"append of {size}"] = compared(ours, theirs)
    for size in SIZES:
        facts = [GangRunning(at=1.0, job=f"job-{number}", attempt=1) for number in range(size)]
        ours, theirs = [], []
        for _ in range(times):
            ours.append(spent_us(partial(journal.commit_turn, 0, facts, (), epoch)))
            theirs.append(spent_us(partial(by_hand.commit, 0, facts)))
        found[f"turn of {size}"] = compared(ours, theirs)
    journal.close()
    return found


def compared(ours_us: Sequence[float], theirs_us: Sequence[float]) -> dict[str, float]:
    """Medians, and how many times as long ours takes."""
    ours, theirs = median(ours_us), median(theirs_us)
    return {
        "journal_us": round(ours),
        "by_hand_us": round(theirs),
        "ratio": round(ours / theirs, 2),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=400)
    parser.add_argument("--place", type=Path, default=Path("/dev/shm"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantree-bench-", dir=asked.place) as place:
        print(json.dumps(measure(Path(place), asked.times), indent=2))


if __name__ == "__main__":
    main()
