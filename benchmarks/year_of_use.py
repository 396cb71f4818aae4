"""Write a year of use into a journal, as a daemon of a large site would have left it: roll-ups of many keys.

50 queues of 20 users each; every user works for one of 3 projects, on one of 4 models of GPU, some of them on a second.
Of the last 13 hours there are minutes, of 31 days hours, before these days. `page_reads.py` and tests of speed read it.

    PYTHONPATH=src python benchmarks/year_of_use.py DIRECTORY [--keys 600]
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from gantree.accounting.buckets import DAY_S, HOUR_S, HOURS_KEPT_S, MINUTE_S, MINUTES_KEPT_S, Bucket
from gantree.accounting.change import HistoryChange
from gantree.accounting.usage import UsageAmounts, UsageChange, UsageKey, WaitAmounts, WaitKey
from gantree.journal.sqlite import SqliteJournal

QUEUES, USERS, PROJECTS = 50, 20, 3
MODELS = ("H100-80GB", "H200-141GB", "A100-80GB", "L40S-48GB")
GPUS = 10_000
DAYS = 365
KEYS_AT_ONCE = 600
"""Keys with use in a minute; in an hour there are a tenth more, in a day twice as many."""
SLICE = 40_000
"""Rows of one transaction."""
Rows = dict[tuple[Bucket, UsageKey], UsageAmounts]


def all_keys(chance: Random) -> list[UsageKey]:
    """Two for every user: the queue, the project and a model, or one more model."""
    found = []
    for queue in range(QUEUES):
        for user in range(USERS):
            project = f"project-{chance.randrange(PROJECTS)}"
            models = chance.sample(MODELS, 2)
            who = f"team-{queue}", f"user{queue}-{user}"
            found += [UsageKey(*who, model, project) for model in models]
    return found


def buckets(now: float) -> Iterator[tuple[Bucket, float]]:
    """Those of a year, as old ones have become coarser, each with how many keys are used in it for one in a minute."""
    minutes = int(now - MINUTES_KEPT_S) // HOUR_S * HOUR_S
    hours = int(now - HOURS_KEPT_S) // DAY_S * DAY_S
    first = int(now - DAYS * DAY_S) // DAY_S * DAY_S
    for width, begin, end, more in (
        (DAY_S, first, hours, 2.0),
        (HOUR_S, hours, minutes, 1.1),
        (MINUTE_S, minutes, int(now) // MINUTE_S * MINUTE_S, 1.0),
    ):
        for start in range(begin, end, width):
            yield Bucket(width, start), more


def amounts_of(width: int, gpus: float, chance: Random) -> UsageAmounts:
    """So many GPUs for a whole bucket, by purpose."""
    held = gpus * width
    useful = held * chance.uniform(0.4, 0.9)
    return UsageAmounts(
        allocated_gpu_s=held, used_gpu_s=held * 0.97, starting_gpu_s=held * 0.02, restart_gpu_s=held * 0.01,
        useful_gpu_s=useful, idle_gpu_s=(held - useful) * 0.5, lost_gpu_s=held * 0.005, waited_s=width * 0.3,
        powered_gpu_s=held * 0.9, energy_kWh=held * 0.9 * 520 / 3.6e6, nvlink_GB=held * 3.1, nic_GB=held * 0.7,
        cpu_s=held * 12, memory_GiB_s=held * 128, submitted=1, started=1, succeeded=1,
    )  # fmt: skip


def capacity_of(bucket: Bucket) -> Rows:
    """The GPUs that there are."""
    each = GPUS / len(MODELS) * bucket.width
    return {
        (bucket, UsageKey("", "", model)): UsageAmounts(capacity_gpu_s=each, down_gpu_s=each / 100)
        for model in MODELS
    }


def year(now: float, keys_at_once: int) -> Iterator[Rows]:
    """Rows of a year, in slices."""
    chance = Random(30)
    keys, rows = all_keys(chance), Rows()
    gpus = 0.9 * GPUS / keys_at_once
    shapes = {
        (width, more): [amounts_of(width, gpus / more, chance) for _ in range(50)]
        for width, more in ((DAY_S, 2.0), (HOUR_S, 1.1), (MINUTE_S, 1.0))
    }
    for bucket, more in buckets(now):
        rows |= capacity_of(bucket)
        some = shapes[bucket.width, more]
        for place, key in enumerate(chance.sample(keys, min(len(keys), int(keys_at_once * more)))):
            rows[bucket, key] = some[place % len(some)]
        if len(rows) >= SLICE:
            yield rows
            rows = Rows()
    yield rows


def waits(now: float) -> dict[tuple[Bucket, WaitKey], WaitAmounts]:
    """Waits of ten users of every queue in each hour of a month, and on each day of a year."""
    found = {}
    for bucket, _ in buckets(now):
        user = bucket.start // bucket.width % USERS
        for queue in range(QUEUES):
            key = WaitKey(f"team-{queue}", f"user{queue}-{user}", 20)
            found[bucket, key] = WaitAmounts(3, 90.0)
    return found


def write(directory: Path, now: float, keys_at_once: int = KEYS_AT_ONCE) -> int:
    """Make the journal of a directory, or add to it; how many rows of use it has then."""
    journal, count = SqliteJournal(directory), 0
    epoch = journal.lead("year-of-use", 600.0)
    assert epoch is not None
    end = now // MINUTE_S * MINUTE_S
    for rows in year(now, keys_at_once):
        count += len(rows)
        change = UsageChange(rows, {}, {}, end, False)
        journal.rebuild_history(HistoryChange(usage=change), None, epoch)
    last = UsageChange({}, waits(now), {}, end, True)
    journal.rebuild_history(HistoryChange(usage=last), None, epoch)
    journal.resign(epoch)
    journal.close()
    return count


def main() -> None:
    """Write, and say how much."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("directory", type=Path)
    options.add_argument("--keys", type=int, default=KEYS_AT_ONCE)
    given = options.parse_args()
    since = time.monotonic()
    count = write(given.directory, time.time(), given.keys)
    print(f"{count} rows in {time.monotonic() - since:.0f} s")


if __name__ == "__main__":
    main()
