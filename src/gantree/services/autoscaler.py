"""How many replicas a service needs: from what was measured of its load, as Kubernetes' HorizontalPodAutoscaler.

    need = ceil(current x value / target)         the largest over all targets; within the tolerance of 1: as it is

`recommend` adds the spare replicas, keeps min and max, and then stabilises and limits the change (`scaling_history`).
A value that is missing or old never lowers the number. All else that differs from the HPA is here so that the number
comes to rest, whatever load a service has:

* **Shared values** (rate, concurrency, tokens_per_s, gpu_use, queries per replica) are summed over the replicas, so
  need is ceil(sum / target), and replicas that are on their way count from the moment they are wanted. Replicas on
  slower GPUs, or in a slower shape, bear their speed's part of the target, but for gpu_use; need is the fewest of the
  present ones, in the order in which they stay, that bear the sum, and further ones of speed 1.
* **Gradual values** (times to answer, queue, queries of the whole) say that there are too few, but not how many would
  do: a time of a tenth of the target may be one of an idle or of a nearly full replica. They raise the number to twice
  at most, and not while replicas are on their way; and they lower it by one, if the value of one fewer, were it in
  proportion, is still below the target.
* **The same load never goes down after it went up.** Where a value depends on the number (gradual ones, and
  concurrency, since requests stay longer where replicas are few), what is measured with many does not tell whether
  fewer would do. So after a step up the number does not fall until the rate of requests has left that of the step by
  more than a tenth; and where it has fallen too far at one rate, it goes back to what it was, at most. At a constant
  rate there are steps down, then steps up, and no more. Without a known rate such values lower nothing.
* **A second step up for the same load** does not come from such values while replicas are on their way: what waits
  meanwhile is not more load.

A service whose min and spare are 0 has no replica after to_zero_s without requests, and one at the first that waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from gantree.model.services import Autoscaling, ReplicaCount, ScaleTarget
from gantree.services.load import Load, Replicas, follows_replicas, is_gradual, is_shared
from gantree.services.scaling_history import (
    History,
    begun,
    limited,
    observed,
    recorded,
    stabilised,
)

MOST_GROWTH = 2
"""Gradual values raise the number to so many times itself at most."""
EXACTLY = 1e-9
"""Rounding errors of a ratio, which must not make one replica more."""


@dataclass(frozen=True, slots=True)
class Need:
    """How many replicas something asks for, and what it is."""

    replicas: int
    reason: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """How many replicas should be wanted; why; and what keeps it from the number that the load asks for, or ""."""

    replicas: int
    reason: str
    kept_by: str = ""


def recommend(
    scaling: Autoscaling,
    bounds: ReplicaCount,
    replicas: Replicas,
    load: Load,
    history: History | None,
    now: float,
    predicted: float = 0.0,
) -> tuple[Recommendation, History]:
    """Return how many replicas should be wanted, and the history with it.

    history: None at the beginning; it also begins again where the number was changed by others. predicted: how many
    replicas the load needs soon, as earlier weeks tell.
    """
    load = load.without_stale(scaling.every_s, now)
    if history is None or history.wanted != replicas.wanted:
        history = begun(replicas.wanted, now)
    rate = None if load.rate is None else load.rate.value
    history = observed(history, scaling, rate, _is_busy(load), now)
    at_once = _from_or_to_zero(scaling, bounds, load, history, predicted, now)
    if at_once is not None:
        chosen = Recommendation(bounds.within(at_once.replicas + bounds.spare), at_once.reason)
        return chosen, recorded(history, scaling, chosen.replicas, chosen.replicas, rate, now)
    need = _need(scaling, bounds, replicas, load, history, predicted)
    needed = need.replicas + bounds.spare
    asked = bounds.within(needed)
    chosen = _kept(scaling, bounds, history, Need(asked, need.reason), now)
    if chosen.replicas != needed and not chosen.kept_by:
        chosen = replace(chosen, kept_by="min" if asked > needed else "max")
    return chosen, recorded(history, scaling, asked, chosen.replicas, rate, now)


def _is_busy(load: Load) -> bool:
    """Whether requests are there or arrive, or nobody knows."""
    if load.present is None or load.present.value > 0:
        return True
    return load.rate is not None and load.rate.value > 0


def _from_or_to_zero(
    scaling: Autoscaling,
    bounds: ReplicaCount,
    load: Load,
    history: History,
    predicted: float,
    now: float,
) -> Need | None:
    """What does not wait for a window: the first request of a service without replicas, and the end of the last."""
    if history.wanted == 0 and load.present is not None and load.present.value > 0:
        return Need(1, "a request waits and there is no replica")
    idle_s = now - history.busy_at_s
    idle = bounds.min == 0 and idle_s >= scaling.to_zero_s and not predicted
    if idle and history.wanted > bounds.spare:
        return Need(0, f"no request for {idle_s:.0f} s")
    return None


# ----- what the load needs


def _need(
    scaling: Autoscaling,
    bounds: ReplicaCount,
    replicas: Replicas,
    load: Load,
    history: History,
    predicted: float,
) -> Need:
    """The largest of what the targets and the prediction ask for; not below the current number if a value is missing.

    A service that is not idle for long enough needs one replica at least.
    """
    current = max(0, replicas.wanted - bounds.spare)
    values = list(zip(scaling.targets, load.values, strict=True))
    needs = [
        _of_target(scaling, target, measured.value, current, replicas, load, history)
        for target, measured in values
        if measured is not None
    ]
    missing = next((target for target, measured in values if measured is None), None)
    if missing is not None:
        needs.append(Need(current, f"{name_of(missing)} is not known"))
    if predicted > 0:
        needs.append(Need(rounded_up(predicted), "the load of this hour in earlier weeks"))
    why_one = needs[0].reason if bounds.min else "requests came not long ago"
    needs.append(Need(min(1, current), why_one))
    return max(needs, key=lambda need: need.replicas)


def _of_target(
    scaling: Autoscaling,
    target: ScaleTarget,
    value: float,
    current: int,
    replicas: Replicas,
    load: Load,
    history: History,
) -> Need:
    if is_gradual(target):
        found = _of_gradual(target, value, current, scaling.tolerance, replicas.all_ready)
    else:
        speeds = () if target.metric == "gpu_use" else replicas.speeds
        found = of_shared(value, target.target, current, scaling.tolerance, speeds)
        if any(each != 1.0 for each in speeds) and not replicas.all_ready:
            found = max(found, current)
    reason = f"{name_of(target)} {_told(target, value, current)}, target {target.target:g}"
    if follows_replicas(target):
        rate = None if load.rate is None else load.rate.value
        found = _for_one_load(found, current, rate, replicas, history, scaling.tolerance)
    return Need(found, reason)


def of_shared(
    total: float, target: float, current: int, tolerance: float, speeds: Sequence[float] = ()
) -> int:
    """Return how many replicas share a total at a target each; the current number if it is near enough.

    speeds: as `Replicas` has them. A replica bears the target times its speed.
    """
    known = speeds[:current]
    whole = sum(known) + current - len(known)
    if current and abs(1 - total / (target * whole)) <= tolerance:
        return current
    needed = total / target
    for count, speed in enumerate(known):
        if needed <= EXACTLY:
            return count
        needed -= speed
    return len(known) + max(0, rounded_up(needed))


def _of_gradual(
    target: ScaleTarget, value: float, current: int, tolerance: float, all_ready: bool
) -> int:
    """How many replicas a gradual value asks for; current is at least 1 then, since none has no value."""
    ratio = value / target.target / (max(1, current) if is_shared(target) else 1)
    if ratio > 1 + tolerance:
        return rounded_up(current * min(ratio, MOST_GROWTH)) if all_ready else current
    if current > 1 and ratio * current / (current - 1) <= 1 - tolerance:
        return current - 1
    return current


def _for_one_load(
    found: int,
    current: int,
    rate: float | None,
    replicas: Replicas,
    history: History,
    tolerance: float,
) -> int:
    """Bound a need by what one load may do: no second step up while replicas are on their way, no way past where it
    came down from, and nothing down without a known rate.
    """
    if found < current:
        return current if rate is None else found
    last = history.last
    if last is None or history.has_risen(rate, tolerance):
        return found
    spare = replicas.wanted - current
    if last.is_up and not replicas.all_ready:
        return max(current, min(found, last.asked - spare))
    if not last.is_up:
        return max(current, min(found, last.before - spare))
    return found


def shared_need(targets: Sequence[ScaleTarget], load: Load) -> float | None:
    """Return the replicas that the shared values ask for, not rounded; None where none is known. For the prediction."""
    needs = [
        measured.value / target.target
        for target, measured in zip(targets, load.values, strict=True)
        if measured is not None and not is_gradual(target)
    ]
    return max(needs, default=None)


def rounded_up(replicas: float) -> int:
    """Return the whole replicas that are enough."""
    return ceil(replicas - EXACTLY)


# ----- what is made of it


def _kept(
    scaling: Autoscaling, bounds: ReplicaCount, history: History, asked: Need, now: float
) -> Recommendation:
    """Stabilise and limit what was asked for, and hold the number at a load that it went up for."""
    wanted = history.wanted
    number = stabilised(history, scaling, asked.replicas, now)
    kept_by = "" if number == asked.replicas else "the most cautious number of the window"
    last = history.last
    if number < wanted and last is not None and last.is_up and _any_follows(scaling.targets):
        number, kept_by = wanted, "the load is the one that needed this number"
    within = limited(history, scaling, number, now)
    if within != number:
        number, kept_by = within, "at_most"
    return Recommendation(bounds.within(number), asked.reason, kept_by)


def _any_follows(targets: Sequence[ScaleTarget]) -> bool:
    return any(map(follows_replicas, targets))


# ----- words


def name_of(target: ScaleTarget) -> str:
    """Return a target's metric or query, as its user wrote it."""
    return target.query or target.metric


def _told(target: ScaleTarget, value: float, current: int) -> str:
    if is_shared(target):
        return (
            f"{value:.4g} over {current} replicas" if current != 1 else f"{value:.4g} on 1 replica"
        )
    return f"{value:.4g}"
