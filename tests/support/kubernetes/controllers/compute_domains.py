"""NVIDIA's driver of ComputeDomains as far as a scheduler meets it: definition, devices, controller, kubelet plugin.

What it does is what upstream's does (github.com/kubernetes-sigs/dra-driver-nvidia-gpu, read, not run):

- `api/nvidia.com/resource/v1beta1/computedomain.go`: the fields, and that a spec is immutable;
- `cmd/compute-domain-controller`: a domain gets a finalizer and a template of claims for a channel, under the name that
  it asks for; both go when it goes;
- `cmd/compute-domain-kubelet-plugin`: each node has channel-0 and daemon-0 in a pool of its name. A claim for a channel
  is prepared once its pod is bound: its domain must be of the pod's namespace, the node gets the domain's label, unless
  it has that of another, and the pod starts when the daemon on its node is ready;
- a DaemonSet brings the daemon to nodes with the label; the default scheduler allocates the claim of each.

IMEX itself is left out, and so is the DaemonSet as an object: what it would do is done for it.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from support.kubernetes.client import MERGE, Client, path_of
from support.kubernetes.controllers.follower import Follower
from support.kubernetes.samples import definition
from support.kubernetes.server.statuses import Json

GROUP, DRIVER, HOME = "resource.nvidia.com", "compute-domain.nvidia.com", "nvidia-dra-driver-gpu"
LABEL = "resource.nvidia.com/computeDomain"
CHANNELS, DAEMONS = "compute-domain-default-channel.nvidia.com", "compute-domain-daemon.nvidia.com"
CLAIMS = "resource.k8s.io/v1"
ENDED = frozenset({"Succeeded", "Failed"})
SERVED = 200
LOOK_S = 0.02


def crd(version: str = "v1beta1") -> Json:
    """The definition of ComputeDomains; v1beta2 has no numNodes."""
    template = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    mode = {"type": "string", "enum": ["All", "Single"], "default": "Single"}
    fields = {"resourceClaimTemplate": template, "allocationMode": mode}
    channel = {"type": "object", "required": ["resourceClaimTemplate"], "properties": fields}
    spec: Json = {"type": "object", "required": ["channel"], "properties": {"channel": channel}}
    if version == "v1beta1":
        spec["required"].append("numNodes")
        spec["properties"]["numNodes"] = {"type": "integer"}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": anything}}
    return definition(GROUP, "ComputeDomain", "computedomains", schema, version)


@dataclass(frozen=True, slots=True)
class _Channel:
    """A channel that a pod has on its node."""

    node: str
    domain: str


class ComputeDomainDriver(Follower):
    """All parts of the driver on any number of nodes, from the beginning of a block to its end."""

    def __init__(
        self, client: Client, version: str = "v1beta1", has_scheduler: bool = True
    ) -> None:
        """has_scheduler: it places daemons itself, as the default scheduler would."""
        super().__init__()
        self.client, self.version, self.has_scheduler = client, version, has_scheduler
        self._domains: dict[str, Json] = {}
        self._pods: dict[str, Json] = {}
        self._nodes: dict[str, Json] = {}
        self._channels: dict[str, _Channel] = {}
        self._news = asyncio.Event()

    async def begin(self) -> None:
        """Follow what it acts upon."""
        await self._create(
            "apiextensions.k8s.io/v1", "customresourcedefinitions", crd(self.version)
        )
        domains = path_of(f"{GROUP}/{self.version}", "computedomains")
        while (await self.client.insist("GET", domains)).code != SERVED:
            await asyncio.sleep(LOOK_S)
        await self._create("v1", "namespaces", {"metadata": {"name": HOME}})
        for name, kind in ((CHANNELS, "channel"), (DAEMONS, "daemon")):
            is_kind = f"device.attributes['{DRIVER}'].type == '{kind}'"
            rule = f"device.driver == '{DRIVER}' && {is_kind}"
            if kind == "channel":
                rule += f" && device.attributes['{DRIVER}'].id == 0"
            spec = {"selectors": [{"cel": {"expression": rule}}]}
            await self._create(CLAIMS, "deviceclasses", {"metadata": {"name": name}, "spec": spec})
        followed = (
            (self._domains, domains),
            (self._pods, path_of("v1", "pods")),
            (self._nodes, path_of("v1", "nodes")),
        )
        for each in followed:
            self.run(self._follow(*each))
        self.run(self._settle())

    async def publish(self, node: str) -> None:
        """The plugin of a node tells its devices."""
        devices = [
            {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}
            for kind in ("channel", "daemon")
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        body = {"metadata": {"name": f"{node}-{DRIVER}"}, "spec": spec}
        await self._create(CLAIMS, "resourceslices", body)

    async def prepare(self, pod: Json) -> None:
        """The kubelet is about to start a pod: done when its channel is ready, if it has one."""
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        domain = await self._domain_of(pod)
        if domain is None:
            return
        found = self._domains.get(domain)
        home = None if found is None else found["metadata"]["namespace"]
        if home != pod["metadata"]["namespace"]:  # the plugin asks again and again, in vain
            await asyncio.Event().wait()
        while not await self._label(node, domain):
            await asyncio.sleep(LOOK_S)
        self._channels[uid] = _Channel(node, domain)
        while not self._is_ready(node, domain):
            await asyncio.sleep(LOOK_S)

    async def _domain_of(self, pod: Json) -> str | None:
        """The domain of the channel that a pod's claims were given; of a claim that is not allocated, none."""
        metadata = pod["metadata"]
        for told in pod["status"].get("resourceClaimStatuses") or ():
            path = path_of(
                CLAIMS, "resourceclaims", metadata["namespace"], told["resourceClaimName"]
            )
            claim = (await self.client.insist("GET", path)).content
            devices = (claim.get("status", {}).get("allocation") or {}).get("devices") or {}
            for each in devices.get("config") or ():
                parameters = (each.get("opaque") or {}).get("parameters") or {}
                if parameters.get("kind") == "ComputeDomainChannelConfig":
                    domain: str = parameters["domainID"]
                    return domain
        return None

    def _is_ready(self, node: str, domain: str) -> bool:
        return any(
            pod["spec"].get("nodeName") == node and pod["status"].get("phase") == "Running"
            for pod in self._daemons_of(domain)
        )

    def _daemons_of(self, domain: str) -> list[Json]:
        """The daemons of a domain, as they are or are to be."""
        pods = tuple(self._pods.values())
        return [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(LABEL) == domain]

    async def _follow(self, known: dict[str, Json], path: str) -> None:
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
            for domain in tuple(self._domains.values()):
                await (self._end if "deletionTimestamp" in domain["metadata"] else self._begin)(
                    domain
                )
            for uid, channel in tuple(self._channels.items()):
                pod = self._pods.get(uid)
                if pod is None or pod["status"].get("phase") in ENDED:
                    del self._channels[uid]
                    await self._unlabel(channel)
            for node in tuple(self._nodes.values()):
                await self._bring_daemon(node)
            await self._take_daemons_away()

    # The controller

    async def _begin(self, domain: Json) -> None:
        """A finalizer, and a template of claims."""
        metadata = domain["metadata"]
        if LABEL in (metadata.get("finalizers") or ()):
            return
        finalizers = [*(metadata.get("finalizers") or ()), LABEL]
        await self._patch(self._path(domain), {"metadata": {"finalizers": finalizers}})
        parameters = {
            "apiVersion": f"{GROUP}/v1beta1",
            "kind": "ComputeDomainChannelConfig",
            "domainID": metadata["uid"],
        }
        config = [{"requests": ["channel"], "opaque": {"driver": DRIVER, "parameters": parameters}}]
        asked = [{"name": "channel", "exactly": {"deviceClassName": CHANNELS}}]
        name = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
        body = {
            "metadata": {"name": name, "finalizers": [LABEL], "labels": {LABEL: metadata["uid"]}},
            "spec": {"spec": {"devices": {"requests": asked, "config": config}}},
        }
        await self._create(CLAIMS, "resourceclaimtemplates", body, metadata["namespace"])

    async def _end(self, domain: Json) -> None:
        """The template goes, then the finalizers."""
        name = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
        home = domain["metadata"]["namespace"]
        path = path_of(CLAIMS, "resourceclaimtemplates", home, name)
        await self.client.insist("DELETE", path)
        for each in (path, self._path(domain)):
            await self._patch(each, {"metadata": {"finalizers": None}})

    def _path(self, domain: Json) -> str:
        metadata = domain["metadata"]
        version = f"{GROUP}/{self.version}"
        return path_of(version, "computedomains", metadata["namespace"], metadata["name"])

    # The plugin, and the DaemonSet with its scheduler

    async def _label(self, node: str, domain: str) -> bool:
        """Whether a node is of a domain now; one that is of another is not."""
        path = path_of("v1", "nodes", name=node)
        there = (await self.client.insist("GET", path)).content["metadata"]
        told = (there.get("labels") or {}).get(LABEL)
        if told is None:
            version = {"resourceVersion": there["resourceVersion"]}
            return await self._patch(path, {"metadata": {**version, "labels": {LABEL: domain}}})
        return bool(told == domain)

    async def _unlabel(self, channel: _Channel) -> None:
        path = path_of("v1", "nodes", name=channel.node)
        reply = await self.client.insist("GET", path)
        if reply.code == 200 and reply.content["metadata"]["labels"].get(LABEL) == channel.domain:
            await self._patch(path, {"metadata": {"labels": {LABEL: None}}})

    async def _bring_daemon(self, node: Json) -> None:
        name, domain = node["metadata"]["name"], (node["metadata"].get("labels") or {}).get(LABEL)
        if domain is None or any(
            pod["metadata"]["name"].endswith(f".{name}") for pod in self._daemons_of(domain)
        ):
            return
        called = f"daemon-{domain[:8]}.{name}"
        asked = [{"name": "daemon", "exactly": {"deviceClassName": DAEMONS}}]
        claim = {"metadata": {"name": called}, "spec": {"devices": {"requests": asked}}}
        await self._create(CLAIMS, "resourceclaims", claim, HOME)
        made = await self._create("v1", "pods", _daemon(called, name, domain), HOME)
        if made is not None:
            self._pods[made["metadata"]["uid"]] = made
        if made is not None and self.has_scheduler:
            await self._schedule(called, name, made["metadata"]["uid"])

    async def _schedule(self, called: str, node: str, uid: str) -> None:
        """What a scheduler does for a daemon."""
        result = {"request": "daemon", "driver": DRIVER, "pool": node, "device": "daemon-0"}
        user = {"resource": "pods", "name": called, "uid": uid}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
        path = path_of(CLAIMS, "resourceclaims", HOME, called, "status")
        await self._patch(path, {"status": status})
        binding = {"metadata": {"name": called}, "target": {"kind": "Node", "name": node}}
        await self.client.insist("POST", path_of("v1", "pods", HOME, called, "binding"), binding)

    async def _take_daemons_away(self) -> None:
        """Those whose node has their label no more."""
        labels = {
            node["metadata"]["name"]: (node["metadata"].get("labels") or {}).get(LABEL)
            for node in self._nodes.values()
        }
        for pod in tuple(self._pods.values()):
            domain = (pod["metadata"].get("labels") or {}).get(LABEL)
            called = pod["metadata"]["name"]
            if domain is None or labels.get(called.partition(".")[2]) == domain:
                continue
            for version, plural in (("v1", "pods"), (CLAIMS, "resourceclaims")):
                await self.client.insist("DELETE", path_of(version, plural, HOME, called))

    async def _create(self, version: str, plural: str, body: Json, home: str = "") -> Json | None:
        """Create an object; None where it is there already."""
        reply = await self.client.insist("POST", path_of(version, plural, home), body)
        assert reply.code in (201, 409), reply
        return reply.content if reply.code == 201 else None

    async def _patch(self, path: str, body: Any) -> bool:
        return (await self.client.insist("PATCH", path, body, MERGE)).code == 200


def _daemon(called: str, node: str, domain: str) -> Json:
    """A pod of the DaemonSet of a domain: the set's controller pins each to its node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {
        "metadata": {"name": called, "labels": {LABEL: domain}},
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeSelector": {LABEL: domain},
            "affinity": affinity,
            "containers": [{"name": "compute-domain-daemon", "image": "nvidia-imex"}],
            "resourceClaims": [{"name": "daemon", "resourceClaimName": called}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
