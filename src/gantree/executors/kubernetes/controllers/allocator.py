"""Dynamic resource allocation: what claims add to the shapes of pods, and which devices claims get.

A pod is read once its claims exist (`read`): for the core its GPUs count as GPUs of the node, all else as one unit of
its requests (`device_capacity`). When the core has placed a gang, devices are chosen for each pod (`plan`): the GPUs
that the core named if they match the claims, else others of the node. `claim_writes` writes the allocations of a gang,
all or none. A claim whose pod did not start is a stray; its allocation is removed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

import msgspec

from gantree.executors.kubernetes.apiserver.client import Key
from gantree.executors.kubernetes.apiserver.device_objects import (
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from gantree.executors.kubernetes.apiserver.objects import Claimed, Node, Pod
from gantree.executors.kubernetes.constraints.channels import domains_in
from gantree.executors.kubernetes.devices.allocation import (
    DeviceResult,
    FreeDevices,
    allocate,
    shares_of,
)
from gantree.executors.kubernetes.devices.claim_index import (
    NAME_FIELD,
    ClaimIndex,
    InUse,
    NotReady,
    Plan,
    devices_in,
    is_for_pod_alone,
)
from gantree.executors.kubernetes.devices.claim_writes import Grant, allocation_of
from gantree.executors.kubernetes.devices.claims import (
    ClaimRequests,
    Unfit,
    requests_of,
)
from gantree.executors.kubernetes.devices.device_capacity import (
    Amounts,
    CountedPod,
    DeviceCapacity,
)
from gantree.executors.kubernetes.devices.extended_resources import (
    ExtendedResources,
    NewClaim,
    is_special,
    names_of,
)
from gantree.executors.kubernetes.devices.selector_index import SelectorIndex
from gantree.executors.kubernetes.devices.slices import Pools
from gantree.executors.kubernetes.devices.taken_devices import TakenDevices
from gantree.executors.kubernetes.devices.wiring import with_devices
from gantree.executors.kubernetes.pods.annotations import GPUS, JOB
from gantree.executors.kubernetes.writes.writes import Binding
from gantree.model.jobs import GPU_RESOURCES


class Allocator:
    """Slices, classes, claims and the pods that use them; on the controller's thread alone.

    Large, as reading claims, counting what is taken and allocating share one index of claims, and a change of one must
    reach the others.
    """

    def __init__(self) -> None:
        self.room = DeviceCapacity()
        self.counted: frozenset[str] = frozenset()
        """The names under which the site counts requests."""
        self._not_backed: frozenset[str] = frozenset()
        """Extended resources that the site counts still, and that no class backs any more."""
        self.book = ClaimIndex()
        self._pools = Pools()
        self._classes: dict[str, DeviceClass] = {}
        self._extended = ExtendedResources()
        self._selectors = SelectorIndex(self._pools)
        self.taken = TakenDevices(self._pools, self.book, self.room)
        self._to_check: dict[Key, None] = {}

    # ----- objects

    def update_slice(self, key: Key, after: ResourceSlice | None) -> list[str]:
        """A slice was added or has changed; None: it is gone. Gives the nodes whose devices may have changed."""
        nodes = self._pools.update(key, after)
        self._selectors.update(nodes)
        self.taken.recount(nodes)
        return nodes

    def update_node(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """A node is there with these labels; None: it is gone. Gives whether its devices may have changed."""
        is_other = self._pools.update_node(name, labels)
        if is_other:
            self._selectors.update([name])
            self.taken.recount([name])
        return is_other

    def update_class(self, key: Key, after: DeviceClass | None) -> None:
        """A device class was added or has changed; None: it is gone."""
        if after is None:
            self._classes.pop(key[1], None)
        else:
            self._classes[key[1]] = after
        gone = self._extended.update(key[1], after)
        self._not_backed |= self.counted.intersection(gone)
        self.room.forget_resources(gone)

    def update_claim(self, key: Key, after: ResourceClaim | None) -> None:
        """A claim was added or has changed; None: it is gone."""
        self.taken.touch(self.book.update(key, after))
        self._to_check[key] = None

    def check_again(self, key: Key) -> None:
        """The allocation of a claim could not be removed: decide about it again."""
        self._to_check[key] = None

    def count_pod(self, pod: Pod, *, gone: bool) -> None:
        """Count a pod of ours by its GPUs and requests, until it has ended or is gone."""
        uid, claimed = pod.metadata.uid, pod.claimed
        if gone or pod.has_ended:
            self.taken.uncount(uid)
        elif claimed is not None and pod.spec.node_name:
            self._count(uid, pod.spec.node_name, pod.metadata.annotations, claimed)

    def read_all(self, seen: Iterable[tuple[str, Any, Any, Any]]) -> None:
        """Apply the first lists: nodes, slices, classes and claims before the pods that use them."""
        told = list(seen)
        for noun, key, _, after in told:
            match noun:
                case "node":
                    self.update_node(key[1], None if after is None else after.metadata.labels)
                case "slice":
                    self.update_slice(key, after)
                case "class":
                    self.update_class(key, after)
                case "claim":
                    self.update_claim(key, after)
        for noun, _, _, after in told:
            if noun == "pod" and after is not None:
                self.read(after)

    # ----- requests of pods

    def read(self, pod: Pod) -> Pod:
        """A pod with the requests of its claims, and of extended resources that classes back; others as they are."""
        backed = self._extended.backed(pod)
        if not (pod.spec.resource_claims or backed):
            return pod
        try:
            claimed = self._claimed(pod)
            if backed:
                counted = (*claimed.counted, *self._count_resources(backed))
                claimed = msgspec.structs.replace(claimed, backed=backed, counted=counted)
        except Unfit as error:
            claimed = Claimed(blocked=str(error))
        except NotReady as error:
            claimed = Claimed(blocked=str(error), may_pass=True)
        except InUse as error:
            claimed = Claimed(blocked=str(error), in_use=True)
        return msgspec.structs.replace(pod, claimed=claimed)

    def _count_resources(self, backed: Amounts) -> Iterator[tuple[str, int]]:
        """What extended resources are counted as beside their own names. Raises Unfit."""
        for resource, amount in backed:
            yield from self.room.count_resource(resource, amount, self._extended.unit(resource))

    def asks_in_vain(self, pod: Pod) -> bool:
        """Whether a pod asks for an extended resource that the site counts only until it is rebuilt."""
        return bool(self._not_backed) and not self._not_backed.isdisjoint(names_of(pod))

    def _claimed(self, pod: Pod) -> Claimed:
        claims = self.book.claims_of(pod)
        for claim in claims.values():
            self.book.check_free(claim, pod.metadata.uid)
        open_ = {name: claim for name, claim in claims.items() if _is_open(claim, pod.metadata.uid)}
        nodes = [
            claim.status.allocation.node_selector
            for name, claim in claims.items()
            if name not in open_ and claim.status.allocation is not None
        ]
        pins = tuple(each for each in nodes if each is not None)
        claim_requests, domains = requests_of(open_, self._classes), domains_in(claims.values())
        if not claim_requests.requests:
            return Claimed(nodes=pins, domains=domains)
        self._check(claim_requests)
        is_plain = self._is_plain(claim_requests, open_.values())
        counted = () if is_plain else self.room.count(claim_requests)
        return Claimed(
            gpus=self._selectors.gpus(claim_requests),
            counted=counted,
            nodes=pins,
            domains=domains,
            open=tuple(_open_to_others(pod, open_)),
        )

    def _check(self, claim_requests: ClaimRequests) -> None:
        """Raise Unfit if no device at all matches a request."""
        for _, alternatives in claim_requests.requests:
            if not any(self._selectors.is_served(request) for request in alternatives):
                names = " or ".join(repr(request.class_name) for request in alternatives)
                raise Unfit(
                    f"no device of any node is as request {alternatives[0].name!r} asks, of class {names}"
                )

    def _is_plain(self, claim_requests: ClaimRequests, claims: Iterable[ResourceClaim]) -> bool:
        """Whether requests are for a number of GPUs, any of a node, so that counting GPUs is enough."""
        has_selectors = any(
            request.exactly is None or request.exactly.selectors
            for claim in claims
            for request in claim.spec.devices.requests
        )
        return not (has_selectors or claim_requests.constraints) and all(
            map(self._selectors.is_any_gpu, claim_requests.device_requests)
        )

    # ----- devices of nodes

    def equipped(self, node: Node) -> Node:
        """A node with the GPUs of its slices, and how often it can serve each of the requests, as resources."""
        if self._not_backed or len(self.counted) < len(self.room.name_of_requests):
            self.counted = frozenset(self.room.name_of_requests.values())
            self._not_backed = frozenset()
        there = self._pools.of_node(node.metadata.name)
        node = with_devices(node, there)
        status = node.status
        listed = status.allocatable or status.capacity
        counts = self.room.missing(node.metadata.name, listed, self.room.totals(there))
        if not counts:
            return node
        allocatable = {**listed, **counts}
        return msgspec.structs.replace(
            node, status=msgspec.structs.replace(status, allocatable=allocatable)
        )

    def gpus_of(self, pod: Pod) -> tuple[int, ...]:
        """The whole GPUs that the claims of a bound pod have, by their positions on its node."""
        try:
            claims = self.book.claims_of(pod, with_special=True)
        except NotReady:
            return ()
        gpus = self._pools.of_node(pod.spec.node_name).gpus
        held = {key for claim in claims.values() for key in devices_in(claim.status.allocation)}
        return tuple(position for position, key in enumerate(gpus) if key in held)

    # ----- allocation

    def plan(self, bindings: Sequence[Binding], pods: Mapping[str, Pod]) -> list[Binding]:
        """Bindings with what the claims of their pods are given. Raises Unfit, and then nothing is planned."""
        planned: list[Binding] = []
        try:
            for binding in bindings:
                grants = self._grants(pods[binding.uid], binding)
                planned.append(replace(binding, grants=grants) if grants else binding)
        except Unfit:
            for binding in planned:
                self.give_up(binding.uid)
            raise
        return planned

    def give_up(self, pod: str) -> None:
        """The pod of this uid is not bound after all."""
        for uid in [uid for uid, plan in self.book.plans.items() if plan.pod == pod]:
            self.taken.touch(self.book.drop(uid))
        self.taken.uncount(pod)

    def strays(
        self, verdict: Callable[[str, ResourceClaim], "Verdict"]
    ) -> list[tuple[ResourceClaim, str]]:
        """Return claims whose allocation must be removed, with their pods; verdict decides by the uid of the user."""
        found = []
        for key in list(self._to_check):
            claim = self.book.claims.get(key)
            users = () if claim is None else claim.status.reserved_for
            if claim is None or claim.status.allocation is None or len(users) != 1:
                del self._to_check[key]
                continue
            told = verdict(users[0].uid, claim)
            if told is not Verdict.LATER:
                del self._to_check[key]
            if told is Verdict.STRAY:
                found.append((claim, users[0].uid))
        return found

    def has_pool(self, pool: tuple[str, str]) -> bool:
        """Whether slices tell of a pool, by driver and name."""
        return self._pools.has(pool)

    def _grants(self, pod: Pod, binding: Binding) -> tuple[Grant, ...]:
        """What is to be written of a pod's claims before it is bound. Raises Unfit."""
        claimed = pod.claimed or Claimed()
        if not (pod.spec.resource_claims or claimed.backed):
            return ()
        try:
            claims = self.book.claims_of(pod)
        except NotReady as error:
            raise Unfit(str(error)) from error
        uid, node = pod.metadata.uid, binding.node
        made = self._special_claim(pod, node)
        if made is not None:
            claims[""] = self.book.claims.get(made.key) or made.typed()
        there = [claim for claim in claims.values() if claim.status.allocation is not None]
        for claim in there:
            if not _is_on(claim, node):
                raise Unfit(f"claim {claim.metadata.name!r} has devices of another node")
        open_ = {name: claim for name, claim in claims.items() if claim.status.allocation is None}
        for claim in open_.values():
            if claim.metadata.uid in self.book.plans:
                raise Unfit(f"claim {claim.metadata.name!r} is being allocated for another pod")
        results = self._allocate(
            requests_of(open_, self._classes), node, binding.annotations.get(GPUS, "")
        )
        grants = [
            Grant(claim, uid, pod.metadata.name, node, made=_if_special(claim, made))
            for claim in there
        ]
        for number, claim in enumerate(open_.values()):
            own = [each for each in results if each.claim == number]
            taken = tuple(each for each in own if not each.request.is_admin)
            key = (claim.metadata.namespace, claim.metadata.name)
            devices = shares_of(taken)
            self.book.plan(claim.metadata.uid, Plan(key, uid, node, devices))
            self.taken.touch(devices)
            told = allocation_of(claim, own, node, self._classes)
            of_claim = _if_special(claim, made)
            grants.append(Grant(claim, uid, pod.metadata.name, node, told, taken, of_claim))
        self._count(uid, node, binding.annotations, claimed)
        return tuple(grants)

    def _special_claim(self, pod: Pod, node: str) -> NewClaim | None:
        """The claim for extended resources that no device plugin of a node offers."""
        backed = pod.claimed.backed if pod.claimed else ()
        lacking = [resource for resource, _ in backed if not self.room.offers(node, resource)]
        return self._extended.claim(pod, lacking) if lacking else None

    def _allocate(
        self, claim_requests: ClaimRequests, node: str, positions: str
    ) -> list[DeviceResult]:
        there = self._pools.of_node(node)
        held = self.book.held(device.key for device in there.known)
        first = [there.gpus[gpu] for gpu in _numbers(positions) if gpu < len(there.gpus)]
        results = allocate(claim_requests, FreeDevices.of(there, held), first)
        if results is None:
            names = ", ".join(
                dict.fromkeys(request.class_name for request in claim_requests.device_requests)
            )
            raise Unfit(
                f"the devices that its claims ask for ({names}) are not free on node {node}"
            )
        return results

    def _count(self, uid: str, node: str, annotations: Mapping[str, str], claimed: Claimed) -> None:
        backed = tuple(each for each in claimed.backed if not self.room.offers(node, each[0]))
        has_gpus = claimed.gpus or any(resource in GPU_RESOURCES for resource, _ in backed)
        gpus = _numbers(annotations.get(GPUS, "")) if has_gpus else ()
        job = annotations.get(JOB, "")
        self.taken.count(uid, CountedPod(job, node, gpus, (*claimed.counted, *backed)))


class Verdict(Enum):
    """On a claim that is allocated for one pod: remove the allocation, keep it, or decide later."""

    STRAY = "stray"
    KEPT = "kept"
    LATER = "later"


def _is_open(claim: ResourceClaim, uid: str) -> bool:
    """Whether devices are yet to be found for a claim; one that only this pod has may still be moved."""
    return claim.status.allocation is None or is_for_pod_alone(claim, uid)


def _open_to_others(pod: Pod, claims: Mapping[str, ResourceClaim]) -> Iterator[str]:
    """The claims without an allocation that a pod names, instead of having them made for it alone."""
    for wanted in pod.spec.resource_claims:
        claim = claims.get(wanted.name)
        is_named = wanted.resource_claim_name is not None
        if is_named and claim is not None and claim.status.allocation is None:
            yield claim.metadata.name


def _if_special(claim: ResourceClaim, made: NewClaim | None) -> NewClaim | None:
    return made if is_special(claim) else None


def _is_on(claim: ResourceClaim, node: str) -> bool:
    """Whether what a claim was given can be used on a node, as far as the node's name says."""
    assert claim.status.allocation is not None, "asked of what is allocated"
    selector = claim.status.allocation.node_selector
    terms = () if selector is None else selector.node_selector_terms
    names = [
        set(each.values) for term in terms for each in term.match_fields if each.key == NAME_FIELD
    ]
    return not names or any(node in values for values in names)


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of a list with commas, as annotations have it; what is none is left out."""
    return tuple(int(word) for word in text.split(",") if word.isascii() and word.isdecimal())
