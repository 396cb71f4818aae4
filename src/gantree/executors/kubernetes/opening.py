"""Opening a Kubernetes cluster: the link is up and everything was listed before the site is asked for."""

from collections.abc import Callable

from gantree.core.ledger import Ledger
from gantree.executors.kubernetes.cluster import KubernetesCluster
from gantree.executors.kubernetes.link import Link
from gantree.executors.kubernetes.nodes import Nodes
from gantree.executors.kubernetes.settings import KubernetesSettings
from gantree.model.cluster import Cluster
from gantree.model.errors import Unreachable
from gantree.model.events import Event


class Opened:
    """A link that has listed everything, and the nodes that it saw."""

    def __init__(
        self,
        told: KubernetesSettings,
        wake: Callable[[], None],
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """leads says whether we may write. Raises Unreachable where the server does not answer, or refuses."""
        self._told, self._link = told, Link(told.reach, wake, leads)
        self._nodes = Nodes(told.name, told.levels)
        self._link.start()
        for noun, key, _, after in tuple(self._link.seen):
            if noun == "node":
                self._nodes.see(key[1], after, 0.0)

    def site(self, on_record: Ledger) -> Cluster:
        """The site as it is now, with room for what the ledger has running.

        Raises Unreachable while there is no node at all, and BadInput for nodes that make no site.
        """
        if not self._nodes.are_there:
            raise Unreachable(f"{self._told.reach.server} has no nodes yet")
        return self._nodes.build(on_record, 0.0)

    def cluster(
        self,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        ledger: Callable[[], Ledger],
    ) -> KubernetesCluster:
        """The cluster that a controller talks to."""
        return KubernetesCluster(
            self._link,
            self._nodes,
            emit,
            clock,
            ledger,
            scheduler=self._told.scheduler,
        )

    def close(self) -> None:
        """Let go of everything; pods go on."""
        self._link.close()
