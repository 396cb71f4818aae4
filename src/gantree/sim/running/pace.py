"""How fast every running gang works: its placement, its stragglers, and who shares its links."""

from collections.abc import Iterable, Iterator

from gantree.model.cluster import Cluster
from gantree.model.jobs import Job
from gantree.model.orders import StartGang
from gantree.sim.running.contention import Contention
from gantree.sim.running.link_traffic import LinkTraffic, LinkTraffics, Uplink
from gantree.sim.running.model import RunningModel
from gantree.sim.running.step_speed import StepSpeed
from gantree.sim.running.stragglers import SlowOnes
from gantree.topology.fabric.fabric import Fabric


class Pace:
    """Speeds of gangs, in seconds of work a second."""

    def __init__(self, model: RunningModel, cluster: Cluster, seed: int) -> None:
        by_step = model.step_time or model.contention
        self._by_step = StepSpeed(cluster) if by_step else None
        self._slow = SlowOnes(model.stragglers, seed) if model.stragglers else None
        self._traffics: LinkTraffics | None = None
        if model.contention or (model.failures is not None and model.failures.links):
            fabric = Fabric.build(cluster)
            self._traffics = LinkTraffics(fabric)
            self._contention = Contention(fabric, shared=model.contention)
        self._traffic_of_job: dict[str, LinkTraffic] = {}
        self._alone_of_job: dict[str, float] = {}

    def start(self, order: StartGang, spec: Job) -> float:
        """The speed of a gang that shares its links with nobody, on whole links: what is degraded comes on top."""
        traffic = None
        if self._traffics is not None and len(order.members) > 1:
            traffic = self._traffics.of(spec, order.members)
        speed = len(order.members) / spec.members
        if self._by_step is not None:
            step_s = order.step_s if traffic is None else traffic.step_s
            speed = self._by_step.speed(spec, len(order.members), step_s)
        if self._slow is not None:
            nodes = [member.node for member in order.members]
            speed *= self._slow.speed(order.job, order.attempt, nodes)
        if traffic is not None:
            self._traffic_of_job[order.job] = traffic
            self._alone_of_job[order.job] = speed
        return speed

    def slow_nodes(self, nodes: Iterable[str]) -> dict[str, float]:
        """Those of some nodes that are slower than others, with their speeds."""
        return {} if self._slow is None else self._slow.slow_nodes(nodes)

    def join(self, job: str) -> None:
        """A gang begins to communicate."""
        traffic = self._traffic_of_job.get(job)
        if traffic is not None:
            self._contention.join(job, traffic)

    def leave(self, job: str) -> None:
        """A gang does not communicate any more, or not for now."""
        if job in self._traffic_of_job:
            self._contention.leave(job)

    def forget(self, job: str) -> None:
        """An attempt is over."""
        if self._traffics is not None:
            self._contention.forget(job)
        self._traffic_of_job.pop(job, None)
        self._alone_of_job.pop(job, None)

    def degrade(self, link: Uplink, health: float) -> None:
        """The up-links of a domain carry this share of what they carried whole."""
        if self._traffics is not None:
            self._contention.degrade(link, health)

    def changed(self) -> Iterator[tuple[str, float]]:
        """Gangs whose speed has changed since the last time, and their speeds."""
        if self._traffics is None:
            return
        for job in self._contention.changed():
            stretch = self._traffic_of_job[job].stretch(self._contention.share(job))
            yield job, self._alone_of_job[job] / stretch
