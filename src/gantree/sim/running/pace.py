"""How fast every running gang works: its placement, its stragglers, and who shares its links."""

from collections.abc import Iterable, Iterator

from gantree.model.cluster import Cluster
from gantree.model.jobs import Job
from gantree.model.orders import StartGang
from gantree.sim.running.model import RunningModel
from gantree.sim.running.step_speed import StepSpeed
from gantree.sim.running.stragglers import SlowOnes


class Pace:
    """Speeds of gangs, in seconds of work a second."""

    def __init__(self, model: RunningModel, cluster: Cluster, seed: int) -> None:
        by_step = model.step_time or model.contention
        self._by_step = StepSpeed(cluster) if by_step else None
        self._slow = SlowOnes(model.stragglers, seed) if model.stragglers else None

    def start(self, order: StartGang, spec: Job) -> float:
        """The speed of a gang that shares its links with nobody."""
        speed = len(order.members) / spec.members
        if self._by_step is not None:
            speed = self._by_step.speed(spec, len(order.members), order.step_s)
        if self._slow is not None:
            nodes: Iterable[str] = (member.node for member in order.members)
            speed *= self._slow.speed(order.job, order.attempt, nodes)
        return speed

    def join(self, job: str) -> None:
        """A gang begins to communicate."""

    def leave(self, job: str) -> None:
        """A gang does not communicate any more."""

    def degrade(self, domain: tuple[int, int], health: float) -> None:
        """The up-links of a domain, (tier, number), carry this share of what they carried whole."""

    def changed(self) -> Iterator[tuple[str, float]]:
        """Gangs whose speed has changed since the last time, and their speeds."""
        return iter(())
