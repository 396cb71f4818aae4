"""A slow rank of real processes, named by a real daemon in `jobs`, `why`, JSON and the job's page."""

import http.client
import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gantree import training
from gantree.cli.main import main
from support.daemon import Daemon

SRC = Path(training.__file__).parents[2]
CLUSTER = """
name: two-nodes
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB, cpus: 32, memory_GiB: 256}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
"""
SYNCHRONOUS = f"""
import os, socket, sys, time; sys.path.insert(0, {str(SRC)!r})
from gantree import training
rank, world = training.rank(), training.world_size()
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

def joined():
    while True:
        try: return [socket.create_connection(address)]
        except ConnectionRefusedError: time.sleep(0.05)

def accepted():
    server = socket.create_server(address)
    return [server.accept()[0] for _ in range(world - 1)]

peers = joined() if rank else accepted()

def barrier():
    if rank: peers[0].sendall(b"x")
    for peer in peers: assert peer.recv(1)
    if not rank:
        for peer in peers: peer.sendall(b"x")

while True:
    barrier()
    with training.step(): time.sleep(0.13 if rank == 5 else 0.1)
"""
"""Ranks that wait for each other after every step, as an all-reduce makes them; rank 5 takes 1.3 times as long."""

DDP = f"""
import sys, time; sys.path.insert(0, {str(SRC)!r})
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from gantree import training
from gantree.training import ddp
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
ddp.watch(model)
while True:
    time.sleep(0.13 if training.rank() == 2 else 0.1)
    model(torch.randn(8, 64)).sum().backward()
"""
"""Training by PyTorch over gloo with no other line than `watch`; the data of rank 2 take 1.3 times as long to load."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a gang of eight such ranks, and one whose ranks report nothing."""
    role: dict[str, Any] = {"role": "w", "members": 2, "processes": 4, "each": {"gpus": 4}}
    slow = {"name": "slow", "gang": [{**role, "run": [sys.executable, "-S", "-c", SYNCHRONOUS]}]}
    quiet = {"name": "quiet", "gang": [{"role": "w", "members": 1, "run": ["sleep", "600"]}]}
    with Daemon(tmp_path_factory.mktemp("stragglers") / "state", CLUSTER, pages=True) as running:
        for job in (slow, quiet):
            running.client.submit(json.dumps(job), "job.yaml")
            running.wait(str(job["name"]), until="running")
        yield running


def named(daemon: Daemon, rank: int) -> dict[str, Any]:
    """The row of this rank, once it is named and no other."""
    while True:
        rows: list[dict[str, Any]] = daemon.client.job("slow")["stragglers"]
        if [row["rank"] for row in rows] == [rank]:
            return rows[0]
        time.sleep(0.1)


def said(capsys: pytest.CaptureFixture[str], daemon: Daemon, *words: str) -> str:
    capsys.readouterr()
    with suppress(SystemExit):
        main([*words, "--state", str(daemon.state_dir)])
    return capsys.readouterr().out


def page_of(daemon: Daemon, path: str) -> str:
    """What the daemon shows there, over its socket."""
    line = http.client.HTTPConnection("gantree")
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect(str(daemon.state_dir / "gantree.sock"))
    line.request("GET", path)
    return line.getresponse().read().decode()


def test_the_slow_rank_is_named_with_node_and_gpu(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    found = named(daemon, 5)
    assert (found["node"], found["gpus"], found["sign"]) == ("n1", [1], "slow")
    assert found["peers"] == 7
    sentence = "rank 5 on n1 GPU 1 takes 1."
    assert sentence in said(capsys, daemon, "why", "slow")
    assert sentence in said(capsys, daemon, "jobs")
    assert daemon.client.why("slow")["stragglers"][0]["rank"] == 5
    rows = {row["job"]: row["stragglers"] for row in daemon.client.jobs()}
    assert (len(rows["slow"]), rows["quiet"]) == (1, [])
    assert daemon.client.why("quiet")["stragglers"] == []
    assert sentence in page_of(daemon, "/jobs/slow")
    while 'gantree_stragglers{sign="slow"} 1.0' not in page_of(daemon, "/metrics"):
        time.sleep(0.1)
    assert 'gantree_stragglers{sign="jitter"} 0.0' in page_of(daemon, "/metrics")
    assert daemon.output.read_text().count(sentence) == 1


@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch (the extra torch)")
def test_a_slow_rank_of_real_ddp_training_is_named(tmp_path: Path) -> None:
    run = [sys.executable, "-c", DDP]
    role = {"role": "w", "members": 2, "processes": 2, "each": {"gpus": 4}, "run": run}
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        daemon.client.submit(json.dumps({"name": "slow", "gang": [role]}), "job.yaml")
        daemon.wait("slow", until="running")
        found = named(daemon, 2)
    assert (found["node"], found["gpus"], found["peers"]) == ("n1", [0, 1, 2, 3], 3)


def test_a_daemon_that_comes_later_names_it_too(daemon: Daemon) -> None:
    named(daemon, 5)
    daemon.kill()
    daemon.start()
    assert named(daemon, 5)["node"] == "n1"
