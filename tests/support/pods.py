"""A Kubernetes cluster for tests, with gantree on it: API server, kubelet, and a controller that is stepped by hand.

with PodStage(tmp_path) as stage:
    stage.nodes("n[0-3]", gpus=8)
    stage.pod("p0", gpus=8)
    stage.until(lambda: stage.phase("p0") == "Running")
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gantree.control.engine.controller import Controller
from gantree.control.nodes.checks.pod_checks import link_check_calls
from gantree.core.ledger.invariants import check
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.rbac import RBAC_RULES, RbacRule
from gantree.executors.kubernetes.apiserver.settings import KubernetesSettings
from gantree.executors.kubernetes.cluster import KubernetesCluster
from gantree.executors.kubernetes.opening import Opened
from gantree.formats.policy.reader import PRESETS
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import Cluster
from gantree.policy.rules import Policy
from gantree.text.hostlists import expand
from support.kubernetes.client import Client
from support.kubernetes.controllers.kubelet import Kubelet
from support.kubernetes.server.access import EVERYTHING, Access, Grant, User
from support.kubernetes.server.server import Settings
from support.kubernetes.server.statuses import Json
from support.kubernetes.server.thread import Api, ServerThread
from support.kubernetes.shared import SharedServer

WITHIN_S = 300.0
TOKEN = GANTREE = "gantree"
"""Who gantree is on the server, and the token that says so: it may do what its roles allow, and nothing else."""
HOME = "default"
"""The namespace that gantree runs in."""


def _with_role(settings: Settings, rules: Sequence[RbacRule]) -> Settings:
    """The same with two users, unless it has some: gantree, and whoever shows no token, who may do everything."""
    rights = tuple(
        Grant(rule.verbs, (rule.group,), (rule.resource,), (HOME,) if rule.own_namespace else ())
        for rule in rules
    )
    users = {TOKEN: User(GANTREE, rights), "": User("admin", (EVERYTHING,))}
    return replace(settings, access=settings.access or Access(users))


class PodStage:
    """The server and its kubelet last as long as the block; gantree is started by `start`, and may be stopped.

    open_server: how it comes by its server, for those tests that may use a real one. rules: what gantree may do
    on ours. open_kubelet: what runs pods.
    """

    open_kubelet: Callable[[Client], Kubelet] = Kubelet
    open_server: Callable[[Settings], ServerThread | SharedServer] = ServerThread
    rules: Sequence[RbacRule] = RBAC_RULES

    def __init__(
        self, state_dir: Path, policy: Policy = PRESETS["gantree"], settings: Settings | None = None
    ) -> None:
        self.running = type(self).open_server(_with_role(settings or Settings(), self.rules))
        self._state_dir, self._policy = state_dir, policy
        self._controller: Controller | None = None

    def __enter__(self) -> Self:
        self.running.__enter__()
        self.api = Api(self.running.url, self.running.token)
        self.running.run(self._open_kubelet())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._controller is not None:
            if kind is None:
                check(self.controller.ledger)
            self.stop()
        self.running.run(self._close_kubelet())
        self.api.http.close()
        self.running.__exit__(kind, error, trace)

    @property
    def report(self) -> Json:
        """What a dry run that was stopped has reported."""
        return self._opened.report

    @property
    def controller(self) -> Controller:
        """The controller, once it was started."""
        assert self._controller is not None, "not started"
        return self._controller

    def start(self, **told: Any) -> None:
        """Start gantree, or start it again. told: fields of its settings."""
        connection = self.connection(TOKEN)
        self._opened = opened = Opened(KubernetesSettings(connection, **told), lambda: None)

        def make(described: Cluster, emit: Any, clock: Any) -> KubernetesCluster:
            calls = link_check_calls(
                told.get("check_image", ""),
                lambda: self.controller.ledger,
                lambda: self.controller.policy,
                clock,
            )
            return opened.cluster(emit, clock, lambda: self.controller.decided, calls)

        journal = SqliteJournal(self._state_dir)
        self._controller = Controller(journal, self._policy, make, site=opened.site, may_grow=True)
        self._controller.recover()

    def stop(self) -> None:
        """End gantree in order; pods go on."""
        self.controller.close()
        self._controller = None

    def kill(self) -> None:
        """End gantree at once: what it was about to write or to record is lost; pods go on."""
        self._opened._api.close()
        self.controller.journal.close()
        self._controller = None

    def until(self, done: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        """Step gantree until something is so."""
        deadline = time.monotonic() + within_s
        while not done():
            assert time.monotonic() < deadline, self.told()
            if not self.controller.step():
                time.sleep(0.02)

    def work_for(self, seconds: float) -> None:
        """Step gantree for so long: for what must not happen meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.controller.step():
                time.sleep(0.02)

    def told(self) -> str:
        """How things stand, for a test that failed."""
        pods = {
            name: (pod["status"].get("phase"), pod["spec"].get("nodeName"), _why_waiting(pod))
            for name, pod in self.pods().items()
        }
        jobs = {
            job: (str(state.phase), state.reason)
            for job, state in self.controller.ledger.jobs.items()
        }
        return f"pods {pods}; jobs {jobs}; rejected {self.controller.ledger.rejected}"

    # ----- what a user does

    def nodes(
        self, names: str, gpus: int = 8, product: str = "NVIDIA-H100-80GB-HBM3", **labels: str
    ) -> None:
        """Nodes join. Labels whose keys have dots are given with underscores for them, and two for a slash."""
        told = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
        if gpus:
            told |= {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "81559"}
        capacity = {"cpu": "96", "memory": "1024Gi", "pods": "110"}
        if gpus:
            capacity["nvidia.com/gpu"] = str(gpus)
        for name in expand(names):
            self.running.run(self.kubelet.register(name, capacity, told))

    def allocatable(self, node: str, amounts: dict[str, str]) -> None:
        """A node's kubelet lists these resources, as its device plugins tell it."""
        self.running.run(self.kubelet.allocate(node, amounts))

    def pod(self, name: str, gpus: int = 0, **told: Any) -> Json:
        """Create a pod for gantree. told: labels, annotations, owners and spec, as in a manifest."""
        requests = {"cpu": "1", "memory": "1Gi"}
        if gpus:
            requests["nvidia.com/gpu"] = str(gpus)
        container = {
            "name": "main",
            "image": "train",
            "resources": {"requests": requests, "limits": requests},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": told.get("labels", {}),
                "annotations": told.get("annotations", {}),
                "ownerReferences": told.get("owners", []),
            },
            "spec": {
                "schedulerName": "gantree",
                "restartPolicy": "Never",
                "containers": [container],
                **told.get("spec", {}),
            },
        }
        answer = self.api.post("/api/v1/namespaces/default/pods", body)
        assert answer.status_code == 201, answer.text
        made: Json = answer.json()
        return made

    def exit(self, name: str, code: int = 0) -> None:
        """A pod's container exits."""
        self.running.run(self.kubelet.exit("default", name, code))

    # ----- what is there

    def pods(self) -> dict[str, Json]:
        """All pods by name."""
        found = self.api.get("/api/v1/pods").json()["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def phase(self, name: str) -> str:
        """The phase of a pod, "" where there is none."""
        pod = self.pods().get(name)
        return "" if pod is None else str(pod["status"].get("phase"))

    def node_of(self, name: str) -> str:
        """The node of a pod, "" while it has none."""
        return str(self.pods()[name]["spec"].get("nodeName", ""))

    def bound(self, *names: str) -> bool:
        """Whether all these pods have a node."""
        pods = self.pods()
        return all(name in pods and pods[name]["spec"].get("nodeName") for name in names)

    def connection(self, token: str) -> Connection:
        """How gantree gets to the server as whoever shows a token."""
        return Connection(self.running.url, ask_token=lambda: (token, float("inf")), verify=False)

    def client(self) -> Client:
        """A client that may do everything, for what lives beside the server."""
        return Client(self.running.url, self.running.token, is_checked=False)

    async def _open_kubelet(self) -> None:
        self._client = self.client()
        await self._client.__aenter__()
        self.kubelet = type(self).open_kubelet(self._client)
        await self.kubelet.__aenter__()

    async def _close_kubelet(self) -> None:
        await self.kubelet.__aexit__(None, None, None)
        await self._client.__aexit__(None, None, None)


def _why_waiting(pod: Json) -> str:
    """What the condition PodScheduled of a pod says while it is not true."""
    conditions = pod["status"].get("conditions") or []
    return next((each.get("message", "") for each in conditions if each["status"] == "False"), "")
