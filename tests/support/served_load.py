"""A service under a load, without chance: replicas that start after a time, and how long requests stay with so many.

Three models of a replica. `ps`: processor sharing, an M/M/1 of its own. `pool`: M/M/c, one queue before the slots of
all replicas. `batch`: a request takes a + b x (requests in work), as decoding in batches does. Where more arrives than
the replicas bear, the rest is a backlog, up to what the router queues.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from gantree.model.services import Autoscaling, ReplicaCount, ScaleTarget
from gantree.services.autoscaler import recommend
from gantree.services.load import Load, Measured, Replicas, is_shared
from gantree.services.scaling_history import History

NEARLY = 0.995
"""Replicas are full at this part of what they bear; a mean time without bound is of no use here."""


@dataclass(frozen=True)
class Server:
    """One replica: requests a second that it bears alone, slots, and seconds that each request in work adds."""

    kind: str
    bears: float
    slots: int = 1

    def in_work(self, rate: float, replicas: int) -> float:
        """Requests in work or waiting, over all replicas, at a rate that they bear."""
        load = min(NEARLY, rate / (replicas * self.bears))
        if self.kind == "ps":
            return replicas * load / (1 - load)
        if self.kind == "batch":  # seconds = alone + more x (in work), more = 1 / bears
            return replicas * self.slots * load / (1 - load)
        slots = replicas * self.slots
        offered = load * slots
        return offered + _waits(slots, offered) * load / (1 - load)


def _waits(slots: int, offered: float) -> float:
    """Erlang's C: the part of requests that wait, by the recursion of B."""
    blocked = 1.0
    for slot in range(1, slots + 1):
        blocked = offered * blocked / (slot + offered * blocked)
    return blocked / (1 - offered / slots * (1 - blocked))


@dataclass
class Served:
    """A service that runs: wanted replicas, when each of those on its way is ready, and what waits."""

    server: Server
    scaling: Autoscaling
    bounds: ReplicaCount
    start_s: float
    queues: float
    wanted: int
    ready: int = 0
    ready_at: list[float] = field(default_factory=list)
    backlog: float = 0.0
    history: History | None = None
    now: float = 0.0
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ready = self.wanted

    def sample(self, rate: float) -> int:
        """Live one sample at a rate of requests, then ask the autoscaler; return the number wanted."""
        self.now += self.scaling.every_s
        self.ready += sum(at <= self.now for at in self.ready_at)
        self.ready_at = [at for at in self.ready_at if at > self.now]
        bears = self.ready * self.server.bears * NEARLY
        self.backlog += (rate - bears) * self.scaling.every_s
        self.backlog = max(0.0, min(self.queues, self.backlog))
        load = self.load(rate)
        found, self.history = recommend(
            self.scaling, self.bounds, Replicas(self.wanted, self.ready), load, self.history, self.now
        )  # fmt: skip
        self._want(found.replicas)
        self.numbers.append(found.replicas)
        return found.replicas

    def load(self, rate: float) -> Load:
        """What a router tells of this moment."""
        in_work = self.server.in_work(rate, self.ready) if self.ready else 0.0
        through = min(rate, self.ready * self.server.bears)
        seconds = (in_work + self.backlog) / through if through else 0.0
        known = {
            "concurrency": in_work + self.backlog,
            "queue": self.backlog,
            "rate": rate,
            "tokens_per_s": 100 * through,
            "gpu_use": self.ready * min(1.0, through / max(1e-9, self.ready * self.server.bears)),
            "latency_p99": 4.6 * seconds,
            "ttft_p99": 2 * seconds,
            "itl_p99": seconds / 20,
        }
        values = tuple(self._value(target, known) for target in self.scaling.targets)
        present = Measured(known["concurrency"], self.now)
        return Load(values, Measured(rate, self.now), present)

    def _value(self, target: ScaleTarget, known: dict[str, float]) -> Measured | None:
        if not self.ready and not is_shared(target):
            return None
        return Measured(known[target.metric], self.now)

    def _want(self, wanted: int) -> None:
        """Start more, or end those that are not ready first."""
        more = wanted - self.wanted
        self.ready_at += [self.now + self.start_s] * max(0, more)
        gone = max(0, -more)
        starting = min(gone, len(self.ready_at))
        self.ready_at = self.ready_at[: len(self.ready_at) - starting]
        self.ready -= gone - starting
        self.wanted = wanted


def turns(numbers: list[int]) -> str:
    """Return the directions in which a number went, each once: `du` is down and then up."""
    found = ""
    for before, after in pairwise(numbers):
        step = "u" if after > before else "d" if after < before else ""
        if step and not found.endswith(step):
            found += step
    return found
