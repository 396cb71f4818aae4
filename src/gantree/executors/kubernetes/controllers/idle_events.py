"""Kubernetes events on the pods of a gang that is warned as idle, since their output is no file of ours.

Each order is one event; a new leader, which repeats the orders in force, writes it once more.
"""

from collections.abc import Callable

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.writes.writes import StatusMessage
from gantree.model.orders import WriteToLog

GANG_IDLE = "GangIdle"


class IdleEvents:
    """The orders whose event was written. pods_of gives the pods of an attempt."""

    def __init__(self, api: ApiThread, pods_of: Callable[[str, int], list[Pod]]) -> None:
        self._api, self._pods_of = api, pods_of
        self._written: dict[tuple[str, int], set[str]] = {}

    def write(self, order: WriteToLog) -> None:
        """Write the event of an order on the pods of its attempt, once."""
        pods = [pod.metadata for pod in self._pods_of(order.job, order.attempt)]
        written = self._written.setdefault((order.job, order.attempt), set())
        if not pods or order.id in written:
            return
        written.add(order.id)
        names = tuple((meta.namespace, meta.name) for meta in pods)
        sentence = f"{order.text[:1].upper()}{order.text[1:]}."
        self._api.report_status(
            StatusMessage(names, pods[0].uid, GANG_IDLE, sentence, is_warning=True)
        )

    def forget(self, job: str, attempt: int) -> None:
        """The attempt is over."""
        self._written.pop((job, attempt), None)
