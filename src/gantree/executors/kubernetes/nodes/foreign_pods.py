"""Resources that foreign pods hold on nodes: pods of other schedulers and of DaemonSets.

The sum of their requests is counted by node, and what a pod of a gang has beyond the shape of its job because it was
resized while it ran. GPUs, of which requests give only the number, count as the last of the
node.
"""

from collections.abc import Iterable, Iterator, Mapping

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.pod_amounts import Amounts, bound_amounts_of
from gantree.executors.kubernetes.pods.shapes import PODS, devices_of, held_by
from gantree.model.events import OthersHold
from gantree.model.jobs import GPU_RESOURCES, Shape
from gantree.model.placements import MemberPlacement

HOLDER, ROLE = "others on ", "others"
LEAST = {"cpu": 1e-6, "memory": 1.0}
"""What is less than this, in cores and bytes, is rounding."""


class ForeignPods:
    """Sums by node, and which of them have changed."""

    def __init__(self) -> None:
        self._amounts_of_pod_on_node: dict[str, dict[str, Amounts]] = {}
        self._node_of_pod: dict[str, str] = {}
        self._changed: dict[str, None] = {}
        self._told = 0

    def adopt(self, holders: Iterable[str]) -> None:
        """The holders on record; it is reported if all their pods are gone."""
        nodes = (each.removeprefix(HOLDER) for each in holders if each.startswith(HOLDER))
        self._changed |= dict.fromkeys(nodes)

    def update(self, pod: Pod) -> None:
        """A foreign pod was added or has changed."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node or pod.has_ended:
            self.forget(uid)
        else:
            self._set(uid, node, {**held_by(pod), **bound_amounts_of(pod), PODS: 1.0})

    def update_resized(self, pod: Pod, shape: Shape) -> None:
        """A pod of a gang was added or has changed, whose job has this shape for it."""
        now = bound_amounts_of(pod)
        more = {
            "cpu": now.get("cpu", 0.0) - shape.cpus,
            "memory": now.get("memory", 0.0) - shape.memory_GiB * 2**30,
        }
        beyond = {name: amount for name, amount in more.items() if amount > LEAST[name]}
        if pod.has_ended or not pod.spec.node_name or not beyond:
            self.forget(pod.metadata.uid)
        else:
            self._set(pod.metadata.uid, pod.spec.node_name, beyond)

    def _set(self, uid: str, node: str, amounts: Amounts) -> None:
        if self._amounts_of_pod_on_node.get(node, {}).get(uid) != amounts:
            self.forget(uid)
            self._node_of_pod[uid] = node
            self._amounts_of_pod_on_node.setdefault(node, {})[uid] = amounts
            self._changed[node] = None

    def forget(self, uid: str) -> None:
        """A pod is gone, or not foreign."""
        node = self._node_of_pod.pop(uid, None)
        if node is not None:
            pods = self._amounts_of_pod_on_node[node]
            del pods[uid]
            if not pods:
                del self._amounts_of_pod_on_node[node]
            self._changed[node] = None

    def changes(
        self, gpus_of_node: Mapping[str, int], now: float, epoch: int
    ) -> Iterator[OthersHold]:
        """An event for each node whose sum has changed; nodes that are not in the site yet wait."""
        there = self._amounts_of_pod_on_node
        for node in [each for each in self._changed if each in gpus_of_node or each not in there]:
            del self._changed[node]
            self._told += 1
            member = self._member(node, gpus_of_node.get(node, 0))
            yield OthersHold(
                id=f"others/{node}/{epoch}.{self._told}",
                observed_at=now,
                holder=HOLDER + node,
                members=() if member is None else (member,),
            )

    def _member(self, node: str, gpus: int) -> MemberPlacement | None:
        pods = self._amounts_of_pod_on_node.get(node)
        if not pods:
            return None
        sums: Amounts = {}
        for amounts in pods.values():
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0.0) + amount
        taken = min(gpus, int(sum(sums.get(name, 0.0) for name in GPU_RESOURCES)))
        devices = {**devices_of(sums), PODS: int(sums.get(PODS, 0.0))}
        return MemberPlacement(
            role=ROLE,
            rank=0,
            node=node,
            gpus=tuple(range(gpus - taken, gpus)),
            cpus=sums.get("cpu", 0.0),
            memory_GiB=sums.get("memory", 0.0) / 2**30,
            devices=tuple(sorted((name, count) for name, count in devices.items() if count)),
        )
