"""The processes of a run: etcd, kube-apiserver, where claims need it a controller manager, and the scheduler.

Binaries are those of KUBEBUILDER_ASSETS. CPU seconds and memory are read of whole sessions, so that a scheduler of
several processes is counted in full.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from scheduler_perf.lists import Workload
from support.kubernetes.real import ASSETS

NAME = "default-scheduler"
REQUESTS_PER_S = 5000
READY_WITHIN_S = 120.0
GANTREE_SAYS, KUBE_SCHEDULER_SAYS = ("has no nodes yet", " ready: "), ("Caches populated",)
TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A process with a session of its own."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def has_ended(self) -> bool:
        """Whether it does not run any more."""
        return self._process.poll() is not None

    def cpu_s(self) -> float:
        """CPU seconds of its session so far."""
        return sum(int(each[11]) + int(each[12]) for each in self._stats()) / TICKS

    def memory_MB(self) -> float:
        """What its processes take now; pages that they share count once (PSS)."""
        return sum(map(_pss_kB, self._members())) / 1000

    def stop(self, *signals: int) -> None:
        """End it, and all of its session; signals: how, by default SIGTERM, and SIGKILL after a while."""
        for number in signals or (signal.SIGTERM, signal.SIGKILL):
            if self.has_ended:
                break
            os.killpg(self._process.pid, number)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                continue

    def _members(self) -> list[int]:
        return [
            pid for pid in _pids() if (stat := _stat(pid)) and int(stat[3]) == self._process.pid
        ]

    def _stats(self) -> list[list[str]]:
        return [stat for pid in self._members() if (stat := _stat(pid))]


def _pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _pss_kB(pid: int) -> int:
    try:
        rolled_up = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next(int(line.split()[1]) for line in rolled_up.splitlines() if line.startswith("Pss:"))


def server_cpu_s(place: Path) -> float:
    """CPU seconds so far of the API server that has its files in a directory."""
    return sum(
        (int(stat[11]) + int(stat[12])) / TICKS
        for pid in _pids()
        if (words := _command(pid))
        and "kube-apiserver" in words[0]
        and str(place) in " ".join(words)
        if (stat := _stat(pid))
    )


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def kubeconfig(place: Path, url: str, token: str) -> Path:
    """A kubeconfig of an administrator."""
    cluster = {"server": url, "insecure-skip-tls-verify": True}
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = place / "kubeconfig"
    file.write_text(yaml.safe_dump(told))
    file.chmod(0o600)
    return file


@contextmanager
def scheduler(
    name: str, place: Path, config: Path, workload: Workload, policy: str | None = None
) -> Iterator[Process]:
    """gantree with a policy, or a binary that takes kube-scheduler's options: started, and ready."""
    with launched(name, place, config, workload, policy) as started:
        _wait(started, GANTREE_SAYS if name == "gantree" else KUBE_SCHEDULER_SAYS)
        yield started


@contextmanager
def launched(
    name: str, place: Path, config: Path, workload: Workload, policy: str | None = None
) -> Iterator[Process]:
    """The same, which may not be ready yet."""
    is_gantree = name == "gantree"
    command = (
        _gantree(place, config, policy)
        if is_gantree
        else _kube_scheduler(name, place, config, workload)
    )
    started = Process(command, place / "scheduler.log")
    try:
        yield started
    finally:
        started.stop()


def _gantree(place: Path, config: Path, policy: str | None) -> list[str]:
    more = [] if policy is None else [f"--policy={policy}"]
    return [
        str(Path(sys.executable).with_name("gantree")), "kubernetes", "schedule", f"--kubeconfig={config}",
        f"--scheduler-name={NAME}", "--lease-name=", f"--state={place / 'state'}", *more,
    ]  # fmt: skip


def _kube_scheduler(name: str, place: Path, config: Path, workload: Workload) -> list[str]:
    """name is a path, or a file of KUBEBUILDER_ASSETS."""
    told: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    if workload.scheduler_config is not None:
        told = yaml.safe_load(workload.scheduler_config.read_text())
    limits = {"qps": REQUESTS_PER_S, "burst": REQUESTS_PER_S}
    told["clientConnection"] = {"kubeconfig": str(config), **limits}
    told["leaderElection"] = {"leaderElect": False}
    file = place / "scheduler.yaml"
    file.write_text(yaml.safe_dump(told))
    gates = ",".join(f"{gate}={str(is_on).lower()}" for gate, is_on in workload.gates.items())
    more = [f"--feature-gates={gates}"] if gates else []
    binary = Path(os.environ[ASSETS]) / name
    return [str(binary), f"--config={file}", "--secure-port=0", "-v=2", *more]


@contextmanager
def claim_controller(place: Path, config: Path, workload: Workload) -> Iterator[None]:
    """The controller that makes claims of templates, for workloads with claims."""
    if not workload.has_claims:
        yield
        return
    command = [
        str(Path(os.environ[ASSETS]) / "kube-controller-manager"), f"--kubeconfig={config}",
        "--controllers=resourceclaim-controller", "--leader-elect=false", "--secure-port=0",
        f"--kube-api-qps={REQUESTS_PER_S}", f"--kube-api-burst={REQUESTS_PER_S}",
    ]  # fmt: skip
    started = Process(command, place / "controllers.log")
    try:
        yield
    finally:
        started.stop()


def _wait(started: Process, words: tuple[str, ...]) -> None:
    """Until its log has one of these words: it answers, or waits for nodes."""
    ends_at = time.monotonic() + READY_WITHIN_S
    while not any(word in started.log.read_text() for word in words):
        if started.has_ended or time.monotonic() > ends_at:
            raise SystemExit(f"the scheduler is not ready: {started.log.read_text()[-2000:]}")
        time.sleep(0.02)
