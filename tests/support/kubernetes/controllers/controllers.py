"""What kube-controller-manager does that a scheduler meets: claims of templates and of pods that have ended, budgets,
the protection of pod groups.

They are clients of any API server. Each follows what it needs and settles what follows from it, again and again until
nothing does, so that a write that was lost or refused is made up for by the next event.
"""

import asyncio
from collections.abc import Callable, Coroutine
from math import ceil
from typing import Any

from support.kubernetes.client import MERGE, STRATEGIC, Client, path_of
from support.kubernetes.controllers.follower import Follower
from support.kubernetes.server.selectors import selector_of
from support.kubernetes.server.statuses import Json

CLAIMS = "resource.k8s.io/v1"
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
GROUP_PROTECTION = "scheduling.k8s.io/podgroup-protection"
ENDED = frozenset({"Succeeded", "Failed"})
COUNTED = frozenset({"ReplicaSet", "ReplicationController", "Deployment", "StatefulSet"})
"""Owners of which Kubernetes knows how many pods there are to be."""
SYNC_FAILED = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}
Known = dict[str, Json]


class Controllers(Follower):
    """All of them, from the beginning of a block to its end. gang_api: the version of PodGroup, if it is served."""

    def __init__(self, client: Client, gang_api: str | None = None) -> None:
        super().__init__()
        self.client = client
        self.pods: Known = {}
        self.claims: Known = {}
        self.budgets: Known = {}
        self.groups: Known = {}
        self.group_version = f"scheduling.k8s.io/{gang_api}" if gang_api else None
        self._news = asyncio.Event()

    async def begin(self) -> None:
        """Follow what it acts upon."""
        followed: list[tuple[Known, str]] = [
            (self.pods, path_of("v1", "pods")),
            (self.claims, path_of(CLAIMS, "resourceclaims")),
            (self.budgets, path_of("policy/v1", "poddisruptionbudgets")),
        ]
        if self.group_version:
            followed.append((self.groups, path_of(self.group_version, "podgroups")))
        for each in followed:
            self.run(self._follow(*each))
        self.run(self._settle())

    async def _follow(self, known: Known, path: str) -> None:
        async for kind, content in self.client.follow(path, {}):
            if kind == "DELETED":
                known.pop(content["metadata"]["uid"], None)
            else:
                known[content["metadata"]["uid"]] = content
            self._news.set()

    async def _settle(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._each(self.pods, self._make_claims)
            await self._each(self.claims, self._clear_claim)
            await self._each(self.budgets, self._count_budget)
            await self._each(self.groups, self._let_group_go)

    async def _each(
        self, known: Known, settle: Callable[[Json], Coroutine[Any, Any, None]]
    ) -> None:
        for content in tuple(known.values()):
            await settle(content)

    async def _make_claims(self, pod: Json) -> None:
        """A claim for each template that a pod names, told in its status."""
        metadata, status = pod["metadata"], pod["status"]
        told = {each["name"] for each in status.get("resourceClaimStatuses") or ()}
        wanted = [
            each
            for each in pod["spec"].get("resourceClaims") or ()
            if each.get("resourceClaimTemplateName") and each["name"] not in told
        ]
        if "deletionTimestamp" in metadata or status.get("phase") in ENDED:
            return
        for each in wanted:
            name = self._claim_of(pod, each["name"]) or await self._make_claim(pod, each)
            if name:
                body = {
                    "status": {
                        "resourceClaimStatuses": [{"name": each["name"], "resourceClaimName": name}]
                    }
                }
                path = path_of("v1", "pods", metadata["namespace"], metadata["name"], "status")
                await self.client.insist("PATCH", path, body, STRATEGIC)

    def _claim_of(self, pod: Json, name: str) -> str | None:
        """The claim that was made for a pod already."""
        for claim in self.claims.values():
            metadata = claim["metadata"]
            owners = {each["uid"] for each in metadata.get("ownerReferences") or ()}
            if pod["metadata"]["uid"] in owners and metadata["annotations"].get(POD_CLAIM) == name:
                found: str = metadata["name"]
                return found
        return None

    async def _make_claim(self, pod: Json, wanted: Json) -> str | None:
        metadata = pod["metadata"]
        namespace, template = metadata["namespace"], wanted["resourceClaimTemplateName"]
        found = await self.client.insist(
            "GET", path_of(CLAIMS, "resourceclaimtemplates", namespace, template)
        )
        if found.code != 200:
            return None
        below = found.content["spec"]
        made = {
            "metadata": {
                "generateName": f"{metadata['name']}-{wanted['name']}-",
                "labels": (below.get("metadata") or {}).get("labels") or {},
                "annotations": {POD_CLAIM: wanted["name"]},
                "ownerReferences": [_owner(pod)],
            },
            "spec": below.get("spec") or {},
        }
        reply = await self.client.insist("POST", path_of(CLAIMS, "resourceclaims", namespace), made)
        if reply.code != 201:
            return None
        self.claims[reply.content["metadata"]["uid"]] = reply.content
        name: str = reply.content["metadata"]["name"]
        return name

    async def _clear_claim(self, claim: Json) -> None:
        """A claim is no longer reserved for pods that have ended. One that nobody has any more loses its allocation
        and its finalizer if that is set, without it the allocation stays. A pod's own claim goes with the pod."""
        status, metadata = claim.get("status") or {}, claim["metadata"]
        namespace = metadata["namespace"]
        reserved = status.get("reservedFor") or []
        left = [each for each in reserved if await self._lives(namespace, each)]
        is_protected = DELETE_PROTECTION in (metadata.get("finalizers") or ())
        is_free = not left and is_protected and ("deletionTimestamp" in metadata or bool(reserved))
        if left != reserved or (is_free and status.get("allocation")):
            changed: Json = {"reservedFor": left or None}
            if is_free:
                changed["allocation"] = None
            if not await self._write(claim, "status", {"status": changed}):
                return
        if is_free:
            rest = [each for each in metadata["finalizers"] if each != DELETE_PROTECTION]
            await self._write(claim, "", {"metadata": {"finalizers": rest or None}})
        if not left and "deletionTimestamp" not in metadata and await self._is_left_behind(claim):
            path = path_of(CLAIMS, "resourceclaims", namespace, metadata["name"])
            await self.client.insist("DELETE", path, {"preconditions": {"uid": metadata["uid"]}})

    async def _write(self, claim: Json, part: str, body: Json) -> bool:
        """Change a claim as it was read: whether it was still so. The part is its status or nothing; later parts of
        one change go by the version that the first has left."""
        metadata = claim["metadata"]
        path = path_of(CLAIMS, "resourceclaims", metadata["namespace"], metadata["name"], part)
        version = {"resourceVersion": metadata["resourceVersion"]}
        body = {**body, "metadata": {**body.get("metadata", {}), **version}}
        reply = await self.client.insist("PATCH", path, body, MERGE)
        if reply.code == 200:
            metadata["resourceVersion"] = reply.content["metadata"]["resourceVersion"]
        return reply.code == 200

    async def _is_left_behind(self, claim: Json) -> bool:
        """Whether it was made for a pod that has ended."""
        for owner in claim["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "Pod":
                consumer = {"resource": "pods", "name": owner["name"], "uid": owner["uid"]}
                return not await self._lives(claim["metadata"]["namespace"], consumer)
        return False

    async def _lives(self, namespace: str, consumer: Json) -> bool:
        """Whether a consumer of a claim still needs it. What is not known is asked for: news may be late."""
        if consumer["resource"] != "pods":
            return True
        pod = self.pods.get(consumer["uid"])
        if pod is None:
            path = path_of("v1", "pods", namespace, consumer["name"])
            reply = await self.client.insist("GET", path)
            pod = reply.content if reply.code == 200 else None
        is_same = pod is not None and pod["metadata"]["uid"] == consumer["uid"]
        return pod is not None and is_same and pod["status"].get("phase") not in ENDED

    async def _count_budget(self, budget: Json) -> None:
        """How many of a budget's pods are healthy, and how many may be disrupted."""
        metadata, spec = budget["metadata"], budget["spec"]
        matches = selector_of(spec.get("selector"))
        pods = [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["namespace"] == metadata["namespace"]
            and matches(pod)
            and pod["status"].get("phase") not in ENDED
        ]
        healthy, needed = sum(map(_is_healthy, pods)), desired(spec, len(pods))
        status = {
            "expectedPods": len(pods),
            "currentHealthy": healthy,
            "desiredHealthy": needed,
            "disruptionsAllowed": max(healthy - needed, 0) if pods else 0,
            "observedGeneration": metadata["generation"],
            "disruptedPods": None,
        }
        if not isinstance(spec.get("minAvailable"), int) and any(map(_is_of_a_custom_one, pods)):
            status = {"disruptionsAllowed": 0, "conditions": [SYNC_FAILED]}
        told = {name: value for name, value in status.items() if value is not None}
        now = budget.get("status") or {}
        if {name: now.get(name) for name in told} != told:
            path = path_of(
                "policy/v1",
                "poddisruptionbudgets",
                metadata["namespace"],
                metadata["name"],
                "status",
            )
            await self.client.insist("PATCH", path, {"status": status}, MERGE)

    async def _let_group_go(self, group: Json) -> None:
        """A pod group that was told to go is protected while one of its pods lives."""
        metadata = group["metadata"]
        if "deletionTimestamp" not in metadata or self.group_version is None:
            return
        members = [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["namespace"] == metadata["namespace"]
            and (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") == metadata["name"]
            and pod["status"].get("phase") not in ENDED
        ]
        if not members and GROUP_PROTECTION in (metadata.get("finalizers") or ()):
            rest = [each for each in metadata["finalizers"] if each != GROUP_PROTECTION]
            path = path_of(self.group_version, "podgroups", metadata["namespace"], metadata["name"])
            await self.client.insist(
                "PATCH", path, {"metadata": {"finalizers": rest or None}}, MERGE
            )


def _owner(pod: Json) -> Json:
    metadata = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _is_of_a_custom_one(pod: Json) -> bool:
    """Whether Kubernetes asks the owner of a pod how many there are to be, and it may not say."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each["kind"] not in COUNTED for each in owners)


def _is_healthy(pod: Json) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def desired(spec: Json, expected: int) -> int:
    """How many pods must stay healthy: minAvailable, or all but maxUnavailable; shares are rounded up."""
    if "minAvailable" in spec:
        return _amount(spec["minAvailable"], expected)
    return max(expected - _amount(spec.get("maxUnavailable", 0), expected), 0)


def _amount(told: int | str, of: int) -> int:
    return ceil(int(told.removesuffix("%")) * of / 100) if isinstance(told, str) else told
