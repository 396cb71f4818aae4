"""Random lives of which somebody tells what GPUs did: rightly, too much, late, twice, garbage, or of nobody."""

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any

from gantree.model.events import GpuUseObserved
from gantree.model.gpu_activity import Drawn, MeasuredUse
from support.random_lives import WAYS, Lives

AMOUNTS = (0.0, 0.5, 1.0, 2.0, 30.0, 900.0, nan, inf, -3.0)


class MeasuredLives(Lives):
    """Lives with reports of exporters, some of which are wrong, while they are measured."""

    is_measured = True

    def ways(self) -> Sequence[Callable[[Any], None]]:
        return [*WAYS.values(), *[MeasuredLives.measure] * (12 if self.is_measured else 0)]

    def measure(self) -> None:
        """A report on some jobs, of a span of time that may be over for long, or that lies ahead."""
        lots = self.lots
        states = list(self.scheduler.ledger.jobs.values())
        gangs = tuple(
            MeasuredUse(
                state.job,
                state.attempt - lots.choice([0, 0, 0, 0, 1]),
                lots.choice([0.0, 1.0, 15.0, 500.0, 2000.0, nan, -3.0]),
                lots.choice([0.0, 0.0, 2.0, 40.0, inf]),
                drawn=Drawn(*(lots.choice(AMOUNTS) for _ in range(4))),
            )
            for state in lots.sample(states, min(len(states), 4))
        )
        nobody = MeasuredUse("nobody", 1, 5.0, 5.0)
        since = max(0.0, self.now - lots.choice([15.0, 15.0, 300.0, 5000.0]))
        until = self.now + lots.choice([0.0, 0.0, 0.0, -10.0, 1000.0])
        for _ in range(lots.choice([1, 1, 2])):
            self.tell(GpuUseObserved, since=since, until=until, gangs=(*gangs, nobody))
