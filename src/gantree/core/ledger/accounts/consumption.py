"""What queues have consumed: resource-seconds of placed gangs, by queue and by period of the calendar.

Budgets are compared with it (`core.ledger.accounts.budgets`). It follows from facts alone and not from the policy, so
another policy finds what has been used. A queue's consumption is that of its jobs and of all queues below it. A gang
counts from `GangPlaced` to `AttemptEnded`, but not while it is suspended in turns.

A queue has what it holds (in ticks, so the order of jobs does not matter) and its integral up to a moment; so a
question costs no walk over jobs. Of each period it keeps the integral at the beginning.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gantree.policy.amounts import MODEL, TICKS, ticks
from gantree.policy.rules import Amounts, Period
from gantree.policy.utc_calendar import DAY_S, PERIODS, period_of

COUNTED = ("gpus", "cpus", "memory_GiB")
"""The resources that are counted, beside GPUs by model."""
Integral = Mapping[str, float]
"""Resource -> tick-seconds."""


@dataclass(frozen=True, slots=True)
class ConsumptionSnapshot:
    """The consumption of one queue until a moment, in tick-seconds; at_start is that at the start of periods."""

    queue: str
    until: float
    tick_seconds: Integral
    at_start: Mapping[str, Integral]


@dataclass(slots=True)
class _QueueConsumption:
    until: float
    tick_seconds: dict[str, float] = field(default_factory=dict)
    at_start: dict[str, Integral] = field(default_factory=dict)
    ticks_held: dict[str, int] = field(default_factory=dict)

    def total_at(self, at: float) -> dict[str, float]:
        """The integral at a moment that is not before `until`, at the present rate."""
        more = {name: held * (at - self.until) for name, held in self.ticks_held.items()}
        names = dict.fromkeys((*self.tick_seconds, *more))
        return {name: self.tick_seconds.get(name, 0.0) + more.get(name, 0.0) for name in names}

    def start_of(self, period: Period, at: float) -> Integral:
        """The integral at the beginning of the period of a moment."""
        started_at, _ = period_of(period, at)
        if started_at > self.until:
            return self.total_at(started_at)
        return self.at_start.get(period, {})

    def go_on_to(self, at: float) -> None:
        """Integrate until a moment."""
        if at == self.until:
            return
        if at // DAY_S != self.until // DAY_S:  # every period begins with a day
            for period in PERIODS:
                if period_of(period, at)[0] > self.until:
                    self.at_start[period] = self.start_of(period, at)
        span, so_far = at - self.until, self.tick_seconds
        for name, held in self.ticks_held.items():
            so_far[name] = so_far.get(name, 0.0) + held * span
        self.until = at


class Consumption:
    """The consumption of all queues. Times never go back."""

    def __init__(self) -> None:
        self._of_queue: dict[str, _QueueConsumption] = {}
        self._gangs: dict[str, tuple[str, Mapping[str, int]]] = {}
        self._last: tuple[Amounts, Mapping[str, int]] = ({}, {})

    def take(self, queue: str, job: str, amounts: Amounts, at: float) -> None:
        """Count what a gang of a queue holds from a moment on. It must not be counted yet."""
        assert job not in self._gangs, f"{job} is counted already"
        held = self._in_ticks(amounts)
        self._gangs[job] = queue, held
        self._change(queue, held, 1, at)

    def give_back(self, job: str, at: float) -> None:
        """Count a gang no more; one that is suspended is not counted anyway."""
        queue, held = self._gangs.pop(job, ("", {}))
        if held:
            self._change(queue, held, -1, at)

    def used(self, queue: str, period: Period, at: float) -> dict[str, float]:
        """Return what a queue has consumed in the period of a moment until then, in seconds of each resource."""
        has = self._of_queue.get(queue)
        if has is None:
            return {}
        start = has.start_of(period, at)
        return {
            name: (total - start.get(name, 0.0)) / TICKS for name, total in has.total_at(at).items()
        }

    def counted_to(self, queue: str) -> float:
        """Return when the gangs of a queue last changed, in seconds; 0 for never."""
        has = self._of_queue.get(queue)
        return 0.0 if has is None else has.until

    def held(self, queue: str) -> dict[str, float]:
        """Return what the counted gangs of a queue hold now."""
        has = self._of_queue.get(queue)
        return {} if has is None else {name: held / TICKS for name, held in has.ticks_held.items()}

    def kept(self) -> tuple[ConsumptionSnapshot, ...]:
        """Return the consumption of all queues, to go on from."""
        return tuple(
            ConsumptionSnapshot(queue, has.until, dict(has.tick_seconds), dict(has.at_start))
            for queue, has in self._of_queue.items()
        )

    def go_on_from(self, kept: Iterable[ConsumptionSnapshot]) -> None:
        """Take over consumption; the gangs that are placed must be counted already."""
        counted, self._of_queue = self._of_queue, {}
        for one in kept:
            has = counted.pop(one.queue, None) or _QueueConsumption(one.until)
            has.until, has.tick_seconds, has.at_start = (
                one.until,
                dict(one.tick_seconds),
                dict(one.at_start),
            )
            self._of_queue[one.queue] = has
        self._of_queue |= counted

    def _in_ticks(self, amounts: Amounts) -> Mapping[str, int]:
        """Amounts in ticks. Those of the gang before are often those of this one."""
        if self._last[0] is not amounts:
            counted = (name for name in amounts if name in COUNTED or name.startswith(MODEL))
            self._last = amounts, {name: ticks(amounts[name]) for name in counted}
        return self._last[1]

    def _change(self, queue: str, held: Mapping[str, int], sign: int, at: float) -> None:
        for each in queues_above(queue):
            has = self._of_queue.get(each)
            if has is None:
                has = self._of_queue[each] = _QueueConsumption(at)
            has.go_on_to(at)
            now_held = has.ticks_held
            for name, amount in held.items():
                total = now_held.get(name, 0) + sign * amount
                if total:
                    now_held[name] = total
                else:
                    now_held.pop(name, None)


@lru_cache(4096)
def queues_above(queue: str) -> tuple[str, ...]:
    """Return a queue and those that it is in, from the top."""
    names = queue.split("/")
    return tuple("/".join(names[: depth + 1]) for depth in range(len(names)))
