"""Kubernetes events about node health: on the Node, and on pods that stay on an unhealthy node for now.

Written when health changes. What is on record at the start was written by the leader before.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from gantree.core.view import JobView, LedgerView
from gantree.executors.kubernetes.apiserver.client import JSON
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.writes.writes import StatusMessage

UNWELL, WELL = "NodeUnwell", "NodeWell"
NODE_MAY_FAIL = "NodeMayFail"
OF_NODES = "default"
"""The namespace of events about objects that are in none."""
EVENTS = f"api/v1/namespaces/{OF_NODES}/events"
WELL_AGAIN = "Pods are placed here again."


class NodeEvents:
    """The health of each node as it was written last. pods_of gives the pods of an attempt."""

    def __init__(self, api: ApiThread, pods_of: Callable[[str, int], list[Pod]]) -> None:
        self._api, self._pods_of = api, pods_of
        self._reported: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        self._version = -1

    def adopt(self, decided: LedgerView) -> None:
        """The present health was written already."""
        self._reported, self._version = decided.site.unhealthy_nodes(), decided.site.version
        self._kept = decided.site.kept_nodes()

    def step(self, decided: LedgerView, now: float) -> None:
        """Write what has changed."""
        if decided.site.version == self._version:
            return
        before, kept_before = self._reported, self._kept
        self.adopt(decided)
        for node in dict.fromkeys((*before, *kept_before, *self._reported, *self._kept)):
            reason, kept = self._reported.get(node, ""), self._kept.get(node, "")
            if (reason, kept) != (before.get(node, ""), kept_before.get(node, "")):
                said = kept or (f"Nothing new is placed here: {reason}" if reason else "")
                event = node_event(
                    node, UNWELL if said else WELL, said or WELL_AGAIN, now, is_warning=bool(said)
                )
                self._api.request("POST", EVENTS, event, JSON)
                self._warn_gangs(decided, node, reason, now)

    def _warn_gangs(self, decided: LedgerView, node: str, reason: str, now: float) -> None:
        for state in decided.placed_jobs() if reason else ():
            if state.placement is not None and node in state.placement.nodes and not state.leaving:
                self._warn(
                    state,
                    f"Node {node} is unwell: {reason}",
                    decided.why_not_drained(state.job, now),
                )

    def _warn(self, state: JobView, sentence: str, stays: str) -> None:
        pods = [pod.metadata for pod in self._pods_of(state.job, state.attempt)]
        if pods:
            then = f"The gang stays, for {stays}." if stays else "The gang has no place elsewhere."
            names = tuple((meta.namespace, meta.name) for meta in pods)
            said = StatusMessage(
                names, pods[0].uid, NODE_MAY_FAIL, f"{sentence}. {then}", is_warning=True
            )
            self._api.report_status(said)


def node_event(
    node: str, reason: str, message: str, now: float, *, is_warning: bool
) -> dict[str, object]:
    """An event about a node. Its uid is the node's name, as in events of kubelets about their nodes."""
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{node}.", "namespace": OF_NODES},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": "Warning" if is_warning else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": "gantree"},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
