"""A kubelet whose pods are processes of this machine, and whose probes ask them over HTTP.

    class Stage(PodStage):
        open_kubelet = ProcessKubelet
    ...
    stage.kubelet.process_of("chat-1-worker-0").kill()

The first container of a pod is its command and args, which must name a program that is here; its environment is that of
its manifest, with fieldRefs and $(NAME), and nothing else. Each pod has an address of its own in 127.0.0.0/8, so that
any number of them may listen at one port. A readiness probe is asked ten times in each of its periods, a startup probe
is the same one here. A pod that is to go gets SIGTERM, and SIGKILL after its grace.
"""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType

import aiohttp

from support.kubernetes.client import Client
from support.kubernetes.controllers.kubelet import Kubelet, Sandbox
from support.kubernetes.server.statuses import Json

PROBES_A_PERIOD = 10
LOOKS_EVERY_S = 0.02
VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
ENTRY = re.compile(r"metadata\.(annotations|labels)\['(.+)'\]")


class ProcessKubelet(Kubelet):
    """All kubelets of a cluster on one machine."""

    network = "127"

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}

    def process_of(self, name: str) -> "subprocess.Popen[bytes]":
        """The process that a pod had last."""
        (found,) = (each for each in self._sandboxes_of("default", name) if each.ip)
        return self._processes[_uid(found)]

    def begin_processes(self, sandbox: Sandbox) -> None:
        """Start the first container; it is ready when its probe says so."""
        container = sandbox.pod["spec"]["containers"][0]
        environment = dict(_environment(container, sandbox))
        command = [*container.get("command", ()), *container.get("args", ())]
        process = subprocess.Popen(
            [_expanded(word, environment) for word in command],
            env=environment,
            start_new_session=True,
        )
        probe = container.get("readinessProbe")
        sandbox.is_ready = sandbox.has_started = probe is None
        self._processes[_uid(sandbox)] = process
        self._watches[_uid(sandbox)] = self.run(self._watch(sandbox, process, probe))

    async def end_processes(self, sandbox: Sandbox, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after the grace."""
        watch, process = self._watches.get(_uid(sandbox)), self._processes.get(_uid(sandbox))
        if watch is None or process is None:
            return
        _signal(process, signal.SIGTERM)
        await asyncio.wait([watch], timeout=grace_s)
        _signal(process, signal.SIGKILL)
        await watch

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            for process in self._processes.values():
                _signal(process, signal.SIGKILL)
                process.wait()

    async def _watch(
        self, sandbox: Sandbox, process: "subprocess.Popen[bytes]", probe: Json | None
    ) -> None:
        """Ask its probe until a process ends, and say how it ended."""
        failures, is_ready = 0, sandbox.is_ready
        every_s = probe["periodSeconds"] / PROBES_A_PERIOD if probe else LOOKS_EVERY_S
        while (code := process.poll()) is None:
            if probe is not None:
                failures = 0 if await _answers(sandbox, probe) else failures + 1
                is_ready = failures == 0 or (is_ready and failures < probe["failureThreshold"])
                if is_ready != sandbox.is_ready:
                    await self.probed(sandbox, is_ready=is_ready)
            await asyncio.sleep(every_s)
        if not sandbox.exited.done():
            sandbox.exited.set_result(code if code >= 0 else 128 - code)


async def _answers(sandbox: Sandbox, probe: Json) -> bool:
    told = probe["httpGet"]
    url = f"http://{sandbox.ip}:{told['port']}{told['path']}"
    within = aiohttp.ClientTimeout(total=probe["timeoutSeconds"])
    try:
        async with aiohttp.ClientSession(timeout=within) as session, session.get(url) as answer:
            return 200 <= answer.status < 400
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


def _environment(container: Json, sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    known: dict[str, str] = {}
    for each in container.get("env") or ():
        path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        value = _field(sandbox, path) if path else _expanded(each.get("value", ""), known)
        known[each["name"]] = value
        yield each["name"], value


def _field(sandbox: Sandbox, path: str) -> str:
    """What the downward API gives of a pod."""
    metadata, entry = sandbox.pod["metadata"], ENTRY.fullmatch(path)
    if entry is not None:
        return str((metadata.get(entry[1]) or {}).get(entry[2], ""))
    known: dict[str, str] = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
    }
    return {**known, "spec.nodeName": sandbox.node, "status.podIP": sandbox.ip}[path]


def _expanded(text: str, environment: dict[str, str]) -> str:
    """A word of a manifest with its $(NAME)s; one that is not known stays."""
    return VARIABLE.sub(lambda found: environment.get(found[1], found[0]), text)


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    """To the process and all that it has started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _uid(sandbox: Sandbox) -> str:
    uid: str = sandbox.pod["metadata"]["uid"]
    return uid
