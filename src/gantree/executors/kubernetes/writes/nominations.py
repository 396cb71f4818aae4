"""`status.nominatedNodeName`: the node on which room is being freed for a pending pod; written and removed.

Other schedulers and autoscalers read it: they leave that room alone, and add no node for such a pod. It is kept as the
ledger's claims are, and compared with what the pods say, so that none is left behind: not by a claim that was dropped,
nor by a gantree that was killed.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.objects import Metadata, Pod
from gantree.executors.kubernetes.constraints.gang_constraints import role_of
from gantree.executors.kubernetes.workloads.gangs import Gang
from gantree.model.placements import Placement

Nominate = Callable[[Metadata, str], None]


@dataclass(slots=True)
class Nominations:
    """The nominated node of each pending pod, by uid; "" for none."""

    nominate: Nominate
    _nominated: dict[str, str] = field(default_factory=dict)
    _claimed: dict[str, Placement] = field(default_factory=dict)
    _is_stale: bool = False

    def update(self, pod: Pod, *, waits: bool) -> None:
        """Read the status of an added or changed pod, which any scheduler may have written."""
        uid, said = pod.metadata.uid, pod.status.nominated_node_name
        if waits and said:
            self._nominated[uid] = said
        else:
            self._nominated.pop(uid, None)
        self._is_stale = True

    def step(
        self, decided: LedgerView, gang: Callable[[str], Gang | None], pods: Mapping[str, Pod]
    ) -> None:
        """Write what has changed. gang gives the pods of a job that wait, pods are all that there are, by uid."""
        claims = decided.claimed_placements()
        if not self._is_stale and self._claimed == claims:
            return
        self._is_stale, self._claimed = False, claims
        wanted = dict(_wanted(self._claimed, gang))
        for uid in [uid for uid, node in self._nominated.items() if node and uid not in wanted]:
            self._nominate(pods[uid], "")
        for uid, node in wanted.items():
            if self._nominated.get(uid, "") != node:
                self._nominate(pods[uid], node)

    def _nominate(self, pod: Pod, node: str) -> None:
        self._nominated[pod.metadata.uid] = node
        self.nominate(pod.metadata, node)


def _wanted(
    claims: Mapping[str, Placement], gang: Callable[[str], Gang | None]
) -> Iterator[tuple[str, str]]:
    """The node of each pod for which room is held: members of a role are its pods, in order."""
    for job, placement in claims.items():
        waits = gang(job)
        pods_of_role = {role.name: deque(pods) for role, pods in waits.roles} if waits else {}
        for member in placement.members:
            pods = pods_of_role.get(role_of(member.role))
            if pods:
                yield pods.popleft().metadata.uid, member.node
