"""Two active gantrees on one cluster, one a node pool, each with a standby: processes with journals and Leases.

One is killed; its standby takes over, and nothing of the other's changes.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.daemon import start_nursery
from support.devices import GPU, DeviceStage, gpu, request
from support.kubernetes.real import kubeconfig
from support.kubernetes.server.statuses import Json
from support.nursery import Born
from support.pods import GANTREE, WITHIN_S, PodStage
from support.yaml_text import read_yaml

ROOT = Path(__file__).parents[3]
CRD = ROOT / "deploy/kubernetes/crds/gangjobs.yaml"
GANGJOBS = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
POOLS = ("a", "b")


def gang_job(name: str, scheduler: str, gpus: int = 4) -> Json:
    template = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
    role = {"role": "worker", "members": 2, "each": {"gpus": gpus}, "template": template}
    spec = {"schedulerName": scheduler, "gang": [role]}
    kind = {"apiVersion": "gantree.io/v1alpha1", "kind": "GangJob"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


class TwoPools(DeviceStage):
    """Two nodes with GPUs by device plugin and two by claims in each pool."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._place = place
        self._processes: dict[str, Born] = {}

    def join(self) -> None:
        self.api.define(read_yaml(CRD.read_text()))
        self.classes(gpu=GPU)
        self.template("one", request("gpu", "gpu"))
        for pool in POOLS:
            self.nodes(f"{pool}[0-1]", gpus=8, pool=pool)
            self.nodes(f"{pool}[2-3]", gpus=0, pool=pool)
            for node in (f"{pool}2", f"{pool}3"):
                self.slice(node, GPU, [gpu(n, f"pci0000:{n:02x}") for n in range(4)])

    def run(self, pool: str, name: str) -> None:
        """Start a gantree of a pool: a leader, or its standby."""
        config = kubeconfig(self._place / "kubeconfig", self.running.url, GANTREE)
        command = [
            "kubernetes", "schedule", f"--kubeconfig={config}", f"--scheduler-name=gantree-{pool}",
            f"--node-selector=pool={pool}", f"--state={self._place / name}", f"--name={name}",
        ]  # fmt: skip
        with (self._place / f"{name}.log").open("wb") as log:
            self._processes[name] = start_nursery().bear(command, log.fileno())

    def leader(self, pool: str) -> str:
        """Who leads a pool; "" where nobody does."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/gantree-{pool}"
        told = self.api.get(path)
        return (
            str(told.json()["spec"].get("holderIdentity") or "") if told.status_code == 200 else ""
        )

    def kill_leader(self, pool: str) -> str:
        name = self.leader(pool)
        self._processes[name].kill()
        self._processes[name].wait()
        return name

    def end(self) -> None:
        for each in self._processes.values():
            each.send_signal(signal.SIGTERM)
        for each in self._processes.values():
            each.wait()

    def submit(self, number: int) -> None:
        """To each gantree: a GangJob of two pods, and a pod with a claim."""
        for pool in POOLS:
            scheduler = f"gantree-{pool}"
            answer = self.api.post(GANGJOBS, gang_job(f"{pool}-gang{number}", scheduler))
            assert answer.status_code == 201, answer.text
            self.claimant(f"{pool}-claim{number}", "one", spec={"schedulerName": scheduler})

    def until_runs(self, pool: str, number: int) -> None:
        """Until what was submitted to a pool's gantree runs."""
        names = (
            f"{pool}-gang{number}-worker-0",
            f"{pool}-gang{number}-worker-1",
            f"{pool}-claim{number}",
        )
        self.wait(lambda: all(self.phase(name) == "Running" for name in names))

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not done():
            assert time.monotonic() < deadline, {pool: self.state(pool) for pool in POOLS}
            time.sleep(0.1)

    def state(self, pool: str) -> dict[str, tuple[str, str, str]]:
        """Each pod of a pool's gantree: which it is, its node and its phase."""
        return {
            name: (
                pod["metadata"]["uid"],
                pod["spec"].get("nodeName", ""),
                pod["status"].get("phase", ""),
            )
            for name, pod in self.pods().items()
            if pod["spec"]["schedulerName"] == f"gantree-{pool}"
        }

    def check(self) -> None:
        """Pods are on nodes of their pool, no node has more than it has, no device is held twice."""
        held = Counter[str]()
        for pod in self.pods().values():
            node = pod["spec"].get("nodeName", "")
            assert not node or pod["spec"]["schedulerName"] == f"gantree-{node[0]}"
            requests = pod["spec"]["containers"][0].get("resources", {}).get("requests") or {}
            held[node] += int(requests.get("nvidia.com/gpu", 0))
        assert all(count <= 8 for node, count in held.items() if node)
        devices = self.held()
        assert len(devices) == len(set(devices))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[TwoPools]:
    with TwoPools(tmp_path) as stage:
        stage.join()
        yield stage
        stage.end()


def test_one_fails_over_and_nothing_of_the_other_changes(stage: TwoPools) -> None:
    for pool in POOLS:
        for number in range(2):
            stage.run(pool, f"{pool}{number}")
    stage.submit(0)
    for pool in POOLS:
        stage.until_runs(pool, 0)
    before, others = stage.state("a"), stage.state("b")
    killed = stage.kill_leader("a")
    stage.submit(1)
    stage.until_runs("b", 1)
    stage.until_runs("a", 1)
    assert stage.leader("a") not in {"", killed}
    assert before.items() <= stage.state("a").items()
    assert others.items() <= stage.state("b").items()
    stage.check()


def test_a_gang_job_is_of_the_gantree_that_it_names(tmp_path: Path) -> None:
    with PodStage(tmp_path) as stage:
        stage.api.define(read_yaml(CRD.read_text()))
        stage.nodes("n0")
        stage.start(scheduler="gantree-a")
        for name, scheduler in (("mine", "gantree-a"), ("other", "gantree-b")):
            assert stage.api.post(GANGJOBS, gang_job(name, scheduler)).status_code == 201
        stage.until(lambda: stage.phase("mine-worker-1") == "Running")
        stage.work_for(0.3)
        assert set(stage.pods()) == {"mine-worker-0", "mine-worker-1"}
        assert "status" not in stage.api.get(f"{GANGJOBS}/other").json()
