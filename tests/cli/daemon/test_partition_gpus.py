"""`gantree up --partition-gpus`, and what operators see of MIG instances."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from gantree.api.client.client import Client
from gantree.control.nodes.sharing.partitioning import SIMULATED_FOLDER
from support.amd_smi import AmdSmi
from support.daemon import Daemon, Program

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
HAS_DRIVER = Path("/dev/nvidiactl").exists()
CLUSTER = """
name: one
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes: [{names: n0, machine: m2}]
"""
JOB = """
name: parts
communicates: false
gang: [{role: w, members: 3, each: {mig: 2g.20gb}, run: [sleep, "600"]}]
"""
DONE = "name: done\ngang: [{role: w, members: 1, each: {mig: 1g.10gb}, run: ['true']}]\n"


@pytest.mark.skipif(HAS_DRIVER, reason="there is a driver here, and it would be used")
def test_a_daemon_that_cannot_partition_real_gpus_does_not_start(
    gantree: Gantree, tmp_path: Path
) -> None:
    told = gantree(
        "up", "--partition-gpus", "nvml", "--virtual", "dgx-h100:1", "--state", tmp_path / "s"
    )
    reason = "no NVIDIA driver answers" if os.geteuid() == 0 else "only root may partition GPUs"
    assert told.code != 0
    assert reason in told.err
    assert not (tmp_path / "s").exists()


def test_nodes_and_topo_show_which_instances_exist(
    gantree: Gantree, complaints: Complaints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    (state / SIMULATED_FOLDER).mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("GANTREE_STATE", str(state))
    with Daemon(state, CLUSTER) as daemon:
        assert "MIG" not in gantree("nodes").out
        daemon.client.submit(JOB)
        daemon.wait("parts", until="running")
        daemon.client.submit(DONE)
        daemon.wait("done")
        assert "3x2g.20gb" in gantree("nodes").out
        assert "1x1g.10gb (1 idle)" in gantree("nodes").out
        listed = gantree("nodes", "--json").json()
        assert complaints(listed, "nodes") == []
        holders = [(one["profile"], one["job"]) for one in listed["nodes"][0]["mig"]]
        assert sorted(holders, key=str) == [("1g.10gb", None), *[("2g.20gb", "parts")] * 3]
        assert "1g.10gb idle" in gantree("topo").out


def test_jobs_have_compute_partitions_of_amd_gpus_and_then_all_of_them_whole(
    gantree: Gantree, complaints: Complaints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    (state / SIMULATED_FOLDER).mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("GANTREE_STATE", str(state))
    each = "each: {compute_partition: CPX}"
    with Daemon(state, CLUSTER.replace("H100-80GB", "MI300X-192GB")) as daemon:
        daemon.client.submit(JOB.replace("each: {mig: 2g.20gb}", each))
        daemon.wait("parts", until="running")
        assert "8xcpx (5 idle)" in gantree("nodes").out
        listed = gantree("nodes", "--json").json()
        assert complaints(listed, "nodes") == []
        daemon.client.submit(DONE.replace("done", "all").replace("{mig: 1g.10gb}", "{gpus: 2}"))
        assert "Waiting" in gantree("why", "all").out
        daemon.client.cancel("parts")
        daemon.wait("all")
        assert "cpx" not in gantree("nodes").out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may partition GPUs")
def test_a_daemon_without_amd_smi_does_not_start_to_partition_by_it(
    gantree: Gantree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "c.yaml").write_text(CLUSTER)
    more = ("--cluster", tmp_path / "c.yaml", "--state", tmp_path / "s")
    told = gantree("up", "--partition-gpus", "amd-smi", *more)
    assert told.code != 0 and "amd-smi cannot be started" in told.err
    assert not (tmp_path / "s").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may partition GPUs")
def test_a_daemon_divides_the_gpus_of_its_machine_by_amd_smi_and_shows_jobs_theirs(
    gantree: Gantree, tmp_path: Path
) -> None:
    """The first job takes a partition, the second one a whole GPU, whose number has changed by then."""
    tool, state = AmdSmi(tmp_path / "bin"), tmp_path / "state"
    here = CLUSTER.replace("H100-80GB", "MI300X-192GB").replace(
        "names: n0", f"names: {gethostname()}"
    )
    (tmp_path / "c.yaml").write_text(here)
    told = ("--cluster", str(tmp_path / "c.yaml"), "--partition-gpus", "amd-smi")
    path = f"{tool.program.parent}:{os.environ['PATH']}"
    with Program("up", "--state", str(state), *told, PATH=path) as up:
        up.says("ready")
        client = Client(state)
        for name, each in (("small", "compute_partition: cpx"), ("whole", "gpus: 1")):
            client.submit(
                f"name: {name}\ngang: [{{role: w, members: 1, each: {{{each}}}, run: "
                f"[sh, -c, 'echo $ROCR_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES; sleep 600']}}]\n"
            )
            assert client.job(name, wait_s=300, until="running")["phase"] == "running"
        divided = tool.modes.index("CPX")
        assert sorted(tool.modes) == ["CPX", "SPX"]
        seen = [first_line(gantree, state, name).split()[-2:] for name in ("small", "whole")]
        assert [ids[1] for ids in seen] == ["0", "0"]
        assert seen[0][0].startswith(f"GPU-{divided:08x}0000000")
        assert seen[1][0] == f"GPU-{1 - divided:08x}00000000"
        for name in ("small", "whole"):
            client.cancel(name)
            client.job(name, wait_s=300, until="ended")
        assert up.stop() == 0


def first_line(gantree: Gantree, state: Path, job: str) -> str:
    """What a running job prints first."""
    deadline = time.monotonic() + 300
    while not (said := str(gantree("logs", job, "--state", state).out)):
        assert time.monotonic() < deadline
    return said.splitlines()[0]
