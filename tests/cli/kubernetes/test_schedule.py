"""`gantree kubernetes` as a process, on an API server over real HTTP.

The processes are forked from one that has imported everything, but for one that begins as a user's does.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from support.daemon import Program
from support.kubernetes.client import MERGE
from support.kubernetes.samples import node
from support.pods import PodStage
from support.provisioning import define

Gantree = Callable[..., Any]
READY = "ready: cluster kubernetes, 4 nodes, 32 GPUs"
WITHIN_S = 300.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """The server and its kubelet; gantree is started as a process of its own."""
    with PodStage(tmp_path / "unused") as stage:
        stage.nodes("n[0-3]", network_topology_nvidia_com__leaf="l0")
        yield stage


def command(stage: PodStage, state: Path, *more: str) -> list[str]:
    named = ["--api-server", stage.running.url, "--state", str(state), "--name", state.name]
    return ["kubernetes", *named, *more]


def until_bound(stage: PodStage, *names: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not stage.bound(*names):
        assert time.monotonic() < deadline, stage.pods()
        time.sleep(0.02)


def test_the_daemon_binds_gangs_answers_and_goes_on_after_kill_9(
    stage: PodStage, tmp_path: Path, gantree: Gantree
) -> None:
    state = tmp_path / "state"
    gang = {"labels": {"gantree.io/gang": "g"}, "annotations": {"gantree.io/gang-size": "3"}}
    with Program(*command(stage, state)) as running:
        running.says(READY)
        for number in range(3):
            stage.pod(f"g-{number}", gpus=8, **gang)
        until_bound(stage, "g-0", "g-1", "g-2")
        (row,) = gantree("jobs", "--json", "--state", state).json()["jobs"]
        assert row["name"] == "default/g"
        stage.pod("large", gpus=8)
        stage.pod("larger", gpus=8)
        until_bound(stage, "large")
        running.process.kill()
        running.process.wait()
    for number in range(3):
        stage.exit(f"g-{number}")
    with Program(*command(stage, state)) as running:
        running.says(READY)
        until_bound(stage, "larger")
        assert row["job"] not in gantree("jobs", "--state", state).out
        assert running.stop() == 0


GROUPS = """
groups:
  - name: spare
    max_nodes: 8
    labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    allocatable: {cpu: "96", memory: 1Ti, pods: "110", nvidia.com/gpu: "8"}
"""


def test_why_names_the_nodes_that_were_asked_for(
    stage: PodStage, tmp_path: Path, gantree: Gantree
) -> None:
    define(stage)
    file, state = tmp_path / "node-groups.yaml", tmp_path / "state"
    file.write_text(GROUPS)
    gang = {"labels": {"gantree.io/gang": "g"}, "annotations": {"gantree.io/gang-size": "8"}}
    with Program(*command(stage, state, "--node-groups", str(file))) as running:
        running.says(READY)
        for number in range(8):
            stage.pod(f"g-{number}", gpus=8, **gang)
        deadline = time.monotonic() + WITHIN_S
        asked = "asks node group spare for the whole gang (not accepted yet)."
        while asked not in (told := gantree("why", "default/g", "--state", state).out):
            assert time.monotonic() < deadline, told
        assert told.startswith("Never fits: needs 64 GPUs; the empty cluster has 32.")
        assert "default.g.gang." in gantree("when", "default/g", "--state", state).out
        unknown = gantree("why", "default/h", "--state", state)
        assert (unknown.code, unknown.err) == (1, "gantree: there is no job 'default/h'\n")
        assert running.stop() == 0


def test_one_of_two_leads_by_a_lease_and_the_other_goes_on(stage: PodStage, tmp_path: Path) -> None:
    with Program(*command(stage, tmp_path / "a")) as first:
        first.says(READY)
        with Program(*command(stage, tmp_path / "b")) as other:
            other.says("stands by: a leads")
            assert first.stop() == 0
            other.says("ready: cluster kubernetes")
            stage.pod("p0", gpus=8)
            until_bound(stage, "p0")
            lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/gantree"
            assert stage.api.get(lease).json()["spec"]["holderIdentity"] == "b"
            stage.api.patch(lease, {"spec": {"holderIdentity": "c"}})
            assert other.process.wait(WITHIN_S) == 1, "it ends, to be started again"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as asked:
        port: int = asked.getsockname()[1]
        return port


def first_with(stream: IO[str] | None, words: str) -> str:
    """The first line of a stream that has these words."""
    assert stream is not None, "a pipe"
    return next(line for line in stream if words in line)


def test_a_server_that_does_not_answer_yet_is_waited_for(tmp_path: Path) -> None:
    """Nor does a cluster without nodes end the daemon. Until then it lives and is not ready.

    It is started as a user starts it.
    """
    at, here = free_port(), f"127.0.0.1:{free_port()}"
    where = ["--api-server", f"http://127.0.0.1:{at}", "--state", str(tmp_path), "--listen", here]
    told = [sys.executable, "-m", "gantree.cli", "kubernetes", *where]
    server = [sys.executable, "-m", "support.kubernetes", "--until-eof", "--port", str(at)]
    with killed_at_the_end(told) as daemon, httpx.Client(timeout=WITHIN_S) as http:
        assert f"127.0.0.1:{at} does not answer" in first_with(daemon.stderr, "trying again")
        assert http.get(f"http://{here}/healthz").status_code == 200
        assert http.get(f"http://{here}/readyz").status_code == 503
        with killed_at_the_end(server, stdin=subprocess.PIPE):
            assert "has no nodes yet" in first_with(daemon.stderr, "no nodes")
            nodes = f"http://127.0.0.1:{at}/api/v1/nodes"
            assert http.post(nodes, json=node("n0")).status_code == 201
            ready, merge = {"spec": {"taints": None}}, {"Content-Type": MERGE}
            assert http.patch(f"{nodes}/n0", headers=merge, json=ready).status_code == 200
            assert "ready: cluster kubernetes, 1 node" in first_with(daemon.stdout, "ready")
            assert http.get(f"http://{here}/readyz").status_code == 200
            daemon.terminate()
            assert daemon.wait(WITHIN_S) == 0


def test_the_reader_starts_with_the_first_query(
    stage: PodStage, tmp_path: Path, gantree: Gantree
) -> None:
    """It takes memory that a cluster which is asked by kubectl alone need not spend."""
    with Program(*command(stage, tmp_path / "state")) as running:
        running.says(READY)
        assert "gantree-reader" not in descendants(running.process.pid)
        assert gantree("jobs", "--state", tmp_path / "state").code == 0
        deadline = time.monotonic() + WITHIN_S
        while "gantree-reader" not in descendants(running.process.pid):
            assert time.monotonic() < deadline, descendants(running.process.pid)
            time.sleep(0.02)


def descendants(pid: int) -> list[str]:
    """The names of the processes below one."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    below = [int(each) for file in files for each in file.read_text().split()]
    names = {each: Path(f"/proc/{each}/comm").read_text().strip() for each in below}
    return [name for each in below for name in (names[each], *descendants(each))]


@contextmanager
def killed_at_the_end(command: list[str], **how: Any) -> Iterator[subprocess.Popen[str]]:
    """A process with pipes. A test that fails does not wait for its end."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how}
    with subprocess.Popen(command, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_kubeconfig_that_is_none_is_named(tmp_path: Path, gantree: Gantree) -> None:
    file = tmp_path / "config"
    file.write_text("clusters: []\ncurrent-context: here\n")
    told = gantree("kubernetes", "--kubeconfig", file)
    assert told.code == 2
    assert f"{file}: contexts: there is no 'here'" in told.err


FILE = """
name: hall
tiers: [leaf, node]
machines: {m: {gpus: 8, gpu: H100-80GB, cpus: 96, memory_GiB: 1024}}
nodes: [{names: "n[0-3]", machine: m, at: {leaf: LEAF}}]
"""


def test_a_cluster_file_says_where_nodes_stand(
    stage: PodStage, tmp_path: Path, gantree: Gantree
) -> None:
    """Gangs of parts have ids that name them."""
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE.replace("LEAF", "hall-a"))
    state = tmp_path / "state"
    with Program(*command(stage, state, "--cluster", str(file))) as running:
        running.says(READY)
        group = "{name: a/b, members: [{podNumber: 1, leafCellNumber: 8}]}"
        hived = f"{{leafCellNumber: 8, affinityGroup: {group}}}"
        stage.pod("p0", annotations={"hivedscheduler.microsoft.com/pod-scheduling-spec": hived})
        until_bound(stage, "p0")
        annotations = stage.pods()["p0"]["metadata"]["annotations"]
        assert annotations["gantree.io/domain"].startswith("node:")
        assert "hall-a" in gantree("topo", "--state", state).out
        (row,) = gantree("jobs", "--json", "--state", state).json()["jobs"]
        assert row["job"].startswith("default.hived:a:b.gang.")
        assert "Holds 8 GPUs" in gantree("why", row["job"], "--state", state).out
        assert running.stop() == 0


def test_a_cluster_file_that_is_none_is_refused(
    stage: PodStage, tmp_path: Path, gantree: Gantree
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: 5")
    told = gantree(*command(stage, tmp_path / "state", "--cluster", str(file)))
    assert told.code == 2
    assert "cluster.yaml" in told.err
