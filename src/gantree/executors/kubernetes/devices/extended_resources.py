"""Extended resources that device classes back: what pods ask for by name, and the claims that are made for it.

A class names a resource (`extendedResourceName`), and every class has one of its own
(`deviceclass.resource.kubernetes.io/NAME`). On a node whose device plugins offer the resource, they give it out; on
others, devices of the class do, by one claim of the pod for all its resources. As the claim depends on the node, it is
made when the pod is bound.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gantree.executors.kubernetes.apiserver.client import Key
from gantree.executors.kubernetes.apiserver.device_objects import DeviceClass, ResourceClaim
from gantree.executors.kubernetes.apiserver.objects import Container, Pod
from gantree.executors.kubernetes.devices.claims import ClaimRequests, requests_of
from gantree.executors.kubernetes.pods.pod_amounts import amounts_of
from gantree.topology.discovery.listings.kubernetes_nodes import quantity

PREFIX = "deviceclass.resource.kubernetes.io/"
SPECIAL = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that are made for extended resources."""
_LONGEST_START = 200

Backed = tuple[tuple[str, int], ...]
"""Resources and how many devices of each."""


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A claim that is to be made for a pod on a node. mappings: which container has which request for what."""

    body: dict[str, Any]
    mappings: tuple[dict[str, str], ...]

    @property
    def key(self) -> Key:
        """Its namespace and name."""
        return self.body["metadata"]["namespace"], self.body["metadata"]["name"]

    def typed(self) -> ResourceClaim:
        """The claim as if it were there, under a uid that is no object's."""
        claim = msgspec.convert(self.body, ResourceClaim)
        uid = "/".join(self.key)
        metadata = msgspec.structs.replace(claim.metadata, uid=uid)
        return msgspec.structs.replace(claim, metadata=metadata)


class ExtendedResources:
    """The class of each extended resource: of several that name it the newest, then the first by name."""

    def __init__(self) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._of_resource: dict[str, str] = {}

    def update(self, name: str, after: DeviceClass | None) -> list[str]:
        """A class was added or has changed; None: it is gone. Gives the resources that no class backs any more."""
        before = self._of_resource
        self._classes.pop(name, None)
        if after is not None:
            self._classes[name] = after
        named = [each for each in self._classes.values() if each.spec.extended_resource_name]
        named.sort(key=lambda each: each.metadata.name, reverse=True)
        named.sort(key=lambda each: each.metadata.creation_timestamp or "")
        self._of_resource = {PREFIX + each: each for each in self._classes}
        self._of_resource |= {e.spec.extended_resource_name: e.metadata.name for e in named}
        return [resource for resource in before if resource not in self._of_resource]

    def backed(self, pod: Pod) -> Backed:
        """What a pod asks for of resources that a class backs."""
        if not any(name in self._of_resource for name in names_of(pod)):
            return ()
        amounts = amounts_of(pod.spec)
        found = ((name, int(amounts[name])) for name in sorted(amounts))
        return tuple((n, count) for n, count in found if count > 0 and n in self._of_resource)

    def unit(self, resource: str) -> ClaimRequests:
        """What one of a resource is: a request for one device of its class, named after it. Raises Unfit."""
        request = {"name": resource, **self._exactly(resource, 1)}
        claim = msgspec.convert({"metadata": {}, "spec": _spec([request])}, ResourceClaim)
        return requests_of({"": claim}, self._classes)

    def claim(self, pod: Pod, resources: Iterable[str]) -> NewClaim:
        """The claim of a pod for those of its resources that no device plugin of its node offers."""
        requests: list[dict[str, Any]] = []
        mappings: list[dict[str, str]] = []
        for resource in sorted(resources):
            for asked in self._requests(pod, resource):
                requests += [asked.request] if asked.request else []
                mappings += asked.mappings
        requests.sort(key=lambda each: str(each["name"]))
        meta = pod.metadata
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
        mark = hashlib.sha256(f"{meta.uid} {requests}".encode()).hexdigest()[:8]
        metadata = {
            "name": f"{meta.name[:_LONGEST_START]}-extended-resources-{mark}",
            "namespace": meta.namespace,
            "annotations": {SPECIAL: "true"},
            "ownerReferences": [{**owner, "controller": True}],
        }
        return NewClaim({"metadata": metadata, "spec": _spec(requests)}, tuple(mappings))

    def _requests(self, pod: Pod, resource: str) -> Iterator["_Asked"]:
        """What each container gets: init containers use what those that stay have, and one request beside it."""
        inits = pod.spec.init_containers
        containers = [*inits, *pod.spec.containers]
        brief = [i for i, each in enumerate(inits) if each.restart_policy != "Always"]
        lasting: dict[int, _Asked] = {}
        for i in [i for i in range(len(containers)) if i not in brief]:
            if (asked := self._asked(i, containers[i], resource, ())) is not None:
                lasting[i] = asked
        reused = {i: [lasting[j] for j in sorted(lasting) if j >= i] for i in brief}
        found = [self._asked(i, containers[i], resource, reused[i]) for i in brief]
        told = [each for each in found if each is not None]
        yield from lasting.values()
        yield from _as_one(told)

    def _asked(
        self, index: int, container: Container, resource: str, reusable: Iterable["_Asked"]
    ) -> "_Asked | None":
        requests = {**container.resources.limits, **container.resources.requests}
        wanted = int(quantity(str(requests.get(resource, 0))) or 0)
        had, mappings = 0, []
        for each in reusable:
            if had < wanted:
                had += each.count
                mappings.append(_mapping(container, resource, each.name))
        if not wanted or had >= wanted:
            return _Asked("", 0, None, mappings) if mappings else None
        name = f"container-{index}-request-{sorted(requests).index(resource)}"
        request = {"name": name, **self._exactly(resource, wanted - had)}
        mappings.append(_mapping(container, resource, name))
        return _Asked(name, wanted - had, request, mappings)

    def _exactly(self, resource: str, count: int) -> dict[str, Any]:
        name = self._of_resource[resource]
        return {
            "exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": count}
        }


@dataclass(slots=True)
class _Asked:
    """A request of a container, if it needs one of its own, and its mappings to requests."""

    name: str
    count: int
    request: dict[str, Any] | None
    mappings: list[dict[str, str]]


def _as_one(told: list[_Asked]) -> Iterator[_Asked]:
    """Init containers run one after the other: the largest of their requests serves all of them."""
    own = [each for each in told if each.request]
    largest = max(own, key=lambda each: each.count, default=None)
    for each in told:
        for mapping in each.mappings:
            if largest is not None and mapping["requestName"] == each.name:
                mapping["requestName"] = largest.name
        yield _Asked(
            each.name, each.count, each.request if each is largest else None, each.mappings
        )


def _mapping(container: Container, resource: str, request: str) -> dict[str, str]:
    return {"containerName": container.name, "resourceName": resource, "requestName": request}


def _spec(requests: list[dict[str, Any]]) -> dict[str, Any]:
    return {"devices": {"requests": requests}}


def names_of(pod: Pod) -> Iterator[str]:
    """The resources that containers of a pod ask for."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        yield from container.resources.requests
        yield from container.resources.limits


def has_extended(pod: Pod) -> bool:
    """Whether a pod asks for a resource that a class may back: one whose name has a domain."""
    return any("/" in name for name in names_of(pod))


def is_special(claim: ResourceClaim) -> bool:
    """Whether a claim was made for extended resources of a pod."""
    return claim.metadata.annotations.get(SPECIAL) == "true"


def not_offered(backed: Backed, allocatable: Mapping[str, object]) -> tuple[str, ...]:
    """Those resources that no device plugin of a node offers."""
    return tuple(n for n, _ in backed if not (quantity(str(allocatable.get(n, 0))) or 0.0))
