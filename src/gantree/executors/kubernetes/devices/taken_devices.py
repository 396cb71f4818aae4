"""What claims have taken of nodes in ways that the core does not count itself, as events of foreign holders.

Devices of claims of others, units of requests that share devices, devices with taints: a node's are held by a holder of
its own, and what comes free with one job alone by a holder beside that job.
"""

from collections.abc import Container, Iterable, Iterator, Mapping

from gantree.executors.kubernetes.devices.claim_index import ClaimIndex
from gantree.executors.kubernetes.devices.device import DeviceKey
from gantree.executors.kubernetes.devices.device_capacity import (
    HOLDER,
    CountedPod,
    DeviceCapacity,
    Holding,
    held_by,
)
from gantree.executors.kubernetes.devices.slices import Pools
from gantree.model.events import OthersHold
from gantree.model.placements import MemberPlacement, holder_beside


class TakenDevices:
    """The pods that the core counts, the nodes whose counts have changed, and what was reported."""

    def __init__(self, pools: Pools, book: ClaimIndex, room: DeviceCapacity) -> None:
        self._pools, self._book, self._room = pools, book, room
        self._counted_pods: dict[str, CountedPod] = {}
        self._changed: dict[str, None] = {}
        self._known: dict[str, tuple[MemberPlacement, ...]] = {}
        """What was reported last of each holder."""
        self._beside: dict[str, tuple[str, ...]] = {}
        """The jobs beside which something is held, by node."""
        self._told = 0

    def count(self, uid: str, pod: CountedPod) -> None:
        """The core counts the pod of this uid so."""
        self._counted_pods[uid] = pod
        self._changed[pod.node] = None

    def uncount(self, uid: str) -> None:
        """The core counts the pod of this uid no more."""
        counted_pod = self._counted_pods.pop(uid, None)
        if counted_pod is not None:
            self._changed[counted_pod.node] = None

    def touch(self, devices: Iterable[DeviceKey]) -> None:
        """These devices have other holders now."""
        for driver, pool, _ in devices:
            self._changed |= dict.fromkeys(self._pools.nodes_of((driver, pool)))

    def recount(self, nodes: Iterable[str] | None = None) -> None:
        """Report anew what is taken of nodes; None: of all."""
        self._changed |= dict.fromkeys(self._pools.nodes() if nodes is None else nodes)

    def adopt(self, holders: Mapping[str, tuple[MemberPlacement, ...]]) -> None:
        """What is on record as held; differences are reported."""
        beside = holder_beside("")
        self._known = {
            holder: members
            for holder, members in holders.items()
            if holder.startswith((HOLDER, beside))
        }
        for holder, members in self._known.items():
            for member in members if holder.startswith(beside) else ():
                jobs = self._beside.get(member.node, ())
                self._beside[member.node] = (*jobs, holder.removeprefix(beside))
        on_record = (member.node for members in self._known.values() for member in members)
        self.recount([*on_record, *self._pools.nodes()])

    def changes(self, known: Container[str], now: float, epoch: int) -> Iterator[OthersHold]:
        """An event for each holder whose taken devices have changed; nodes that are not in the site yet wait."""
        held: dict[str, tuple[MemberPlacement, ...]] = {}
        for node in [n for n in self._changed if n in known or HOLDER + n in self._known]:
            del self._changed[node]
            there = self._pools.of_node(node)
            rest, beside = self._room.taken_beside(node, there, *self._holdings(node))
            held[HOLDER + node] = () if rest is None else (rest,)
            for job in dict.fromkeys((*self._beside.pop(node, ()), *beside)):
                holder = holder_beside(job)
                before = held.get(holder, self._known.get(holder, ()))
                others = [member for member in before if member.node != node]
                own = [beside[job]] if job in beside else []
                held[holder] = tuple(sorted((*others, *own), key=lambda member: member.node))
            if beside:
                self._beside[node] = tuple(beside)
        for holder, members in held.items():
            if members != self._known.get(holder, ()):
                yield self._holds(holder, members, now, epoch)

    def _holds(
        self, holder: str, members: tuple[MemberPlacement, ...], now: float, epoch: int
    ) -> OthersHold:
        self._known.pop(holder, None)
        if members:
            self._known[holder] = members
        self._told += 1
        return OthersHold(
            id=f"devices/{holder}/{epoch}.{self._told}",
            observed_at=now,
            holder=holder,
            members=members,
        )

    def of_node(self, node: str) -> MemberPlacement | None:
        """What is taken of a node beside the GPUs and requests that the core counts itself."""
        holdings, counted_pods = self._holdings(node)
        return self._room.taken(node, self._pools.of_node(node), held_by(holdings), counted_pods)

    def _holdings(self, node: str) -> tuple[list[Holding], list[CountedPod]]:
        """What claims have of the devices of a node, and the pods of ours that use them there."""
        counted_pods: dict[str, CountedPod] = {}
        holdings: list[Holding] = []
        for device in self._pools.of_node(node).known:
            for claim, share in self._book.holders(device.key).items():
                users = self._book.consumers(claim)
                pods = {u: self._counted_pods[u] for u in users if u in self._counted_pods}
                counted_pods |= {user: pod for user, pod in pods.items() if pod.node == node}
                jobs = {pods[user].job if user in pods else "" for user in users}
                holdings.append(Holding(device.key, share, jobs.pop() if len(jobs) == 1 else ""))
        return holdings, [*counted_pods.values()]

    def barred(self, node: str) -> MemberPlacement | None:
        """What of a node is unusable, whatever is held: devices with taints."""
        return self._room.taken(node, self._pools.of_node(node), {}, ())
