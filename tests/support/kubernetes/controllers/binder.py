"""The controller of volumes, as far as schedulers meet it, on any API server: it binds what they have brought together.

By kubernetes' pkg/controller/volume/persistentvolume: a volume that is for nobody becomes Available; of one that names
a claim the claim gets the volume's name and the annotation `pv.kubernetes.io/bind-completed`, and both are Bound.
"""

from support.kubernetes.client import MERGE, Client, path_of
from support.kubernetes.controllers.follower import Follower
from support.kubernetes.server.statuses import Json

COMPLETED = "pv.kubernetes.io/bind-completed"


class VolumeBinder(Follower):
    """From the beginning of a block to its end. slow_claims: these are not bound, for as long as they are here."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.slow_claims: set[str] = set()

    async def begin(self) -> None:
        """Follow what it acts upon."""
        self.run(self._follow())

    async def _follow(self) -> None:
        async for kind, volume in self.client.follow(path_of("v1", "persistentvolumes"), {}):
            if kind != "DELETED":
                await self._settle(volume)

    async def _settle(self, volume: Json) -> None:
        ref, phase = volume["spec"].get("claimRef"), (volume.get("status") or {}).get("phase")
        if ref is None and phase != "Available":
            await self._tell(volume, "Available")
        elif ref is not None and phase != "Bound" and ref["name"] not in self.slow_claims:
            await self._bind(volume, ref)

    async def _bind(self, volume: Json, ref: Json) -> None:
        path = path_of("v1", "persistentvolumeclaims", ref["namespace"], ref["name"])
        claim = await self.client.insist("GET", path)
        if claim.code != 200 or ref.get("uid", "") not in ("", claim.content["metadata"]["uid"]):
            return
        done = {"metadata": {"annotations": {COMPLETED: "yes"}}}
        name = {"spec": {"volumeName": volume["metadata"]["name"]}}
        await self.client.insist("PATCH", path, {**done, **name}, MERGE)
        await self.client.insist("PATCH", f"{path}/status", {"status": {"phase": "Bound"}}, MERGE)
        await self._tell(volume, "Bound")

    async def _tell(self, volume: Json, phase: str) -> None:
        path = path_of("v1", "persistentvolumes", name=volume["metadata"]["name"], part="status")
        await self.client.insist("PATCH", path, {"status": {"phase": phase}}, MERGE)
