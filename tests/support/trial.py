"""The cluster on which the commands of docs/kubernetes-trial.md run: real server, controllers and kube-scheduler.

There is no kubelet that starts containers, so gantree's pods are processes: with the arguments of their Deployment, the
policy of its ConfigMap, a token of its ServiceAccount, and no rights but its own. `kubectl exec` runs its command here.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.kubernetes.client import Client
from support.kubernetes.controllers.kubelet import Kubelet
from support.kubernetes.real import ASSETS, kubeconfig
from support.kubernetes.server.thread import LoopThread

ROOT = Path(__file__).parents[2]
POLICY = "/etc/gantree/policy.yaml"
GANTREE = Path(sys.executable).with_name("gantree")
Json = dict[str, Any]
PREFERENCES: Json = {
    "apiVersion": "kubectl.config.k8s.io/v1beta1",
    "kind": "Preference",
    "defaults": [
        {"command": command, "options": [{"name": "validate", "default": "false"}]}
        for command in ("apply", "create")
    ],
}
"""kubectl does not validate: some builds of the server serve schemas that it cannot read. test_chart validates."""


def commands_of(page: Path) -> list[str]:
    """The commands of a page, in their order: its indented lines."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


def _environment() -> dict[str, str]:
    """With the server's own kubectl, and gantree as it is here."""
    where = f"{os.environ[ASSETS]}:{GANTREE.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": where, "PYTHONPATH": str(ROOT / "src")}


class Cluster(LoopThread):
    """An operator's shell on a cluster, with nodes whose pods run without running anything."""

    def __init__(self, place: Path, url: str, token: str) -> None:
        super().__init__()
        self.place, self.url, self.token = place, url, token
        self.config = kubeconfig(place / "operator.kubeconfig", url)
        self._preferences = place / "kuberc"
        self._preferences.write_text(json.dumps(PREFERENCES))
        shutil.copytree(ROOT / "deploy", place / "deploy")

    def __enter__(self) -> Self:
        super().__enter__()
        self.run(self._open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self._close())
        super().__exit__(kind, error, trace)

    async def _open(self) -> None:
        self._client = Client(self.url, self.token, is_checked=False)
        await self._client.__aenter__()
        self._kubelet = Kubelet(self._client)
        await self._kubelet.__aenter__()

    async def _close(self) -> None:
        await self._kubelet.__aexit__(None, None, None)
        await self._client.__aexit__(None, None, None)

    def nodes(self, *names: str) -> None:
        """Nodes of eight GPUs join."""
        capacity = {"cpu": "96", "memory": "1024Gi", "pods": "110", "nvidia.com/gpu": "8"}
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
        for name in names:
            self.run(self._kubelet.register(name, capacity, labels))

    def shell(self, line: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command line as the operator."""
        return subprocess.run(
            ["bash", "-c", self._here(line)],
            cwd=self.place,
            env={
                **_environment(),
                "KUBECONFIG": str(self.config),
                "KUBERC": str(self._preferences),
            },
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def insist(self, line: str, stdin: str = "") -> str:
        """The same; it must succeed. What it prints."""
        done = self.shell(line, stdin)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def _here(self, line: str) -> str:
        """A command of `kubectl exec`, to be run here."""
        head, told, command = line.partition(" -- ")
        if not told or " exec " not in head:
            return line
        deployment = head.rpartition("deploy/")[2].strip()
        return command.replace("--state /state", f"--state {self._state(deployment)}")

    def _state(self, deployment: str) -> Path:
        return self.place / f"state-of-{deployment}"

    def objects(self, what: str) -> list[Json]:
        """`kubectl get`."""
        told: list[Json] = json.loads(self.insist(f"kubectl get {what} -o json"))["items"]
        return told

    @contextmanager
    def deployed(self, name: str) -> Iterator[Path]:
        """The container of a Deployment in the namespace of its name, as a process; the file of its output."""
        (deployment,) = self.objects(f"deploy -n {name}")
        spec = deployment["spec"]["template"]["spec"]
        account = spec["serviceAccountName"]
        token = self.insist(f"kubectl create token {account} -n {name}").strip()
        config = kubeconfig(self.place / f"{name}.kubeconfig", self.url, token, name)
        log = self.place / f"{name}.log"
        words = [self._argument(word, name) for word in spec["containers"][0]["args"]]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(GANTREE), *words, f"--kubeconfig={config}"],
                env=_environment(),
                stdout=output,
                stderr=output,
            )
        try:
            yield log
        finally:
            process.terminate()
            process.wait()

    def _argument(self, word: str, name: str) -> str:
        """An argument of the container, with files of this machine and a free port."""
        if POLICY in word:
            told = json.loads(self.insist(f"kubectl get cm {name}-policy -n {name} -o json"))
            file = self.place / f"{name}-policy.yaml"
            file.write_text(told["data"]["policy.yaml"])
            return word.replace(POLICY, str(file))
        if word.startswith("--listen="):
            return "--listen=127.0.0.1:0"
        return word.replace("=/state", f"={self._state(name)}")
