"""What an autoscaler remembers of one service, and what follows from it: stabilisation, speed, and one load.

**Stabilisation and speed** are those of Kubernetes' HorizontalPodAutoscaler: the most cautious recommendation of a
window counts, and within a period the number moves by so many replicas at most from what it was at its beginning.

**One load.** After each step the rate of requests at that moment is kept. The load is still the same until the mean
rate of a whole window has left it by more than a tenth (or the tolerance); then it is another load for good.
"""

from dataclasses import dataclass, replace

from gantree.model.services import Autoscaling, ScaleSteps

LEAST_CHANGE = 0.1
"""A rate that differs by this part or less is the same load, however small the tolerance is: rates are noisy."""
LEAST_SAMPLES = 4
"""A mean rate is of a window of so many samples at least."""


@dataclass(frozen=True, slots=True)
class Recommended:
    """What was recommended at a moment, before stabilisation."""

    at_s: float
    replicas: int


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the number. asked: how many the load asked for; at_most may have allowed fewer."""

    at_s: float
    before: int
    after: int
    asked: int

    @property
    def is_up(self) -> bool:
        """Whether there are more replicas than before."""
        return self.after > self.before


@dataclass(frozen=True, slots=True)
class History:
    """Recommendations, steps and rates of one service. wanted: the number that the last step or user has left.

    rate_at_step: requests a second at the last step; None: unknown, or the load is another one by now (is_same_load).
    rates: (second, requests a second) since then. busy_at_s: when a request was last there.
    """

    wanted: int
    busy_at_s: float
    recommended: tuple[Recommended, ...] = ()
    steps: tuple[Step, ...] = ()
    is_same_load: bool = False
    rate_at_step: float | None = None
    rates: tuple[tuple[float, float], ...] = ()

    @property
    def last(self) -> Step | None:
        """The last step if the load is still the one that it was made for."""
        return self.steps[-1] if self.steps and self.is_same_load else None

    def has_risen(self, rate: float | None, tolerance: float) -> bool:
        """Whether more requests arrive than at the last step."""
        before = self.rate_at_step
        if rate is None or before is None:
            return False
        return rate > (1 + max(tolerance, LEAST_CHANGE)) * before


def begun(wanted: int, now: float) -> History:
    """Return a history that begins with a number of replicas, as after a start or a change by hand."""
    return History(wanted, now, (Recommended(now, wanted),))


def observed(
    history: History, scaling: Autoscaling, rate: float | None, is_busy: bool, now: float
) -> History:
    """Return the history with the rate of a moment, and whether a request was there or that is not known."""
    if is_busy:
        history = replace(history, busy_at_s=now)
    if rate is None or not history.is_same_load:
        return history
    if history.rate_at_step is None:
        return replace(history, rate_at_step=rate)
    window_s = max(scaling.down.stabilise_s, LEAST_SAMPLES * scaling.every_s)
    begins_s = history.steps[-1].at_s
    rates = (*(each for each in history.rates if each[0] > now - window_s), (now, rate))
    mean = sum(rate for _, rate in rates) / len(rates)
    is_whole = now - begins_s >= window_s
    far = max(scaling.tolerance, LEAST_CHANGE) * history.rate_at_step
    if is_whole and abs(mean - history.rate_at_step) > far:
        return replace(history, is_same_load=False, rate_at_step=None, rates=())
    return replace(history, rates=rates)


def stabilised(history: History, scaling: Autoscaling, replicas: int, now: float) -> int:
    """Return the most cautious of the recommendations of the windows: the fewest more, or the fewest less."""
    up, down = replicas, replicas
    for earlier in history.recommended:
        if earlier.at_s > now - scaling.up.stabilise_s:
            up = min(up, earlier.replicas)
        if earlier.at_s > now - scaling.down.stabilise_s:
            down = max(down, earlier.replicas)
    return min(max(history.wanted, up), down)


def limited(history: History, scaling: Autoscaling, replicas: int, now: float) -> int:
    """Return a number that lies no further off than at_most allows."""
    wanted = history.wanted
    if replicas > wanted:
        furthest = _at_begin(history, scaling.up, now) + scaling.up.at_most
        return min(replicas, max(wanted, furthest)) if scaling.up.at_most else replicas
    furthest = _at_begin(history, scaling.down, now) - scaling.down.at_most
    return max(replicas, min(wanted, furthest)) if scaling.down.at_most else replicas


def _at_begin(history: History, steps: ScaleSteps, now: float) -> int:
    """The number at the beginning of the period."""
    of_period = (step for step in history.steps if step.at_s > now - steps.per_s)
    return history.wanted - sum(step.after - step.before for step in of_period)


def recorded(
    history: History, scaling: Autoscaling, recommended: int, replicas: int, rate: float | None, now: float
) -> History:  # fmt: skip
    """Return the history with a recommendation and the number that came of it."""
    window_s = max(scaling.up.stabilise_s, scaling.down.stabilise_s)
    kept = tuple(each for each in history.recommended if each.at_s > now - window_s)
    history = replace(history, recommended=(*kept, Recommended(now, recommended)))
    if replicas == history.wanted:
        return history
    period_s = max(scaling.up.per_s, scaling.down.per_s)
    kept_steps = tuple(step for step in history.steps if step.at_s > now - period_s)
    step = Step(now, history.wanted, replicas, recommended)
    return replace(
        history, wanted=replicas, steps=(*kept_steps, step), is_same_load=True, rate_at_step=rate, rates=(),
    )  # fmt: skip
