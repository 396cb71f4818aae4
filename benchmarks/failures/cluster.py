"""The cluster of a run: a real control plane, nodes with GPUs by device plugin or by claims, a front for gantree."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from failures.processes import Restartable, taken_over
from support.devices import GPU, gpu, request
from support.kubernetes.client import Client, path_of
from support.kubernetes.controllers.kubelet import Kubelet
from support.kubernetes.front import Front
from support.kubernetes.real import ETCD
from support.kubernetes.shared import granting

CRD = Path(__file__).parents[2] / "deploy/kubernetes/crds/gangjobs.yaml"
PLUGIN, CLAIMED, GPUS = (
    ("p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"),
    ("d0", "d1", "d2", "d3"),
    8,
)
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
RESOURCES = "resource.k8s.io/v1"
CONTROLLERS = (
    "garbage-collector-controller", "job-controller", "pod-garbage-collector-controller", "resourceclaim-controller",
    "disruption-controller", "podgroup-protection-controller",
)  # fmt: skip


@dataclass(slots=True)
class Cluster:
    """What acts on it: client asks the server itself, gantree asks the front."""

    client: Client
    kubelet: Kubelet
    front: Front
    etcd: Restartable
    apiserver: Restartable

    async def join(self, node: str) -> None:
        """A node registers."""
        amounts = {"cpu": "96", "memory": "1024Gi", "pods": "110"}
        plugin = {"nvidia.com/gpu": str(GPUS)} if node in PLUGIN else {}
        await self.kubelet.register(node, {**amounts, **plugin}, LABELS)

    async def until_ready(self) -> None:
        """Until the API server answers that it is ready; a process whose port was still in use is started again."""
        while not await self._is_ready():
            self.etcd.revive()
            self.apiserver.revive()
            await asyncio.sleep(0.2)

    async def _is_ready(self) -> bool:
        try:
            async with asyncio.timeout(5.0):
                return (await self.client.ask("GET", "/readyz")).code == 200
        except (TimeoutError, OSError, aiohttp.ClientError):
            return False


@asynccontextmanager
async def opened(place: Path, url: str, token: str) -> AsyncIterator[Cluster]:
    """The nodes have joined; what users need is defined."""
    etcd_url = (place / ETCD).read_text()
    async with (
        Client(url, token, is_checked=False) as client,
        Kubelet(client) as kubelet,
        Front(url, etcd_url) as front,
    ):
        cluster = Cluster(
            client, kubelet, front, taken_over("etcd", place), taken_over("kube-apiserver", place)
        )
        for path, body in [*granting(), *_definitions()]:
            reply = await client.insist("POST", path, body)
            assert reply.code == 201, reply
        for node in (*PLUGIN, *CLAIMED):
            await cluster.join(node)
        yield cluster


def _definitions() -> list[tuple[str, Any]]:
    crds = path_of("apiextensions.k8s.io/v1", "customresourcedefinitions")
    selector = {"cel": {"expression": f'device.driver == "{GPU}"'}}
    of_class = {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}
    devices = {"spec": {"devices": {"requests": [request("gpu", "gpu")]}}}
    template = {"metadata": {"name": "gpu"}, "spec": devices}
    return [
        (crds, yaml.safe_load(CRD.read_text())),
        (path_of(RESOURCES, "deviceclasses"), of_class),
        (path_of(RESOURCES, "resourceclaimtemplates", "default"), template),
        *((path_of(RESOURCES, "resourceslices"), _slice(node)) for node in CLAIMED),
    ]


def _slice(node: str) -> Any:
    devices = [gpu(number, f"pci0000:{number:02x}", numa=number // 4) for number in range(GPUS)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": GPU, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node}-gpus"}, "spec": spec}
