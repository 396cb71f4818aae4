"""A provisioner of volumes on any API server: it makes a volume for each claim that is to have one.

By the documentation of storage classes: with Immediate at once, with WaitForFirstConsumer once a scheduler has written
a node into the claim's annotation `volume.kubernetes.io/selected-node`. The volume can be had on nodes of that node's
zone, or where it has none on that node alone. Where it cannot make one it takes the annotation back, so that the
scheduler chooses again (external-provisioner does so when a topology is out of room).
"""

from support.kubernetes.client import MERGE, Client, path_of
from support.kubernetes.controllers.follower import Follower
from support.kubernetes.server.statuses import Json

SELECTED_NODE = "volume.kubernetes.io/selected-node"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
NAME = "disk.example.com"
"""The provisioner of the classes that are its."""


class Provisioner(Follower):
    """From the beginning of a block to its end.

    full_nodes: no volume can be made for these. slow_claims: nothing comes of these, for as long as they are here.
    """

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.full_nodes: set[str] = set()
        self.slow_claims: set[str] = set()

    async def begin(self) -> None:
        """Follow what it acts upon."""
        self.run(self._follow())

    async def _follow(self) -> None:
        async for kind, claim in self.client.follow(path_of("v1", "persistentvolumeclaims"), {}):
            if kind != "DELETED" and not claim["spec"].get("volumeName"):
                await self._settle(claim)

    async def _settle(self, claim: Json) -> None:
        """Make the volume of a claim, if it is time for it."""
        name = claim["spec"].get("storageClassName", "")
        path = path_of("storage.k8s.io/v1", "storageclasses", name=name)
        found = await self.client.insist("GET", path)
        if claim["metadata"]["name"] in self.slow_claims:
            return
        if found.code != 200 or found.content.get("provisioner") != NAME:
            return
        node = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if node in self.full_nodes:
            await self._change(claim, {"metadata": {"annotations": {SELECTED_NODE: None}}})
        elif node or found.content.get("volumeBindingMode", "Immediate") == "Immediate":
            await self._make(claim, node)

    async def _make(self, claim: Json, node: str | None) -> None:
        metadata = claim["metadata"]
        name = f"pvc-{metadata['uid']}"
        spec: Json = {
            "claimRef": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "capacity": claim["spec"]["resources"]["requests"],
            "accessModes": claim["spec"]["accessModes"],
            "csi": {"driver": NAME, "volumeHandle": name},
        }
        if node is not None:
            spec["nodeAffinity"] = {"required": await self._nodes_like(node)}
        body = {"metadata": {"name": name}, "spec": spec}
        await self.client.insist("POST", path_of("v1", "persistentvolumes"), body)
        await self._change(claim, {"spec": {"volumeName": name}})
        await self._change(claim, {"status": {"phase": "Bound"}}, "status")

    async def _nodes_like(self, node: str) -> Json:
        """A node selector for a node's zone, or for the node alone."""
        found = await self.client.insist("GET", path_of("v1", "nodes", name=node))
        labels = found.content["metadata"].get("labels") or {}
        key = ZONE if ZONE in labels else HOSTNAME
        expression = {"key": key, "operator": "In", "values": [labels.get(key, node)]}
        return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}

    async def _change(self, claim: Json, body: Json, part: str = "") -> None:
        metadata = claim["metadata"]
        kind = "persistentvolumeclaims"
        path = path_of("v1", kind, metadata["namespace"], metadata["name"], part)
        await self.client.insist("PATCH", path, body, MERGE)
