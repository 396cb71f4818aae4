"""A Kubernetes cluster for tests of racks with NVLink across their nodes, and NVIDIA's driver of ComputeDomains on it.

with RackStage(tmp_path) as stage:
    stage.rack("a", trays=2)
    stage.compute_domain("cd", template="channel")
    stage.start()
    stage.claimant("p0", "channel", gpus=4)
"""

from types import TracebackType
from typing import Self

from support.devices import DeviceStage
from support.kubernetes.controllers.compute_domains import GROUP, LABEL, ComputeDomainDriver
from support.kubernetes.server.statuses import Json

CLIQUE = "nvidia.com/gpu.clique"


class RackStage(DeviceStage):
    """With the driver beside the controllers and the kubelet. version is that of ComputeDomains; "" for no driver.

    has_other: another scheduler places the driver's daemons.
    """

    version, has_other = "v1beta1", True

    def __enter__(self) -> Self:
        super().__enter__()
        if self.version:
            self.running.run(self._open_driver())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.version:
            self.running.run(self._close_driver())
        super().__exit__(kind, error, trace)

    def rack(self, name: str, trays: int, gpus: int = 4) -> None:
        """Nodes of one NVLink domain join: a0, a1, ... of rack a."""
        for number in range(trays):
            self.nodes(f"{name}{number}", gpus, "NVIDIA-GB200", **{CLIQUE: f"{name}.0"})
            if self.version:
                self.running.run(self._driver.publish(f"{name}{number}"))

    def compute_domain(self, name: str, template: str) -> str:
        """A user makes a ComputeDomain; gives its uid."""
        channel = {"resourceClaimTemplate": {"name": template}}
        kind = {"apiVersion": f"{GROUP}/{self.version}", "kind": "ComputeDomain"}
        spec = {"channel": channel, "numNodes": 0}
        body = {**kind, "metadata": {"name": name}, "spec": spec}
        answer = self.api.post(self._path, body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["metadata"]["uid"])

    def compute_domains(self) -> dict[str, Json]:
        """All ComputeDomains by name."""
        found = self.api.get(self._path).json()["items"]
        return {each["metadata"]["name"]: each for each in found}

    def domain_of(self, node: str) -> str | None:
        """The ComputeDomain that a node is of, by its label."""
        told = self.api.get(f"/api/v1/nodes/{node}").json()["metadata"]["labels"].get(LABEL)
        return None if told is None else str(told)

    @property
    def _path(self) -> str:
        return f"/apis/{GROUP}/{self.version}/namespaces/default/computedomains"

    async def _open_driver(self) -> None:
        self._driver_client = self.client()
        await self._driver_client.__aenter__()
        self._driver = ComputeDomainDriver(self._driver_client, self.version, self.has_other)
        await self._driver.__aenter__()
        self.kubelet.prepare = self._driver.prepare

    async def _close_driver(self) -> None:
        await self._driver.__aexit__(None, None, None)
        await self._driver_client.__aexit__(None, None, None)
