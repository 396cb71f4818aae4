"""Opens a Kubernetes cluster: it returns when the API is connected and all objects are listed."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.client import Client
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.settings import KubernetesSettings, Shadow
from gantree.executors.kubernetes.cluster import KubernetesCluster
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.controllers.link_checks import LinkCheckCalls
from gantree.executors.kubernetes.controllers.nodes import Nodes
from gantree.executors.kubernetes.tools.shadow import ShadowClient
from gantree.executors.kubernetes.tools.shadow_report import Reporter
from gantree.executors.kubernetes.tools.shadow_tally import ShadowTally
from gantree.executors.kubernetes.watch.api_thread import NODES, ApiThread
from gantree.journal.encoding import codec
from gantree.model.cluster import Cluster
from gantree.model.errors import Unreachable
from gantree.model.events import Event

Report = dict[str, Any]
LOOKS_EVERY_S = 0.01
"""For nodes, while there are none."""


class Opened:
    """A link that has listed everything, and the nodes that it saw. report is the newest of a dry run."""

    def __init__(
        self,
        told: KubernetesSettings,
        wake: Callable[[], None],
        leads: Callable[[], bool] = lambda: True,
        nodes_within_s: float = 0.0,
    ) -> None:
        """leads says whether we may write. While there are no nodes it waits for the first one, at most nodes_within_s.

        Raises Unreachable where the server does not answer, or refuses.
        """
        self.report: Report = {}
        self._told, self._allocator = told, Allocator()
        chosen = {"labelSelector": told.node_selector} if told.node_selector else {}
        nodes = replace(NODES, selectors=chosen)
        make_client = Client if told.shadow is None else partial(self._shadow_client, told.shadow)
        self._api = ApiThread(told.connection, wake, leads, nodes, make_client)
        self._nodes = Nodes(told.name, told.levels, self._allocator, told.cluster)
        self._api.start(meanwhile=codec.prepare)
        self._read_nodes()
        ends_at = time.monotonic() + nodes_within_s
        while not self._nodes.has_any and leads() and time.monotonic() < ends_at:
            time.sleep(LOOKS_EVERY_S)
            self._read_nodes()
        self._allocator.read_all(tuple(self._api.seen))

    def _read_nodes(self) -> None:
        for noun, key, _, after in tuple(self._api.seen):
            if noun == "node":
                self._nodes.update_node(key[1], after, 0.0)
            elif noun == "topology":
                kind, (_, name) = key
                self._nodes.update_topology(kind, name, after, 0.0)

    def site(self, decided: LedgerView) -> Cluster:
        """The site as it is now, with room for every gang that is placed.

        Raises Unreachable while there is no node at all, and BadInput for nodes that make no site.
        """
        if not self._nodes.has_any:
            raise Unreachable(f"{self._told.connection.server} has no nodes yet")
        return self._nodes.build(decided, 0.0)

    def cluster(
        self,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        decided: Callable[[], LedgerView],
        link_checks: LinkCheckCalls | None = None,
        lease_holds: Callable[[], bool] = lambda: False,
    ) -> KubernetesCluster:
        """The cluster that a controller talks to; link_checks and lease_holds as there."""
        return KubernetesCluster(
            self._api,
            self._nodes,
            self._allocator,
            emit,
            clock,
            decided,
            scheduler=self._told.shadow.scheduler if self._told.shadow else self._told.scheduler,
            takes_over=self._told.shadow is None,
            node_groups=() if self._told.shadow else self._told.node_groups,
            levels=self._told.levels,
            partition_nodes=None if self._told.shadow else self._told.partition_nodes,
            report_url=self._told.report_url,
            link_checks=link_checks,
            federation_namespace=self._told.federation_namespace,
            federation_volumes=self._told.federation_volumes,
            lease_holds=lease_holds,
        )

    def _shadow_client(
        self, shadow: Shadow, connection: Connection, _: Callable[[], bool]
    ) -> Client:
        """A client that writes nothing; its reports are kept here and in a file."""

        reporter = Reporter(shadow.scheduler, self._told.levels)

        def keep(tally: ShadowTally) -> None:
            self.report = reporter.report(tally)
            new = shadow.report.with_suffix(".new")
            new.write_text(json.dumps(self.report), encoding="utf-8")
            new.replace(shadow.report)

        return ShadowClient(connection, shadow.scheduler, keep)

    def close(self) -> None:
        """Let go of everything; pods go on."""
        self._api.close()
