"""What is seen of services while a daemon leads and is not on record: answers to probes, reports of routers.

Built for one leadership; the next one begins with nothing, and knows the same after a few seconds.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop, wait_until_set
from gantree.control.services.autoscaling import ServiceScaling
from gantree.control.services.of_cluster import services_ledger
from gantree.control.services.route_table import RouteTable
from gantree.control.services.router_reports import RouterReport, RouterReports
from gantree.model.events import ReplicaDrained

LOOK_EVERY_S = 0.1
"""How long at least lies between two looks at what drains."""
LONGEST_WAIT_S = 2.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ObservedServices:
    """answers: why an attempt of a replica did not answer its last probe as it should ("": it did).

    answers may be read from any thread, the rest is for the thread of the controller alone.
    """

    answers: dict[tuple[str, int], str] = field(default_factory=dict)
    routers: RouterReports = field(default_factory=RouterReports)
    table: RouteTable = field(default_factory=RouteTable)
    scaling: ServiceScaling = field(init=False)
    _drained: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.scaling = ServiceScaling(self.routers)

    def take(self, report: RouterReport, controller: Controller) -> None:
        """Take the report of a router, and record the drains that it completes."""
        self.routers.take(report)
        self.end_drains(controller)

    def end_drains(self, controller: Controller) -> None:
        """Record that replicas have drained: those without a request left, and those whose drain nobody waits for."""
        now, own = controller.clock(), controller.cluster_services
        self.table.look(services_ledger(controller), now)
        self._drained &= self.table.drains.keys()
        left = [each for key, each in self.table.drains.items() if key not in self._drained]
        for drain in self.routers.drained(left, now):
            self._drained.add((drain.job, drain.attempt))
            if own is not None:
                own.drained(drain.job)
                continue
            controller.inbox.enqueue(
                ReplicaDrained(
                    id=f"{drain.job}/{drain.attempt}/drained/{drain.version}",
                    observed_at=now,
                    job=drain.job,
                    attempt=drain.attempt,
                )
            )


async def watch_drains(loop: Loop, controller: Controller, observed: ObservedServices) -> None:
    """End drains also where no router reports, until cancelled."""
    while True:
        ticket = loop.changes.ticket()
        try:
            await loop.call(lambda: observed.end_drains(controller))
        except Exception:  # an observation ends no daemon
            log.exception("which replicas have drained is not known")
        await asyncio.sleep(LOOK_EVERY_S)
        await wait_until_set(ticket, LONGEST_WAIT_S)
