"""A daemon reads a kernel log that hosts forward theirs to: who holds a lost GPU runs elsewhere soon after the line."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from cli.conftest import Gantree
from gantree.api.client.client import Client
from gantree.api.server.fault_watch import _next_xids, node_named, own_node
from gantree.telemetry.nvml.events import Xid, XidEvents
from gantree.testing.builders import cluster
from gantree.testing.stage import Stage
from support.daemon import Program, unended
from support.gangs import left_over

CLUSTER = """
name: four
tiers: [node]
nodes: [{names: "n[0-3]", machine: dgx-h100}]
"""
JOB = """
name: hung
checkpoint: {signal: SIGUSR1, grace: 600s}
gang:
  - {role: w, members: 2, each: {gpus: 8}, run: [python3, -c, "%s"]}
"""
HANGS = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " signal.signal(signal.SIGUSR1, lambda *_: None); time.sleep(3600)"
)
"""As a rank that waits in a collective for a GPU that is gone: it neither saves nor stops."""
LINE = (
    "Nov 28 03:06:37 {node} kernel: [12.5] NVRM: Xid (PCI:0000:3b:00): {xid}, pid=7, name=python\n"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    os.mkfifo(path)
    return path


@pytest.fixture
def client(tmp_path: Path, log: Path) -> Iterator[Client]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    state = str(tmp_path / "state")
    words = ("up", "--state", state, "--cluster", str(tmp_path / "cluster.yaml"))
    with Program(*words, "--kernel-log", str(log)) as program:
        program.says(" ready: ")
        client = Client(tmp_path / "state")
        yield client
        for job in unended(client):
            client.cancel(job)
            client.job(job, wait_s=300, until="ended")
        program.stop()
    assert left_over(tmp_path) == []


def write(log: Path, node: str, xid: int) -> None:
    with log.open("w") as file:
        file.write(LINE.format(node=node, xid=xid))


def until(done: Callable[[], bool], client: Client) -> None:
    deadline = time.monotonic() + 300
    while not done():
        assert time.monotonic() < deadline, client.jobs()
        time.sleep(0.02)


def test_a_hung_gang_runs_elsewhere_after_a_line_of_the_log(client: Client, log: Path) -> None:
    client.submit(JOB % HANGS, base_dir="/tmp")
    before = client.job("hung", wait_s=300, until="running")
    lost = before["placement"]["members"][0]["node"]
    write(log, lost, 13)
    write(log, lost, 0)
    write(log, "elsewhere", 79)
    write(log, lost, 79)
    until(lambda: client.job("hung")["attempt"] == 2, client)
    after = client.job("hung", wait_s=300, until="running")
    assert lost not in {member["node"] for member in after["placement"]["members"]}
    (sign,) = client.node(lost)["signs"]
    fault = "GPU 0000:3b:00: XID 79 (GPU has fallen off the bus)"
    assert (sign["source"], sign["reason"]) == ("kernel-log", fault)


def test_a_host_is_the_node_of_its_name_or_of_its_first_label() -> None:
    ledger = Stage(cluster(leaves=1, nodes=2)).scheduler.ledger
    hosts = ("n1", "n1.example.org", "n9", "")
    assert [node_named(ledger, host) for host in hosts] == ["n1", "n1", None, None]
    assert own_node(ledger) is None


class Told:
    """XIDs as NVML's events would tell them, and whether the GPUs were let go of."""

    def __init__(self, *rounds: list[Xid]) -> None:
        self.rounds, self.is_closed = [*rounds], False

    def wait(self, timeout_s: float) -> list[Xid]:
        return self.rounds.pop(0)

    def close(self) -> None:
        self.is_closed = True


def test_gpus_are_let_go_of_at_the_first_xid_that_calls_for_a_reset() -> None:
    told = Told([], [Xid(1, 13)], [Xid(1, 13), Xid(2, 79)], [Xid(3, 79)])
    assert _next_xids(lambda: cast(XidEvents, told), threading.Event()) == [Xid(2, 79)]
    assert told.is_closed


def test_a_daemon_that_ends_listens_no_more() -> None:
    told, stop = Told(), threading.Event()
    stop.set()
    assert _next_xids(lambda: cast(XidEvents, told), stop) == []
    assert told.is_closed


@pytest.mark.parametrize("path", ["none", "."])
def test_a_log_that_cannot_be_read_is_refused_at_the_start(
    gantree: Gantree, tmp_path: Path, path: str
) -> None:
    words = ("--state", str(tmp_path / "state"), "--kernel-log", str(tmp_path / path))
    refused = gantree("up", "--virtual", "dgx-h100:1", *words)
    assert refused.code == 2
    assert "--kernel-log: " in refused.err
    assert "allowed: /dev/kmsg (as root), a file, a FIFO, never" in refused.err
