"""Counts use over time: how many GPUs each key has at a moment, for what, and what that comes to in each bucket.

The amounts of a key are counted when its GPUs change, and those of all keys when a minute is over; so a turn adds few
rows, however long gangs run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gantree.accounting.buckets import Bucket, bucket_of, minute_of, pieces
from gantree.accounting.usage import (
    UsageAmounts,
    UsageChange,
    UsageKey,
    WaitAmounts,
    WaitKey,
)
from gantree.accounting.waits import bin_of

CAPACITY, ALLOCATED, USED = "capacity_gpu_s", "allocated_gpu_s", "used_gpu_s"
STARTING, RESTART, CHECKPOINT = "starting_gpu_s", "restart_gpu_s", "checkpoint_gpu_s"
DOWN, HELD, RESERVED, STRANDED = "down_gpu_s", "held_gpu_s", "reserved_gpu_s", "stranded_gpu_s"
WAITING = "waited_s"
SLOWER, CPU, MEMORY = "slower_gpu_s", "cpu_s", "memory_GiB_s"
CAPACITY_CPU, CAPACITY_MEMORY = "capacity_cpu_s", "capacity_memory_GiB_s"
"""What a key has at a moment, by the column of `UsageAmounts` in which its seconds are counted."""


@dataclass(slots=True)
class Level:
    """What a key has now, GPUs or jobs that wait, by column; counted up to since."""

    since: float
    now: dict[str, float] = field(default_factory=dict)

    def add(self, column: str, amount: float) -> None:
        """So much more of one column; what floats lose on the way back to nothing is nothing."""
        after = self.now.get(column, 0.0) + amount
        if abs(after) < 1e-9:
            self.now.pop(column, None)
        else:
            self.now[column] = after


Levels = dict[UsageKey, Level]


class UsageMeter:
    """The levels of all keys, and what was counted since the last change was taken. Moments never decrease."""

    def __init__(self, levels: Levels, counted_to: float, now: float | None = None) -> None:
        """now: by which widths are chosen where facts are older than the present; None: the moment of each fact."""
        self._levels, self._counted_to, self._now = levels, counted_to, now
        self._begin()

    def _begin(self) -> None:
        self._usage = dict[tuple[Bucket, UsageKey], UsageAmounts]()
        self._waits = dict[tuple[Bucket, WaitKey], WaitAmounts]()
        self._touched = dict[UsageKey, float]()

    def add(self, at: float, key: UsageKey, amounts: Mapping[str, float]) -> None:
        """From now on a key has so much more, or less, of each of these columns."""
        level = self._levels.setdefault(key, Level(at))
        self._count_level(key, level, at)
        for column, amount in amounts.items():
            level.add(column, amount)
        self._touched[key] = at
        self.amounts(at, key)  # a row says up to when it is counted, even if that is nothing yet

    def set(self, at: float, key: UsageKey, amounts: Mapping[str, float]) -> None:
        """From now on a key has so much of each of these columns."""
        before = self._levels[key].now if key in self._levels else {}
        change = {name: amount - before.get(name, 0.0) for name, amount in amounts.items()}
        if any(abs(amount) > 1e-9 for amount in change.values()):
            self.add(at, key, change)

    @property
    def models(self) -> list[UsageKey]:
        """The keys that have capacity, of GPUs or cores."""
        there = (CAPACITY, CAPACITY_CPU)
        return [key for key, level in self._levels.items() if any(n in level.now for n in there)]

    def now_at(self, at: float) -> float:
        """The moment by which widths are chosen of what is counted at a moment."""
        return at if self._now is None else self._now

    def amounts(self, at: float, key: UsageKey) -> UsageAmounts:
        """The row of a moment, to count in it what happens then."""
        return self.row(bucket_of(at, self.now_at(at)), key)

    def count_wait(self, at: float, queue: str, user: str, waited_s: float) -> None:
        """A job was placed after so long."""
        bucket = bucket_of(at, self.now_at(at))
        key = bucket, WaitKey(queue, user, bin_of(waited_s))
        amounts = self._waits.setdefault(key, WaitAmounts())
        amounts.jobs += 1
        amounts.waited_s += waited_s

    def taken(self, at: float, *, all_of_it: bool = False) -> UsageChange | None:
        """What to add, at the end of a turn; None for nothing. all_of_it: all keys are counted up to that moment."""
        end = at if all_of_it else minute_of(at)
        is_over = end > self._counted_to
        if is_over:
            self._count_all(end)
        if not (is_over or self._usage or self._waits):
            return None
        change = UsageChange(self._usage, self._waits, self._touched, self._counted_to, is_over)
        self._begin()
        return change

    def _count_all(self, end: float) -> None:
        for key, level in list(self._levels.items()):
            self._count_level(key, level, end)
            if not level.now:
                del self._levels[key]
        self._counted_to = end

    def _count_level(self, key: UsageKey, level: Level, until: float) -> None:
        if until <= level.since:
            return
        if level.now:
            for bucket, seconds in pieces(level.since, until, self.now_at(until)):
                row = self.row(bucket, key)
                for column, amount in level.now.items():
                    setattr(row, column, getattr(row, column) + amount * seconds)
        level.since = until

    def row(self, bucket: Bucket, key: UsageKey) -> UsageAmounts:
        """What is counted of a key in a bucket, to be added to."""
        return self._usage.setdefault((bucket, key), UsageAmounts())


def uncounted(
    levels: Mapping[UsageKey, Level], now: float
) -> Iterable[tuple[Bucket, UsageKey, UsageAmounts]]:
    """What levels come to since they were counted, up to a moment; for who looks and changes nothing."""
    copies = {key: Level(level.since, dict(level.now)) for key, level in levels.items()}
    meter = UsageMeter(copies, 0.0)
    change = meter.taken(now, all_of_it=True)
    rows = change.usage if change is not None else {}
    return [(bucket, key, amounts) for (bucket, key), amounts in rows.items()]
