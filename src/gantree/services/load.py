"""What an autoscaler knows of a service at one moment: its replicas, and what was measured of its load."""

from dataclasses import dataclass

from gantree.model.services import ADDITIVE, ScaleTarget

STALE_AFTER = 2
"""A value that is older than so many samples says nothing."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas are wanted, and how many of them answer requests. The others start, or wait for room.

    speeds: of the ready ones, relative to the speed for which targets are meant; those that stay longest come first.
    Replicas of unknown speed count as 1.
    """

    wanted: int
    ready: int
    speeds: tuple[float, ...] = ()

    @property
    def all_ready(self) -> bool:
        """Whether no replica is on its way."""
        return self.ready >= self.wanted


@dataclass(frozen=True, slots=True)
class Measured:
    """A value and when it was measured."""

    value: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of a service; None where it is not known.

    values: one of each target, in their order: of a target that is shared (`is_shared`) the sum over the replicas, of
    others the value as it is. rate: requests a second that arrive. present: requests in work or waiting.
    """

    values: tuple[Measured | None, ...]
    rate: Measured | None = None
    present: Measured | None = None

    def without_stale(self, every_s: float, now: float) -> "Load":
        """Return the load without what is older than two samples."""
        oldest_s = now - STALE_AFTER * every_s

        def fresh(measured: Measured | None) -> Measured | None:
            return None if measured is None or measured.at_s < oldest_s else measured

        return Load(tuple(map(fresh, self.values)), fresh(self.rate), fresh(self.present))


def is_shared(target: ScaleTarget) -> bool:
    """Whether replicas share the value: with twice as many, each has half of it."""
    if target.query:
        return target.per_replica
    return target.metric in ADDITIVE or target.metric == "gpu_use"


def follows_replicas(target: ScaleTarget) -> bool:
    """Whether the value, summed over the replicas, depends on their number: with fewer, requests stay longer."""
    return target.metric in {"concurrency", "queue"} or not is_shared(target)


def is_gradual(target: ScaleTarget) -> bool:
    """Whether a low value does not tell how many replicas would do: times to answer, and requests that wait."""
    return target.metric == "queue" or not is_shared(target)
