"""The cluster as one controller reaches it: through the network, under the epoch of its leader.

It does what an executor does in the controller's process: it refuses orders of a leader whose time is over, and tells
nothing to one that was replaced.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gantree.control.ports import Clock, Emit
from gantree.executors.inventory import Inventory
from gantree.executors.local.epochs import LeaderGuard
from gantree.model.cluster import Cluster
from gantree.model.orders import Order
from support.faults.cluster import SimulatedCluster
from support.faults.points import Points
from support.recording import RecordingCluster


class ExecutorFailed(Exception):
    """A bug of the executor, out of an order."""


class SimulatedPort(RecordingCluster):
    """One controller's executor. Questions of users that no life asks are answered as the base does."""

    def __init__(
        self,
        cluster: Cluster,
        emit: Emit,
        clock: Clock,
        *,
        site: SimulatedCluster,
        epochs: Path,
        leads: Callable[[], bool],
        points: Points,
    ) -> None:
        super().__init__(cluster, emit, clock)
        self._site, self._points = site, points
        self._guard = LeaderGuard(epochs, leads)
        self.fails_next = False

    def carry_out(self, order: Order) -> None:
        """Send an order on its way."""
        self._points.passing(f"before order {order.id}")
        if self.fails_next:
            self.fails_next = False
            raise ExecutorFailed(order.id)
        if self._guard.admits(order):
            self._site.network.send(order)

    def inventory(self) -> Inventory:
        """What runs."""
        return self._site.inventory()

    def poll(self) -> None:
        """Emit what has arrived, with the time of this controller, as executors do."""
        if self._guard.is_deposed:
            return
        for event in self._site.network.arrived():
            self.emit(replace(event, observed_at=self.clock()))

    def adopt(self, epoch: int) -> None:
        """Take over."""
        self._guard.begin(epoch)
        self._points.passing("adopted")
        self._site.begin(epoch)
        self.poll()

    def settle(self, job: str, attempt: int) -> None:
        """The end of an attempt is on record."""
        self._site.settle(job, attempt)

    def has_run(self, job: str) -> bool:
        """Whether anything was ever begun under this id."""
        return any(name == job for name, _ in self._site.attempts)
