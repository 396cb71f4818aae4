"""A kubelet that runs pods without running anything, for any number of nodes, on any API server.

    async with Client(server.url) as client, Kubelet(client) as kubelet:
        await kubelet.register("n0", {"cpu": "8"})
        ...
        await kubelet.exit("default", "worker-0", code=1)

A pod that is bound to a node becomes Running, ends as its annotations or a test say, and is taken away when it was told
to go and its grace is over, sooner if it stops sooner. One that has no room there is refused (node_room.py); one whose
claims are not reserved for it does not start until they are. processes.py has one that runs them. What an annotation
may say:

    kubelet.gantree/starts-s   after how long it runs (0)
    kubelet.gantree/runs-s     how long it runs; without it until a test says so
    kubelet.gantree/exit-code  with what it exits then (0)
    kubelet.gantree/stops-s    how long it takes to stop when told to (0); its grace ends it in any case
    kubelet.gantree/refused    any text: the kubelet refuses it (UnexpectedAdmissionError)
    kubelet.gantree/unready    any text: its probes do not succeed until a test says so (answer)
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from support.kubernetes.client import MERGE, STRATEGIC, Client, path_of
from support.kubernetes.controllers.follower import Follower
from support.kubernetes.controllers.node_room import Refused, refusal
from support.kubernetes.server.statuses import Json

PREFIX = "kubelet.gantree/"
INIT = "gantree-check"
"""The init container that takes time; others end at once."""
ENDED = frozenset({"Succeeded", "Failed"})
KILLED = 143
FOUND, CHANGED = 200, 409
HEARS_WITHIN_S = 300.0
PREPARES_AGAIN_S = 0.05
REFUSED = "UnexpectedAdmissionError"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


@dataclass(slots=True)
class Sandbox:
    """A pod as its kubelet has it. exited is set when a test ends it, deleted when it was told to go."""

    pod: Json
    exited: "asyncio.Future[int]"
    deleted: asyncio.Event = field(default_factory=asyncio.Event)
    is_taken: bool = False
    """Whether it was not refused, and has not ended."""
    restarts: int = 0
    is_ready: bool = True
    """Whether its readiness probes succeed."""
    has_started: bool = True
    """Whether its startup probe has succeeded once."""
    ip: str = ""
    task: "asyncio.Task[None] | None" = None

    @property
    def node(self) -> str:
        """Where it is."""
        name: str = self.pod["spec"]["nodeName"]
        return name

    def says(self, name: str, otherwise: str = "") -> str:
        """An annotation of the pod."""
        told: str = (self.pod["metadata"].get("annotations") or {}).get(PREFIX + name, otherwise)
        return told


class Kubelet(Follower):
    """All kubelets of a cluster. frozen nodes do nothing and say nothing until they are thawed."""

    network = "10"
    """How the addresses of pods begin."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.prepare: Callable[[Json], Coroutine[Any, Any, None]] | None = None
        """What drivers do for the claims of a pod before it starts, if there are any."""
        self.initializing: dict[str, asyncio.Future[int]] = {}
        """Pods, by name, whose init container gantree-check runs: a test says how it ends."""
        self._sandboxes: dict[str, Sandbox] = {}
        self._numbers: Iterator[int] = count(1)
        self._refusals = 0
        self._thawed: dict[str, asyncio.Event] = {}

    async def begin(self) -> None:
        """Follow what it acts upon."""
        self.run(self._follow())

    # What a test says

    async def register(
        self, name: str, capacity: dict[str, str], labels: dict[str, str] | None = None
    ) -> None:
        """A node joins and is ready, upon which the node lifecycle controller takes its first taint away."""
        status = {"capacity": capacity, "conditions": [_ready("True")]}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
        await self.client.insist(
            "POST", path_of("v1", "nodes"), {"metadata": metadata, "status": status}
        )
        await self._taint(name, None)

    async def allocate(self, node: str, amounts: dict[str, str]) -> None:
        """Device plugins of a node offer so much; its capacity stays."""
        path = f"{path_of('v1', 'nodes', name=node)}/status"
        await self.client.insist("PATCH", path, {"status": {"allocatable": amounts}}, STRATEGIC)

    async def tell_ready(self, node: str, status: str) -> None:
        """A node's condition becomes True, False or Unknown; taints follow, as of the node lifecycle controller."""
        path = path_of("v1", "nodes", name=node)
        body = {"status": {"conditions": [_ready(status)]}}
        await self.client.insist("PATCH", f"{path}/status", body, STRATEGIC)
        key = {"False": NOT_READY, "Unknown": UNREACHABLE}.get(status)
        await self._taint(node, key)

    async def _taint(self, node: str, key: str | None) -> None:
        """The taints that say how a node is become those of a key, or none."""
        path, effects = path_of("v1", "nodes", name=node), ("NoSchedule", "NoExecute")
        own = [{"key": key, "effect": effect} for effect in effects] if key else []
        while True:
            told = (await self.client.insist("GET", path)).content
            kept = told["spec"].get("taints") or ()
            rest = [each for each in kept if each["key"] not in (NOT_READY, UNREACHABLE)]
            version = {"resourceVersion": told["metadata"]["resourceVersion"]}
            body = {"metadata": version, "spec": {"taints": [*rest, *own] or None}}
            if (await self.client.insist("PATCH", path, body, MERGE)).code != CHANGED:
                return

    async def exit(self, namespace: str, name: str, code: int = 0) -> None:
        """A pod's container exits. Waits for a pod that was bound, but of which its kubelet has not heard yet."""
        async with asyncio.timeout(HEARS_WITHIN_S):
            while not (found := self._sandboxes_of(namespace, name)):
                await asyncio.sleep(0.01)
        for each in found:
            if not each.exited.done():
                each.exited.set_result(code)

    async def answer(self, namespace: str, name: str, *, is_ready: bool) -> None:
        """The probes of a pod that runs succeed from now on, or do not."""
        for each in self._sandboxes_of(namespace, name):
            await self.probed(each, is_ready=is_ready)

    def _sandboxes_of(self, namespace: str, name: str) -> list[Sandbox]:
        """Those of all pods that have had a name."""
        return [
            each
            for each in self._sandboxes.values()
            if (each.pod["metadata"]["namespace"], each.pod["metadata"]["name"])
            == (namespace, name)
        ]

    def refuse_next(self, pods: int = 1) -> None:
        """Refuse the next pods that are bound to any node."""
        self._refusals += pods

    def freeze(self, node: str) -> None:
        """Do and say nothing on a node."""
        self._thawed[node] = asyncio.Event()

    def thaw(self, node: str) -> None:
        """Go on where it stopped."""
        self._thawed.pop(node, asyncio.Event()).set()

    # What it does

    async def probed(self, sandbox: Sandbox, *, is_ready: bool) -> None:
        """The probes of a pod that runs have other answers than before."""
        sandbox.is_ready = is_ready
        sandbox.has_started = sandbox.has_started or is_ready
        await self._tell(sandbox, _running(sandbox))

    def begin_processes(self, sandbox: Sandbox) -> None:
        """The containers of a pod begin; here none has processes."""

    async def end_processes(self, sandbox: Sandbox, grace_s: float) -> None:
        """They end, within their grace."""
        await asyncio.sleep(min(float(sandbox.says("stops-s", "0")), grace_s))

    async def _follow(self) -> None:
        query = {"fieldSelector": "spec.nodeName!="}
        async for kind, pod in self.client.follow(path_of("v1", "pods"), query):
            uid = pod["metadata"]["uid"]
            sandbox = self._sandboxes.get(uid)
            if kind == "DELETED":
                self._forget(uid)
            elif sandbox is None and pod["status"].get("phase") not in ENDED:
                sandbox = Sandbox(pod, asyncio.get_running_loop().create_future())
                self._sandboxes[uid] = sandbox
                sandbox.task = self.run(self._live(sandbox))
            if sandbox is not None:
                sandbox.pod = pod
                if _is_resized(pod):
                    self.run(self._tell(sandbox, {"containerStatuses": _sizes(pod)}))
                if "deletionTimestamp" in pod["metadata"]:
                    sandbox.deleted.set()

    def _forget(self, uid: str) -> None:
        sandbox = self._sandboxes.pop(uid, None)
        if sandbox and sandbox.task:
            sandbox.task.cancel()

    async def _live(self, sandbox: Sandbox) -> None:
        """The life of a pod on its node."""
        await self._awake(sandbox)
        refused = await self._refusal(sandbox)
        if refused is not None:
            message = f"Pod was rejected: {refused.message}"
            status = {"phase": "Failed", "reason": refused.reason, "message": message}
            await self._tell(sandbox, status)
            return
        await _first(sandbox.deleted.wait(), self._reserved(sandbox))
        if self.prepare is not None:
            await _first(sandbox.deleted.wait(), self.prepare(sandbox.pod))
        await _first(sandbox.deleted.wait(), asyncio.sleep(float(sandbox.says("starts-s", "0"))))
        number = next(self._numbers)
        sandbox.ip = f"{self.network}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        if not sandbox.deleted.is_set() and await self._initialized(sandbox):
            await self._run(sandbox)
        if sandbox.deleted.is_set():
            await self._stop(sandbox)

    async def _refusal(self, sandbox: Sandbox) -> Refused | None:
        """Why a pod is not taken, if so. A node that is not registered has room for everything."""
        node = await self.client.insist("GET", path_of("v1", "nodes", name=sandbox.node))
        if sandbox.says("refused") or self._takes_refusal():
            why = sandbox.says("refused", "told by a test")
            return Refused(REFUSED, f"Allocate failed: {why}, which is unexpected")
        told = self._no_room(sandbox, node.content) if node.code == FOUND else None
        if told is not None:
            await self._drop_gone(sandbox.node)
            told = self._no_room(sandbox, node.content)
        sandbox.is_taken = told is None
        return told

    def _no_room(self, sandbox: Sandbox, node: Json) -> Refused | None:
        others = [each for each in self._sandboxes.values() if each.node == sandbox.node]
        return refusal(node, [each.pod for each in others if each.is_taken], sandbox.pod)

    async def _drop_gone(self, node: str) -> None:
        """Who has bound the next pod may have heard before us that another is gone."""
        query = {"fieldSelector": f"spec.nodeName={node}"}
        told = await self.client.ask("GET", path_of("v1", "pods"), query=query)
        left = {each["metadata"]["uid"] for each in told.content["items"]}
        for uid, each in self._sandboxes.items():
            each.is_taken = each.is_taken and (each.node != node or uid in left)

    async def _reserved(self, sandbox: Sandbox) -> None:
        """Until every claim of a pod is allocated and reserved for it: a kubelet tries again and again."""
        uid, namespace = sandbox.pod["metadata"]["uid"], sandbox.pod["metadata"]["namespace"]
        special = sandbox.pod["status"].get("extendedResourceClaimStatus")
        claims = [special["resourceClaimName"]] if special else []
        wanted = sandbox.pod["spec"].get("resourceClaims") or ()
        for claim in (*claims, *(_claim_of(sandbox.pod, each) for each in wanted)):
            while not await self._is_reserved(namespace, claim, uid):
                await asyncio.sleep(PREPARES_AGAIN_S)

    async def _is_reserved(self, namespace: str, claim: str, uid: str) -> bool:
        path = path_of("resource.k8s.io/v1", "resourceclaims", namespace, claim)
        found = await self.client.insist("GET", path)
        status = found.content.get("status") or {} if claim and found.code == FOUND else {}
        users = {each["uid"] for each in status.get("reservedFor") or ()}
        return bool(status.get("allocation")) and uid in users

    def _takes_refusal(self) -> bool:
        self._refusals, is_refused = max(self._refusals - 1, 0), self._refusals > 0
        return is_refused

    async def _run(self, sandbox: Sandbox) -> None:
        """Until it ends for good or is told to go."""
        while True:
            sandbox.is_ready = sandbox.has_started = not sandbox.says("unready")
            self.begin_processes(sandbox)
            await self._tell(sandbox, {"phase": "Running", **_running(sandbox)})
            runs_s = sandbox.says("runs-s")
            lasts = asyncio.sleep(float(runs_s)) if runs_s else asyncio.Event().wait()
            await _first(sandbox.deleted.wait(), asyncio.shield(sandbox.exited), lasts)
            if sandbox.deleted.is_set():
                return
            code = int(sandbox.says("exit-code", "0"))
            if sandbox.exited.done():
                code = sandbox.exited.result()
                sandbox.exited = asyncio.get_running_loop().create_future()
            await self._awake(sandbox)
            if not _restarts(sandbox.pod["spec"].get("restartPolicy"), code):
                sandbox.is_taken = False
                await self._tell(sandbox, _ended(sandbox, code))
                return
            sandbox.restarts += 1

    async def _initialized(self, sandbox: Sandbox) -> bool:
        """Whether its init container INIT has ended well, where it has one."""
        name = sandbox.pod["metadata"]["name"]
        if not any(each["name"] == INIT for each in sandbox.pod["spec"].get("initContainers", ())):
            return True
        self.initializing[name] = done = asyncio.get_running_loop().create_future()
        await _first(sandbox.deleted.wait(), asyncio.shield(done))
        self.initializing.pop(name, None)
        if not done.done() or done.result() == 0:
            return not sandbox.deleted.is_set()
        await self._tell(sandbox, {"phase": "Failed", "conditions": _conditions(False)})
        return False

    async def end_init(self, name: str, code: int) -> None:
        """The init container of a pod ends."""
        self.initializing[name].set_result(code)

    async def _stop(self, sandbox: Sandbox) -> None:
        """It stops within its grace, says how it ended and is taken away."""
        sandbox.is_taken, metadata = False, sandbox.pod["metadata"]
        grace_s = float(metadata.get("deletionGracePeriodSeconds", 0))
        await self.end_processes(sandbox, grace_s)
        await self._awake(sandbox)
        if sandbox.pod["status"].get("phase") not in ENDED:
            await self._tell(sandbox, _ended(sandbox, KILLED))
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        await self.client.insist("DELETE", self._path(sandbox), options)

    async def _awake(self, sandbox: Sandbox) -> None:
        """Wait while the node is frozen."""
        while thawed := self._thawed.get(sandbox.node):
            await thawed.wait()

    def _path(self, sandbox: Sandbox) -> str:
        metadata = sandbox.pod["metadata"]
        return path_of("v1", "pods", metadata["namespace"], metadata["name"])

    async def _tell(self, sandbox: Sandbox, status: Json) -> None:
        """Write the pod's status, of this very pod."""
        body = {"metadata": {"uid": sandbox.pod["metadata"]["uid"]}, "status": status}
        reply = await self.client.insist("PATCH", f"{self._path(sandbox)}/status", body, STRATEGIC)
        if reply.code == 200:
            sandbox.pod = reply.content


def _restarts(policy: str | None, code: int) -> bool:
    """Whether a container that exited is started again."""
    return policy in {None, "Always"} or (policy == "OnFailure" and code != 0)


def _claim_of(pod: Json, wanted: Json) -> str:
    """The name of a claim that a pod wants, "" where none was made of its template yet."""
    if wanted.get("resourceClaimName"):
        return str(wanted["resourceClaimName"])
    made = pod["status"].get("resourceClaimStatuses") or ()
    names = {each["name"]: each.get("resourceClaimName") for each in made}
    return names.get(wanted["name"]) or ""


def _ready(status: str) -> Json:
    reason = {"True": "KubeletReady", "False": "KubeletNotReady"}.get(status, "NodeStatusUnknown")
    return {"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _conditions(is_ready: bool) -> list[Json]:
    ready = "True" if is_ready else "False"
    told = {"Initialized": "True", "Ready": ready, "ContainersReady": ready}
    return [
        {"type": kind, "status": status, "lastTransitionTime": _now()}
        for kind, status in told.items()
    ]


def _running(sandbox: Sandbox) -> Json:
    return {
        "startTime": _now(),
        "podIP": sandbox.ip,
        "podIPs": [{"ip": sandbox.ip}],
        "conditions": _conditions(sandbox.is_ready),
        "containerStatuses": _containers(sandbox, {"running": {"startedAt": _now()}}, True),
    }


def _ended(sandbox: Sandbox, code: int) -> Json:
    reason = "Error" if code else "Completed"
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": _now()}}
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": _conditions(False),
        "containerStatuses": _containers(sandbox, state, False),
    }


def _containers(sandbox: Sandbox, state: Json, runs: bool) -> list[Json]:
    return [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": runs and sandbox.is_ready,
            "started": runs and sandbox.has_started,
            "restartCount": sandbox.restarts,
            "state": state,
            **(_size(each) if runs else {}),
        }
        for each in sandbox.pod["spec"]["containers"]
    ]


def _sizes(pod: Json) -> list[Json]:
    """The statuses of its containers, which run with what their spec asks: a list is written as a whole."""
    asked = {each["name"]: each for each in pod["spec"]["containers"]}
    told = pod["status"]["containerStatuses"]
    return [{**each, **_size(asked[each["name"]])} for each in told]


def _size(container: Json) -> Json:
    told = container.get("resources") or {}
    return {"resources": told, "allocatedResources": told.get("requests") or {}}


def _is_resized(pod: Json) -> bool:
    """Whether a running container is to have other resources than it has."""
    told = pod["status"].get("containerStatuses") or ()
    running = (each for each in told if "running" in each.get("state", {}) and "resources" in each)
    now = {each["name"]: each["resources"] for each in running}
    return any(
        each["name"] in now and now[each["name"]] != (each.get("resources") or {})
        for each in pod["spec"]["containers"]
    )


async def _first(*awaited: object) -> None:
    """Until the first of several is done; the others are given up."""
    tasks = [asyncio.ensure_future(each) for each in awaited]  # type: ignore[call-overload]  # coroutines and futures
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
