"""The controller of claims: pending pods that must be read again, and allocations that must be removed.

Pending pods are read with their claims (`allocator`), and again whenever a claim of theirs changes or the site was
rebuilt. Requests that no pod had before change what nodes are counted by: then the site is rebuilt first.
"""

import logging
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import msgspec

from gantree.executors.kubernetes.apiserver.client import Key
from gantree.executors.kubernetes.apiserver.device_objects import ResourceClaim
from gantree.executors.kubernetes.apiserver.objects import Claimed, Pod
from gantree.executors.kubernetes.constraints.channels import is_of_daemon
from gantree.executors.kubernetes.controllers.allocator import Allocator, Verdict
from gantree.executors.kubernetes.controllers.nodes import Nodes
from gantree.executors.kubernetes.devices.extended_resources import has_extended
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.writes.writes import StatusMessage

log = logging.getLogger(__name__)

COUNTING = "the devices that its claims ask for are being counted"
SHARED = "SharedDevicePool"
PATIENCE_S = 3.0
"""After so long a missing claim is an error of the manifest, and reported."""


class ClaimController:
    """Pending pods that have claims."""

    def __init__(self, api: ApiThread, nodes: Nodes, allocator: Allocator, scheduler: str) -> None:
        """scheduler is the schedulerName of pods that are ours."""
        self._api, self._nodes, self._allocator = api, nodes, allocator
        self._scheduler = scheduler
        self._pods: dict[str, Pod] = {}
        self._plain: dict[str, Pod] = {}
        """Pods with extended resources that a device class may come to back."""
        self._users: dict[Key, dict[str, None]] = {}
        self._stale: dict[str, None] = {}
        self._site: SiteReading | None = None
        self._missing: dict[str, float] = {}
        """Pods with missing claims, and since when."""
        self._late: dict[str, None] = {}
        """Pods whose claims have been missing for too long."""
        self._warned: set[tuple[str, str]] = set()

    def update(self, noun: str, key: Key, after: Any, now: float) -> None:
        """A slice, a class or a claim was added or has changed; None: it is gone."""
        match noun:
            case "slice":
                if self._allocator.update_slice(key, after):
                    self._nodes.mark_stale(now)
            case "class":
                self._allocator.update_class(key, after)
                self._stale |= dict.fromkeys((*self._pods, *self._plain))
                self._nodes.mark_stale(now)
            case "claim again":
                self._allocator.check_again(key)
            case _:
                self._allocator.update_claim(key, after)
                self._stale |= self._users.get(key, {})

    def read(self, pod: Pod, now: float) -> Pod:
        """A pod with the requests of its claims, and of extended resources that a device class backs."""
        read = self._allocator.read(pod)
        claimed = read.claimed
        if claimed is None and self._allocator.asks_in_vain(pod):
            claimed = Claimed(blocked=COUNTING, may_pass=True)
        if claimed is None:
            self._keep_plain(pod)
            return pod
        self._keep(pod)
        names = [name for name, _ in (*claimed.counted, *claimed.backed)]
        if not self._allocator.counted.issuperset(names):
            self._nodes.mark_stale(now)
            claimed = msgspec.structs.replace(claimed, blocked=COUNTING, may_pass=True)
        elif claimed.may_pass:
            self._missing.setdefault(pod.metadata.uid, now)
            is_late = pod.metadata.uid in self._late
            claimed = msgspec.structs.replace(claimed, may_pass=not is_late)
        return msgspec.structs.replace(read, claimed=claimed)

    def forget(self, uid: str) -> None:
        """A pod is gone, or no longer pending."""
        self._delete_pods(uid)
        self._plain.pop(uid, None)
        self._missing.pop(uid, None)
        self._late.pop(uid, None)

    def _delete_pods(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        for key in claims_named_by(pod) if pod else ():
            users = self._users.get(key, {})
            users.pop(uid, None)
            if not users:
                self._users.pop(key, None)

    def pop_stale(self, now: float) -> list[Pod]:
        """Pods that are to be read again."""
        late = {
            uid: None
            for uid, since in self._missing.items()
            if now >= since + PATIENCE_S and uid not in self._late
        }
        self._late |= late
        self._stale |= late
        for key in self._allocator.book.pop_replanned():
            self._stale |= self._users.get(key, {})
        if self._nodes.site is not self._site:
            self._site = self._nodes.site
            self._stale |= dict.fromkeys(self._pods)
            self._allocator.taken.recount()
        pods = ChainMap(self._pods, self._plain)
        found = [pods[uid] for uid in self._stale if uid in pods]
        self._stale.clear()
        return found

    def step(self, pods: dict[str, Pod], may_start: Callable[[Pod], bool]) -> None:
        """Remove allocations for pods that do not start: those that are no members, and will not be."""

        def verdict(uid: str, claim: ResourceClaim) -> Verdict:
            pod = pods.get(uid)
            if pod is None or (not pod.spec.node_name and may_start(pod)):
                return Verdict.LATER
            if pod.spec.scheduler_name != self._scheduler:
                if not is_of_daemon(claim):
                    self._warn(pod, claim)
                return Verdict.KEPT
            return Verdict.KEPT if pod.spec.node_name else Verdict.STRAY

        for claim, uid in self._allocator.strays(verdict):
            self._api.take_back(claim, uid)

    def _keep_plain(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self.forget(uid)
        if not (pod.spec.node_name or pod.has_ended) and has_extended(pod):
            self._plain[uid] = pod

    def _keep(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._plain.pop(uid, None)
        if pod.spec.node_name or pod.has_ended:
            self.forget(uid)
            return
        self._delete_pods(uid)
        self._pods[uid] = pod
        for key in claims_named_by(pod):
            self._users.setdefault(key, {})[uid] = None

    def _warn(self, pod: Pod, claim: ResourceClaim) -> None:
        """Another scheduler allocates devices of a pool, too: warn once for each pool."""
        assert claim.status.allocation is not None, "asked of what is allocated"
        results = claim.status.allocation.devices.results
        for pool in dict.fromkeys((each.driver, each.pool) for each in results):
            if pool in self._warned or not self._allocator.has_pool(pool):
                continue
            self._warned.add(pool)
            sentence = (
                f"Scheduler {pod.spec.scheduler_name!r} allocates devices of driver {pool[0]}, pool {pool[1]}, as "
                "gantree does. The server lets both allocate the same device: give each pool one scheduler."
            )
            log.warning(sentence)
            where = (pod.metadata.namespace, pod.metadata.name)
            self._api.report_status(
                StatusMessage((where,), pod.metadata.uid, SHARED, sentence, is_warning=True)
            )


def claims_named_by(pod: Pod) -> list[Key]:
    """The keys of all claims that a pod names, or that were made for it."""
    names = [each.resource_claim_name for each in pod.spec.resource_claims]
    names += [each.resource_claim_name for each in pod.status.resource_claim_statuses]
    return [(pod.metadata.namespace, name) for name in names if name]
