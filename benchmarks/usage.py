"""How long `gantree usage` takes on a journal of many job segments, by each dimension, and how large that is.

    python benchmarks/usage.py [--segments 1000000] [--days 90] [--url postgresql+psycopg://...] [--json]

A segment is one attempt of one job. They are spread over the days, over 40 queues, 200 users and 10 projects, on whole
GPUs, shares and instances of MIG; their use is counted by the production meter, and each leaves the row of an ended
job. What is timed is the answer of `GET /v1/usage` for the last 31 days as the daemon makes it, once warm.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import get_args

from gantree.accounting.buckets import DAY_S
from gantree.accounting.change import HistoryChange
from gantree.accounting.ended_jobs import EndedJob
from gantree.accounting.meter import ALLOCATED, CAPACITY, UsageMeter
from gantree.accounting.usage import UsageKey
from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.views.accounting.usage_view import GroupedBy, usage
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.core.scheduler import Scheduler
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql.history_tables import ended_jobs, usage_history
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.policy.rules import Policy

MODELS = ("H100-80GB", "A100-80GB")
DEVICES = ("", "", "", "", "share", "1g.10gb")
END = 20_500 * DAY_S + 50_000.0
ROWS_AT_ONCE = 5000


def segments(count: int, days: int) -> Iterator[tuple[float, float, UsageKey, float]]:
    """(from, to, key, GPUs) in order of their begins."""
    lots, begin = Random(1), END - days * DAY_S
    keys = [
        UsageKey(f"q{number % 40}", f"u{number}", MODELS[number % 2], f"p{number % 10}", device)
        for number in range(200)
        for device in DEVICES[number % 3 :: 3]
    ]
    for number in range(count):
        at = begin + (END - begin) * number / count
        yield (
            at,
            min(END, at + lots.expovariate(1 / 7200)),
            lots.choice(keys),
            lots.choice([1.0, 8.0]),
        )


def fill(journal: SqlJournal, count: int, days: int) -> None:
    """Write the roll-ups and the ended jobs of so many segments."""
    epoch = journal.lead("benchmark", 3600.0)
    assert epoch is not None
    begin = END - days * DAY_S
    meter = UsageMeter({}, begin, END)
    meter.set(begin, UsageKey("", "", MODELS[0]), {CAPACITY: 10_000.0})
    changes = []
    rows: list[EndedJob] = []
    for number, (since, until, key, gpus) in enumerate(segments(count, days)):
        changes += [(since, key, gpus), (until, key, -gpus)]
        rows.append(_ended(number, since, until, key, gpus))
    changes.sort()
    for at, key, gpus in changes:
        meter.add(at, key, {ALLOCATED: gpus, "useful_gpu_s": gpus / 2})
    change = meter.taken(END, all_of_it=True)
    journal.rebuild_history(HistoryChange((), change), None, epoch)
    for first in range(0, count, ROWS_AT_ONCE):
        batch = rows[first : first + ROWS_AT_ONCE]
        ended = tuple(enumerate(batch, first))
        journal.rebuild_history(HistoryChange(ended), None, epoch)


def _ended(number: int, since: float, until: float, key: UsageKey, gpus: float) -> EndedJob:
    gpu_s = gpus * (until - since)
    return EndedJob(
        job=f"j{number}", name="j", queue=key.queue, user=key.user, priority=200, outcome="succeeded", reason="",
        exit_code=0, last_failure="", submitted_at=since, started_at=since, ended_at=until, attempts=1, failures=0,
        preemptions=0, members=1, processes=1, gpus=int(gpus), gpu_model=key.model, nodes="n0", held_gpu_s=gpu_s,
        lost_gpu_s=0.0, waited_s=1.0, project=key.project, useful_gpu_s=gpu_s / 2,
    )  # fmt: skip


def figures(journal: SqlJournal) -> dict[str, float]:
    """Seconds of an answer by each dimension, and of CPU for it; the number of rows."""
    scheduler = Scheduler(Policy())
    view = ReadView(scheduler.ledger, journal, ReadPoint(0, END), lambda policy: scheduler)
    boss, found = Caller("op", EVERYTHING, "tcp"), dict[str, float]()
    for by in (*get_args(GroupedBy), "job"):
        for _ in range(2):
            began, cpu_s = time.perf_counter(), time.process_time()
            json.dumps(usage(view, boss, by, END - 30 * DAY_S, END, 1000))
            found[f"{by}_s"] = time.perf_counter() - began
            found[f"{by}_cpu_s"] = time.process_time() - cpu_s
    with journal.database.reading() as connection:
        for table in (usage_history, ended_jobs):
            rows = connection.exec_driver_sql(f"SELECT count(*) FROM {table.name}").scalar_one()
            found[f"{table.name}_rows"] = rows
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument(
        "--url", help="an empty database of PostgreSQL, instead of SQLite in a directory"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        journal: SqlJournal = (
            SqliteJournal(Path(place)) if given.url is None else PostgresJournal(given.url)
        )
        fill(journal, given.segments, given.days)
        found = figures(journal)
        if given.url is None:
            found["MB"] = (Path(place) / "journal.sqlite3").stat().st_size / 1e6
        journal.close()
    print(
        json.dumps(found)
        if given.json
        else "\n".join(f"{k:<22}{v:>14,.3f}" for k, v in found.items())
    )


if __name__ == "__main__":
    main()
