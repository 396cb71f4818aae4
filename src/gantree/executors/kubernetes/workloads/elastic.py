"""Pods of GangJobs, which gantree creates: how many are needed now, and start orders that wait for them.

How many members an elastic gang has is decided when it gets its place, so its pods cannot all be there before. While it
waits it has as many as it asks for, or as the place has that is held for it; once it has a place those that are
missing are made, and those beyond it go. A GangJob that goes on at a place that is held for it is not itself held until
its pods are there, for its place would be let go then: its start waits for them instead, but not for ever.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gantree.core.view import JobView, LedgerView
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.gang_spec import Spec
from gantree.executors.kubernetes.pods.shapes import pod_request
from gantree.executors.kubernetes.workloads.gangjob import elastic_of, index_of, size_written
from gantree.model.node_restrictions import without_node_restrictions
from gantree.model.orders import StartGang
from gantree.model.phases import HOLDING

COME_WITHIN_S = 60.0
"""Seconds within which the pods of a start must exist."""


def pods_needed(spec: Spec, state: JobView | None, decided: LedgerView) -> int | None:
    """How many pods an elastic GangJob needs now; None for one of one size. Raises InvalidObject."""
    if elastic_of(spec) is None:
        return None
    if state is None or state.spec.elastic is None:
        return size_written(spec)
    if state.placement is not None and state.phase in HOLDING:
        return len(state.placement.members)
    claimed = decided.claimed_placement(state.job)
    return state.spec.members if claimed is None else len(claimed.members)


def min_pods(state: JobView) -> int:
    """How many pods must be there for a job that waits to be let go on: of an elastic one the fewest it may have."""
    elastic = state.spec.elastic
    return state.present.members if elastic is None else elastic.min


def pods_by_index(pods: Iterable[Pod], state: JobView) -> dict[int, Pod]:
    """The pods that are as the members of an elastic gang are written, by the member that each was made to be.

    Only that one it may be: rank 0 is where the others look for it.
    """
    shape = without_node_restrictions(state.spec.roles[0].shape)
    found = ((index_of(pod), pod) for pod in pods if pod_request(pod).shape == shape)
    return {index: pod for index, pod in found if index is not None}


@dataclass(slots=True)
class PendingStarts:
    """Start orders that wait for pods, by job and attempt, each with the moment at which that is given up."""

    _orders: dict[tuple[str, int], StartGang] = field(default_factory=dict)
    _until: dict[tuple[str, int], float] = field(default_factory=dict)

    def wait(self, order: StartGang) -> None:
        """Pods of an order are missing."""
        self._orders[order.job, order.attempt] = order

    def forget(self, job: str, attempt: int) -> None:
        """Nothing is waited for any more."""
        self._orders.pop((job, attempt), None)
        self._until.pop((job, attempt), None)

    def due(self, now: float) -> Iterator[tuple[StartGang, bool]]:
        """Orders to try again, and whether it is too late for that."""
        for name, order in list(self._orders.items()):
            yield order, now >= self._until.setdefault(name, now + COME_WITHIN_S)
