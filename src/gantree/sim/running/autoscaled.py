"""A simulated service whose number of replicas is what `services.autoscaler` recommends.

Each sample requests arrive at random at the rate of the moment: Poisson's, drawn as a normal. Replicas that are ready
work on them; what they cannot bear waits, in front of all, and is shed after wait_s. The autoscaler is told what a
router would tell: the rate, and how many requests are in work or wait. A request is *late* that arrives in a sample at
whose end requests wait, or in which no replica is ready.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf, sqrt
from random import Random

from gantree.model.events import Event
from gantree.model.services import Autoscaling, ReplicaCount, ScaleSteps, ScaleTarget
from gantree.services.autoscaler import recommend, shared_need
from gantree.services.load import Load, Measured, Replicas
from gantree.services.load_of_week import LoadOfWeek
from gantree.services.scaling_history import History
from gantree.sim.running.model import Service, ServiceScaling
from gantree.sim.running.services import level

MOST_TIMES_PEAK = 4
"""The most replicas, in full ones of the peak over the target; the load never asks for as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleDue(Event):
    """Autoscaled services are sampled whose interval has passed."""

    service: str


@dataclass(slots=True)
class ServiceFigures:
    """What came of a service: requests, late and shed ones, replica-seconds ready and needed, steps up and down."""

    requests: float = 0.0
    late: float = 0.0
    shed: float = 0.0
    ready_s: float = 0.0
    full_s: float = 0.0
    steps: int = 0

    @property
    def late_share(self) -> float:
        """The part of the requests that are late."""
        return self.late / self.requests if self.requests else 0.0


@dataclass(slots=True)
class Change:
    """What a sample has decided: numbers of replicas that begin, and of those that end."""

    begin: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)


class AutoscaledService:
    """One service: its replicas by number, when each is ready, and what its autoscaler remembers."""

    def __init__(
        self,
        service: Service,
        seed: int,
        now: float,
        load: Callable[[float], float] | None = None,
    ) -> None:
        """load: full replicas by second; None: the curve of the service."""
        assert service.scaling is not None, "it has an autoscaler"
        self._load = load or (lambda at_s: level(service, at_s))
        self.service = service
        self.scaling: ServiceScaling = service.scaling
        self.figures = ServiceFigures()
        self._draws = Random(f"{seed}/{service.name}/requests")  # noqa: S311 - of a simulation
        self._spec = _autoscaling(self.scaling)
        most = ceil(max(1, service.peak) / self.scaling.target) * MOST_TIMES_PEAK
        self._bounds = ReplicaCount(min(1, service.trough), most, spare=self.scaling.spare)
        self._history: History | None = None
        self._week = LoadOfWeek()
        self._waiting = 0.0
        self._ready_at: dict[int, float] = {}
        self._numbers = 0
        self._sampled_at = now

    def begin(self, now: float) -> Change:
        """The replicas that the load of the first moment needs."""
        wanted = ceil(self._load(now) / self.scaling.target) + self.scaling.spare
        return self._change_to(max(self._bounds.min, wanted))

    def started(self, number: int, now: float) -> None:
        """A replica runs, and is ready after its start-up time."""
        if number in self._ready_at:
            self._ready_at[number] = now + self.scaling.start_s

    def stopped(self, number: int) -> None:
        """A replica does not run any more; if it is still wanted, it starts again."""
        if number in self._ready_at:
            self._ready_at[number] = inf

    def sample(self, now: float) -> Change:
        """Let the time since the last sample pass, and do what the autoscaler recommends."""
        ready = sum(at <= now for at in self._ready_at.values())
        rate = self._serve(ready, now - self._sampled_at, now)
        self._sampled_at = now
        present = Measured(rate * self.scaling.request_s + self._waiting, now)
        load = Load((present,), Measured(rate, now), present)
        predicted = 0.0
        if self.scaling.predict:
            self._week = self._week.noted(now, shared_need(self._spec.targets, load) or 0.0)
            predicted = self._week.predicted(now, now + self.scaling.start_s + self.scaling.every_s)
        replicas = Replicas(len(self._ready_at), ready)
        found, self._history = recommend(
            self._spec, self._bounds, replicas, load, self._history, now, predicted
        )
        self.figures.steps += found.replicas != replicas.wanted
        return self._change_to(found.replicas)

    def _serve(self, ready: int, seconds: float, now: float) -> float:
        """Let requests arrive and be worked on; return their rate."""
        a_replica = self.scaling.slots / self.scaling.request_s
        mean = self._load(now - seconds / 2) * a_replica * seconds
        arrived = max(0.0, self._draws.gauss(mean, sqrt(mean)))
        bears = ready * a_replica
        waiting = max(0.0, self._waiting + arrived - bears * seconds)
        most = self.scaling.wait_s * max(bears, a_replica)
        self._waiting = min(waiting, most)
        figures = self.figures
        figures.requests += arrived
        figures.late += arrived if waiting > 0 or not ready else 0.0
        figures.shed += waiting - self._waiting
        figures.ready_s += ready * seconds
        figures.full_s += arrived / a_replica
        return arrived / seconds if seconds else 0.0

    def _change_to(self, wanted: int) -> Change:
        """Begin replicas, or end some: first those that are not ready, then the newest."""
        change = Change()
        while len(self._ready_at) < wanted:
            self._numbers += 1
            self._ready_at[self._numbers] = inf
            change.begin.append(self._numbers)
        while len(self._ready_at) > wanted:
            number = max(self._ready_at, key=lambda each: (self._ready_at[each], each))
            del self._ready_at[number]
            change.end.append(number)
        return change


def _autoscaling(scaling: ServiceScaling) -> Autoscaling:
    target = ScaleTarget("concurrency", scaling.target * scaling.slots)
    down = ScaleSteps(stabilise_s=scaling.stabilise_s)
    return Autoscaling((target,), scaling.every_s, down=down, predict=scaling.predict)
