"""Gangs that share up-links: who is on which link, and what each gets of it.

A link holds nobody up until what its gangs send together, each as fast as alone, is more than it carries. Only then are
rates worked out, and only of gangs that are joined by such links to one that came, went or changed. A single gang on
whole links is as fast as the cost model says, whatever capacity is told.
"""

from collections.abc import Iterator

from gantree.sim.running.fair_rates import Demand, fair_shares
from gantree.sim.running.link_traffic import LinkTraffic, Uplink
from gantree.topology.fabric.fabric import Fabric

ROUNDING = 1 + 1e-9
LEAST_HEALTH = 1e-3
"""A link that carries nothing would hold a gang for ever; retransmissions and detours leave it something."""


class Contention:
    """Shares of gangs on the links of a fabric. Up-links of unknown capacity carry everything, unless degraded."""

    def __init__(self, fabric: Fabric, *, shared: bool) -> None:
        """shared: gangs share capacities; else degraded links alone slow them down."""
        self._fabric = fabric
        self._shared = shared
        self._traffic_of_job: dict[str, LinkTraffic] = {}
        self._jobs_on: dict[Uplink, dict[str, None]] = {}
        self._health: dict[Uplink, float] = {}
        self._tight: set[Uplink] = set()
        self._share_of_job: dict[str, float] = {}
        self._touched: dict[Uplink, None] = {}
        self._back: dict[str, None] = {}  # what they had when they left is not what they have now

    def join(self, job: str, traffic: LinkTraffic) -> None:
        """A gang begins to send."""
        if job in self._traffic_of_job:
            return
        self._traffic_of_job[job] = traffic
        if self._share_of_job.setdefault(job, 1.0) != 1.0:
            self._back[job] = None
        for link in traffic.GBps_of_link:
            self._jobs_on.setdefault(link, {})[job] = None
            self._touched[link] = None

    def leave(self, job: str) -> None:
        """A gang sends no more, or not for now."""
        traffic = self._traffic_of_job.pop(job, None)
        if traffic is None:
            return
        self._back.pop(job, None)
        for link in traffic.GBps_of_link:
            del self._jobs_on[link][job]
            self._touched[link] = None

    def forget(self, job: str) -> None:
        """A gang is gone for good."""
        self.leave(job)
        self._share_of_job.pop(job, None)

    def degrade(self, link: Uplink, health: float) -> None:
        """A link carries this share of what it carried whole, from 0 to 1."""
        if health < 1:
            self._health[link] = max(LEAST_HEALTH, health)
        else:
            self._health.pop(link, None)
        self._touched[link] = None

    def share(self, job: str) -> float:
        """What a gang gets of its rate alone; 1 where it sends nothing."""
        return self._share_of_job.get(job, 1.0)

    def changed(self) -> Iterator[str]:
        """Gangs whose share has changed since the last time."""
        if not self._touched:
            return
        was_tight = {link for link in self._touched if link in self._tight}
        for link in self._touched:
            self._weigh(link)
        seeds = [link for link in self._touched if link in was_tight or link in self._tight]
        self._touched.clear()
        jobs = self._joined(seeds)
        shares = dict.fromkeys(self._back, 1.0) | dict(
            zip(jobs, self._shares(list(jobs)), strict=True)
        )
        self._back.clear()
        for job, share in shares.items():
            if share != self._share_of_job[job]:
                self._share_of_job[job] = share
                yield job

    def _weigh(self, link: Uplink) -> None:
        """See anew whether a link can hold anybody up."""
        jobs = self._jobs_on.get(link, {})
        load_GBps = sum(self._traffic_of_job[job].GBps_of_link[link] for job in jobs)
        capacity_GBps = self._capacity_GBps(link)
        degraded = link in self._health and bool(jobs)
        if degraded or (capacity_GBps is not None and load_GBps > capacity_GBps * ROUNDING):
            self._tight.add(link)
        else:
            self._tight.discard(link)

    def _capacity_GBps(self, link: Uplink) -> float | None:
        """What a link carries now; at least what each gang sends alone over whole links. None where all."""
        tier, domain = link
        told = float(self._fabric.uplink_GBps_of_domain[tier][domain])
        if not self._shared or not told < float("inf"):
            return None
        of_one = (
            self._traffic_of_job[job].GBps_of_link[link] for job in self._jobs_on.get(link, ())
        )
        return max(told, *of_one, 0.0) * self._health.get(link, 1.0)

    def _joined(self, seeds: list[Uplink]) -> dict[str, None]:
        """Gangs on these links, and all that are joined to them by links that hold somebody up."""
        jobs: dict[str, None] = {}
        seen, links = set(seeds), list(seeds)
        while links:
            for job in self._jobs_on.get(links.pop(), ()):
                if job not in jobs:
                    jobs[job] = None
                    more = [
                        link
                        for link in self._traffic_of_job[job].GBps_of_link
                        if link in self._tight and link not in seen
                    ]
                    seen.update(more)
                    links += more
        return jobs

    def _shares(self, jobs: list[str]) -> list[float]:
        demands = [self._demand(self._traffic_of_job[job]) for job in jobs]
        links = {link for demand in demands for link in demand.GBps_of_link if link in self._tight}
        known = ((link, self._capacity_GBps(link)) for link in sorted(links))
        return fair_shares(demands, {link: GBps for link, GBps in known if GBps is not None})

    def _demand(self, traffic: LinkTraffic) -> Demand[Uplink]:
        most = min(
            (self._health[at] for at in traffic.GBps_of_link if at in self._health), default=1
        )
        return Demand(traffic.GBps_of_link, traffic.connections, most)
