"""The order of a policy: what waiting jobs are ordered by.

The order is a list of keys (`Policy.order`); the first that differs decides, and arrival settles what is left. "share"
is no number of a job but of its queue at a moment, so it is not in a key: `policy.walk` puts it in its place.

    priority           its number, larger first; a day of waiting counts `age_per_day` more
    share              the queue (and user) that had least of what it is owed (`policy.share`)
    attained           GPU-seconds that it was served, fewest first; in levels, if the policy says so (Tiresias)
    remaining          seconds of its run that are left, by its own guess, else its limit; unknown goes last (SRTF)
    remaining_service  the same times its GPUs (SRSF)
    stretch            the moment until which it may be kept waiting, soonest first: its submission, and `stretch` times
                       as long as the whole cluster would need for the work that is left of it. So short jobs go first,
                       but nobody is passed for ever: with a large stretch it is SRSF, with none arrival. Where nobody
                       knows the run time, a day (an assumption, the same for all, so that these go by arrival)
    smallest           GPUs, fewest first
    arrival            first come, first served; a job that was stopped keeps its place
"""

from bisect import bisect_right
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from gantree.model.values import quick
from gantree.policy.rules import Policy

DAY_S = 86_400.0
SHARE = "share"
PATIENCE_S = DAY_S
"""How long a job of unknown run time may be kept waiting, in the order "stretch"; an assumption."""


class Position(NamedTuple):
    """A job's place in the order: smaller goes first. key has a number for each key of the order but "share"."""

    key: tuple[float, ...]
    seq: int
    job: str


@quick
@dataclass(frozen=True, slots=True)
class OrderFactors:
    """What the order reads of a job: seconds, GPUs and GPU-seconds. expected_s is its whole run; None: unknown."""

    priority: int
    seq: int
    submitted_at: float
    gpus: float
    attained_gpu_s: float = 0.0
    done_s: float = 0.0
    expected_s: float | None = None


class Order:
    """The order of a policy. before_share is how many numbers of a key come before "share"; None without it.

    cluster_gpus are the GPUs of the cluster that it orders for.
    """

    def __init__(self, policy: Policy) -> None:
        self._keys = tuple(key for key in policy.order if key != SHARE)
        self._age_per_s = policy.age_per_day / DAY_S
        self._levels = tuple(sorted(policy.attained_levels))
        self._stretch = policy.stretch
        self.cluster_gpus = 1.0
        shared = SHARE in policy.order
        self.before_share = policy.order.index(SHARE) if shared else None

    def key(self, factors: OrderFactors) -> tuple[float, ...]:
        """The numbers by which a job is compared, smaller first."""
        return tuple(self._number(key, factors) for key in self._keys)

    def _number(self, key: str, factors: OrderFactors) -> float:
        numbers: dict[str, float] = {"smallest": factors.gpus, "arrival": factors.seq}
        match key:
            case "priority":
                # Everybody ages alike, so the order depends on the moment of submission alone.
                return self._age_per_s * factors.submitted_at - factors.priority
            case "attained":
                return self._attained(factors.attained_gpu_s)
            case "remaining":
                return self._remaining_s(factors)
            case "remaining_service":
                left_s = self._remaining_s(factors)
                return inf if left_s == inf else left_s * factors.gpus
            case "stretch":
                return factors.submitted_at + self._patience_s(factors)
        return numbers[key]

    def _patience_s(self, factors: OrderFactors) -> float:
        left_s = self._remaining_s(factors)
        if left_s == inf:
            return PATIENCE_S
        return self._stretch * left_s * max(1.0, factors.gpus) / self.cluster_gpus

    def _attained(self, gpu_s: float) -> float:
        return bisect_right(self._levels, gpu_s) if self._levels else gpu_s

    def _remaining_s(self, factors: OrderFactors) -> float:
        if factors.expected_s is None:
            return inf
        return max(0.0, factors.expected_s - factors.done_s)
