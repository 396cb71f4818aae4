"""Counts use over time: how many GPUs each key has at a moment, and what that comes to in each bucket.

The amounts of a key are counted when its GPUs change, and those of all keys when a minute is over; so a turn adds few
rows, however long gangs run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gantree.accounting.buckets import Bucket, bucket_of, minute_of, pieces
from gantree.accounting.usage import (
    UsageAmounts,
    UsageChange,
    UsageKey,
    WaitAmounts,
    WaitKey,
)
from gantree.accounting.waits import bin_of


@dataclass(slots=True)
class Level:
    """GPUs of a key now, counted up to since."""

    since: float
    capacity: float = 0.0
    allocated: float = 0.0
    used: float = 0.0

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to count; amounts may be off by what floats lose."""
        return max(abs(self.capacity), abs(self.allocated), abs(self.used)) < 1e-9


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

    def add(
        self,
        at: float,
        key: UsageKey,
        *,
        capacity: float = 0.0,
        allocated: float = 0.0,
        used: float = 0.0,
    ) -> None:
        """From now on a key has so many GPUs more, or fewer."""
        level = self._levels.setdefault(key, Level(at))
        self._count_level(key, level, at)
        level.capacity += capacity
        level.allocated += allocated
        level.used += used
        self._touched[key] = at
        self.amounts(at, key)  # a row says up to when it is counted, even if that is nothing yet

    def set_capacity(self, at: float, key: UsageKey, gpus: float) -> None:
        """From now on there are so many GPUs of a model."""
        before = self._levels[key].capacity if key in self._levels else 0.0
        self.add(at, key, capacity=gpus - before)

    @property
    def models(self) -> list[UsageKey]:
        """The keys that have capacity."""
        return [key for key, level in self._levels.items() if level.capacity]

    def amounts(self, at: float, key: UsageKey) -> UsageAmounts:
        """The row of a moment, to count in it what happens then."""
        return self._row(bucket_of(at, at if self._now is None else self._now), key)

    def count_wait(self, at: float, queue: str, user: str, waited_s: float) -> None:
        """A job was placed after so long."""
        bucket = bucket_of(at, at if self._now is None else self._now)
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
            if level.is_nothing:
                del self._levels[key]
        self._counted_to = end

    def _count_level(self, key: UsageKey, level: Level, until: float) -> None:
        if until <= level.since:
            return
        if not level.is_nothing:
            now = until if self._now is None else self._now
            for bucket, seconds in pieces(level.since, until, now):
                row = self._row(bucket, key)
                row.capacity_gpu_s += level.capacity * seconds
                row.allocated_gpu_s += level.allocated * seconds
                row.used_gpu_s += level.used * seconds
        level.since = until

    def _row(self, bucket: Bucket, key: UsageKey) -> UsageAmounts:
        return self._usage.setdefault((bucket, key), UsageAmounts())


def uncounted(
    levels: Mapping[UsageKey, Level], now: float
) -> Iterable[tuple[Bucket, UsageKey, UsageAmounts]]:
    """What levels come to since they were counted, up to a moment; for who looks and changes nothing."""
    copies = {key: replace(level) for key, level in levels.items()}
    meter = UsageMeter(copies, 0.0)
    change = meter.taken(now, all_of_it=True)
    rows = change.usage if change is not None else {}
    return [(bucket, key, amounts) for (bucket, key), amounts in rows.items()]
