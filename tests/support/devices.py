"""A Kubernetes cluster for tests whose devices are claimed: slices, classes, claims, and who makes claims of templates.

with DeviceStage(tmp_path) as stage:
    stage.classes(gpu="gpu.example.com")
    stage.slice("n0", "gpu.example.com", [gpu(0), gpu(1)])
    stage.template("one", request("gpus", "gpu"))
    stage.claimant("p0", "one")
"""

from types import TracebackType
from typing import Any, Self

from support.kubernetes.controllers.controllers import Controllers
from support.kubernetes.server.statuses import Json
from support.kubernetes.server.thread import ServerThread
from support.pods import PodStage
from support.yaml_text import read_yaml_documents

API = "/apis/resource.k8s.io/v1"
GPU, NIC = "gpu.example.com", "nic.example.com"
DeviceKey = tuple[str, str, str]


def device(name: str, root: str = "", numa: int = 0, **told: Any) -> Json:
    """A device at a PCIe root. told: type, and other attributes."""
    attributes: Json = {key: _attribute(value) for key, value in told.items()}
    attributes["numa"] = {"int": numa}
    if root:
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": root}
    return {"name": name, "attributes": attributes}


def gpu(number: int, root: str = "", memory: str = "80Gi", **told: Any) -> Json:
    """A whole GPU."""
    name = told.pop("productName", "NVIDIA H100 80GB HBM3")
    made = device(f"gpu-{number}", root, type="gpu", index=number, productName=name, **told)
    return {**made, "capacity": {"memory": {"value": memory}}}


def nic(number: int, root: str = "") -> Json:
    """A network card."""
    return device(f"nic-{number}", root, type="nic")


def partitions(gpus: int) -> list[Json]:
    """GPUs of two slices each: whole ones, and halves of each that draw on the same counters."""
    made: list[Json] = []
    for number in range(gpus):
        uses = [{"counterSet": f"set-{number}", "counters": {"slices": {"value": "2"}}}]
        half = [{"counterSet": f"set-{number}", "counters": {"slices": {"value": "1"}}}]
        made.append({**gpu(number), "consumesCounters": uses})
        for part in range(2):
            name = f"gpu-{number}-half-{part}"
            made.append({**device(name, type="mig"), "consumesCounters": half})
    return made


def _attribute(value: object) -> Json:
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": str(value)}


def request(name: str, of_class: str, count: int = 1, **told: Any) -> Json:
    """A request for devices of a class. told: selectors as CEL texts, and other fields."""
    selectors = [{"cel": {"expression": each}} for each in told.pop("selectors", ())]
    mode = {"allocationMode": "ExactCount", "count": count}
    exactly = {"deviceClassName": of_class, **mode, **told}
    return {"name": name, "exactly": {**exactly, **({"selectors": selectors} if selectors else {})}}


class DeviceStage(PodStage):
    """With the controllers of claims beside the kubelet; a real server has its own."""

    def __enter__(self) -> Self:
        super().__enter__()
        if isinstance(self.running, ServerThread):
            self.running.run(self._open_controllers())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(self.running, ServerThread):
            self.running.run(self._close_controllers())
        super().__exit__(kind, error, trace)

    # ----- what administrators and drivers do

    def classes(self, **driver_of_class: str) -> None:
        """Device classes, each of all devices of a driver."""
        for name, driver in driver_of_class.items():
            self.device_class(name, f'device.driver == "{driver}"')

    def device_class(self, name: str, *expressions: str, **spec: Any) -> None:
        """A class of devices that some expressions mean."""
        selectors = [{"cel": {"expression": each}} for each in expressions]
        self._create("deviceclasses", name, {"selectors": selectors, **spec}, "")

    def slice(self, node: str, driver: str, devices: list[Json], **spec: Any) -> None:
        """All devices of a driver on a node, as one pool; with nodeName None in `spec`, of several nodes."""
        name = spec.pop("name", driver)
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec |= {"devices": devices} if devices else {}
        told = {"driver": driver, "nodeName": node, "pool": pool, **spec}
        told = {field: value for field, value in told.items() if value is not None}
        self._create("resourceslices", f"{node}-{name}", told, "")

    def claimed_nodes(self, *names: str, gpus: int = 8, nics: int = 0) -> None:
        """Nodes whose GPUs no device plugin counts, one of each kind on a PCIe root."""
        for name in names:
            self.nodes(name, gpus=0)
            self.slice(name, GPU, [gpu(n, f"pci0000:{n:02x}", numa=n // 4) for n in range(gpus)])
            if nics:
                self.slice(name, NIC, [nic(n, f"pci0000:{n:02x}") for n in range(nics)])

    def partitioned(self, node: str, gpus: int) -> None:
        """GPUs of a node of the class whole, or each as two of the class half, and these classes."""
        for kind, of_type in (("whole", "gpu"), ("half", "mig")):
            of_kind = f'device.attributes["{GPU}"].type == "{of_type}"'
            self.device_class(kind, f'device.driver == "{GPU}" && {of_kind}')
        sets = [{"name": f"set-{n}", "counters": {"slices": {"value": "2"}}} for n in range(gpus)]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
        self.slice(node, GPU, [], sharedCounters=sets, pool=pool, name="counters")
        self.slice(node, GPU, partitions(gpus), pool=pool)

    # ----- what a user does

    def template(self, name: str, *requests: Json, constraints: Any = (), **told: Any) -> None:
        """A template of claims."""
        devices = {"requests": list(requests), "constraints": list(constraints), **told}
        self._create("resourceclaimtemplates", name, {"spec": {"devices": devices}})

    def claim(self, name: str, *requests: Json, constraints: Any = ()) -> None:
        """A claim."""
        devices = {"requests": list(requests), "constraints": list(constraints)}
        self._create("resourceclaims", name, {"devices": devices})

    def claimant(self, name: str, *templates: str, claims: Any = (), **told: Any) -> Json:
        """A pod with a claim of each of these templates, and with these claims."""
        wanted = [
            {"name": f"t{n}", "resourceClaimTemplateName": t} for n, t in enumerate(templates)
        ]
        wanted += [{"name": f"c{n}", "resourceClaimName": c} for n, c in enumerate(claims)]
        spec = {"resourceClaims": wanted, **told.pop("spec", {})}
        return self.pod(name, spec=spec, **told)

    def apply(self, manifests: str) -> None:
        """Create all objects of a YAML text, as kubectl does."""
        for body in read_yaml_documents(manifests):
            version, kind = body["apiVersion"], body["kind"]
            home = body["metadata"].get("namespace")
            group = f"/api/{version}" if version == "v1" else f"/apis/{version}"
            where = f"/namespaces/{home}" if home else ""
            plural = kind.lower() + ("es" if kind.endswith("s") else "s")
            answer = self.api.post(f"{group}{where}/{plural}", body)
            assert answer.status_code == 201, answer.text

    # ----- what is there

    def claims(self) -> dict[str, Json]:
        """All claims by name."""
        found = self.api.get(f"{API}/resourceclaims").json()["items"]
        return {claim["metadata"]["name"]: claim for claim in found}

    def devices_of(self, pod: str) -> list[DeviceKey]:
        """The devices that claims have which are reserved for a pod."""
        return [
            (each["driver"], each["pool"], each["device"])
            for claim in self.claims().values()
            if pod in [each["name"] for each in claim["status"].get("reservedFor") or ()]
            for each in claim["status"]["allocation"]["devices"]["results"]
        ]

    def held(self) -> list[DeviceKey]:
        """All devices that claims have, as often as they have them."""
        return [
            (each["driver"], each["pool"], each["device"])
            for claim in self.claims().values()
            for each in (claim["status"].get("allocation") or {"devices": {"results": []}})[
                "devices"
            ]["results"]
        ]

    def _create(self, plural: str, name: str, spec: Json, namespace: str = "default") -> None:
        home = f"/namespaces/{namespace}" if namespace else ""
        body = {"metadata": {"name": name}, "spec": spec}
        answer = self.api.post(f"{API}{home}/{plural}", body)
        assert answer.status_code == 201, answer.text

    async def _open_controllers(self) -> None:
        self._controllers_client = self.client()
        await self._controllers_client.__aenter__()
        self._controllers = Controllers(self._controllers_client, "v1alpha2")
        await self._controllers.__aenter__()

    async def _close_controllers(self) -> None:
        await self._controllers.__aexit__(None, None, None)
        await self._controllers_client.__aexit__(None, None, None)
