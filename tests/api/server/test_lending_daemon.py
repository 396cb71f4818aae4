"""A guarantee that is not used, on a real daemon: lent after its time, across a kill -9, and back when asked for."""

import json
from pathlib import Path

from cli.conftest import Gantree
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""
POLICY = """
evictions: {grace: 1s}
queues:
  - {name: owner, guarantee: {gpus: 4}, lend: {idle_after: 4s, return_within: 2s}}
  - {name: guests}
"""


def job(name: str, queue: str) -> str:
    role = {"role": "w", "members": 1, "each": {"gpus": 4}, "run": ["sleep", "600"]}
    saves = {"every": "1h", "grace": "10m"}
    return json.dumps({"name": name, "queue": queue, "gang": [role], "checkpoint": saves})


def test_an_idle_guarantee_is_lent_and_comes_back_within_its_time(
    tmp_path: Path, gantree: Gantree
) -> None:
    with Daemon(tmp_path / "s", CLUSTER, POLICY) as daemon:
        client = daemon.client
        client.submit(job("guest", "guests"))
        daemon.kill()
        daemon.start(with_cluster=False)
        daemon.wait("guest", until="running")
        assert client.why("guest")["sentence"].endswith(
            "It borrows: queue owner lends 4 GPUs, unused for 4 s,"
            " and takes them back within 2 s when its jobs need them."
        )
        said = gantree("queues", "--state", str(daemon.state_dir)).out
        assert "Queue owner lends what it has not used for 4 s: 4 GPUs; back within 2 s." in said
        client.submit(job("own", "owner"))
        daemon.wait("own", until="running")
        guest = client.job("guest")
        assert (guest["phase"], guest["preemptions"]) == ("pending", 1)
        (row,) = [each for each in client.queues() if each["queue"] == "owner"]
        assert row["lending"]["keeps"]["gpus"] == 4.0 and not row["lending"]["lends_unused"]
