"""`gantree kubernetes` as a process, on an API server over real HTTP."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.testing.pods import PodStage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """The server and its kubelet; gantree is started as a process of its own."""
    with PodStage(tmp_path / "unused") as stage:
        stage.nodes("n[0-3]", network_topology_nvidia_com__leaf="l0")
        yield stage


def command(stage: PodStage, state: Path, *more: str) -> list[str]:
    told = ["kubernetes", "--api-server", stage.running.url, "--state", str(state), *more]
    return [sys.executable, "-m", "gantree.cli", *told]


def start(stage: PodStage, state: Path, *more: str) -> "subprocess.Popen[str]":
    running = subprocess.Popen(command(stage, state, *more), stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    line = running.stdout.readline()
    assert "ready: cluster kubernetes, 4 nodes, 32 GPUs" in line
    return running


def until_bound(stage: PodStage, *names: str) -> None:
    deadline = time.monotonic() + 30.0
    while not stage.bound(*names):
        assert time.monotonic() < deadline, stage.pods()
        time.sleep(0.02)


def asked(state: Path, *words: str) -> str:
    told = [sys.executable, "-m", "gantree.cli", *words, "--state", str(state)]
    return subprocess.run(told, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_daemon_binds_gangs_answers_and_goes_on_after_kill_9(
    stage: PodStage, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    gang = {"labels": {"gantree.io/gang": "g"}, "annotations": {"gantree.io/gang-size": "3"}}
    running = start(stage, state)
    for number in range(3):
        stage.pod(f"g-{number}", gpus=8, **gang)
    until_bound(stage, "g-0", "g-1", "g-2")
    (row,) = json.loads(asked(state, "jobs", "--json"))["jobs"]
    assert row["name"] == "default/g"
    stage.pod("large", gpus=8)
    stage.pod("larger", gpus=8)
    until_bound(stage, "large")
    running.kill()
    running.wait()
    for number in range(3):
        stage.exit(f"g-{number}")
    running = start(stage, state)
    until_bound(stage, "larger")
    assert row["job"] not in asked(state, "jobs")
    os.kill(running.pid, signal.SIGTERM)
    assert running.wait(30) == 0


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, stage: PodStage) -> None:
    told = command(stage, tmp_path / "state")
    told[told.index("--api-server") + 1] = "http://127.0.0.1:9"
    done = subprocess.run(told, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "\ngantree: http://127.0.0.1:9 does not answer" in f"\n{done.stderr}"


def test_a_kubeconfig_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("clusters: []\ncurrent-context: here\n")
    told = [sys.executable, "-m", "gantree.cli", "kubernetes", "--kubeconfig", str(file)]
    done = subprocess.run(told, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"{file}: contexts: there is no 'here'" in done.stderr


FILE = """
name: hall
tiers: [leaf, node]
machines: {m: {gpus: 8, gpu: H100-80GB, cpus: 96, memory_GiB: 1024}}
nodes: [{names: "n[0-3]", machine: m, at: {leaf: LEAF}}]
"""


def test_a_cluster_file_says_where_nodes_stand(stage: PodStage, tmp_path: Path) -> None:
    """Gangs of parts have ids that name them."""
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE.replace("LEAF", "hall-a"))
    state = tmp_path / "state"
    running = start(stage, state, "--cluster", str(file))
    group = "{name: a/b, members: [{podNumber: 1, leafCellNumber: 8}]}"
    hived = f"{{leafCellNumber: 8, affinityGroup: {group}}}"
    stage.pod("p0", annotations={"hivedscheduler.microsoft.com/pod-scheduling-spec": hived})
    until_bound(stage, "p0")
    assert stage.pods()["p0"]["metadata"]["annotations"]["gantree.io/domain"].startswith("node:")
    assert "hall-a" in asked(state, "topo")
    (row,) = json.loads(asked(state, "jobs", "--json"))["jobs"]
    assert row["job"].startswith("default.hived:a:b.gang.")
    assert "Holds 8 GPUs" in asked(state, "why", row["job"])
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 0


def test_a_cluster_file_that_is_none_is_refused(stage: PodStage, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: 5")
    told = command(stage, tmp_path / "state", "--cluster", str(file))
    ended = subprocess.run(told, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert "cluster.yaml" in ended.stderr
