"""MIG jobs on a real daemon with a simulated NVML: started, refused, failed without a trace, and killed half-way."""

import fcntl
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gantree.control.nodes.sharing.partitioning import SIMULATED_FOLDER
from gantree.model.gpu_partitions import PartitionFault
from gantree.telemetry.partitions.simulated import SimulatedPartitioner
from gantree.topology.hardware.mig import TABLES
from support.daemon import Daemon

CLUSTER = """
name: two
tiers: [leaf, node]
machines:
  m2: {gpus: 2, gpu: H100-80GB}
nodes:
  - {names: "n[0-1]", machine: m2, at: {leaf: l0}}
"""
WHOLE = "name: whole\ngang:\n  - {role: w, members: 2, each: {gpus: 2}, run: ['true']}\n"


def instances(name: str, members: int, profile: str, script: str = "true") -> str:
    run = json.dumps(["sh", "-c", script])
    return f"name: {name}\ngang:\n  - {{role: w, members: {members}, each: {{mig: {profile}}}, run: {run}}}\n"


def simulated(folder: Path) -> Path:
    """A state directory whose daemon simulates NVML."""
    state = folder / "state"
    (state / SIMULATED_FOLDER).mkdir(parents=True, mode=0o700)
    return state


def gpus_of(state: Path, node: str) -> SimulatedPartitioner:
    return SimulatedPartitioner(
        state / SIMULATED_FOLDER / f"{node}.json", node, TABLES["H100-80GB"]
    )


def there(state: Path) -> dict[tuple[str, int], list[str]]:
    """The profiles on each GPU that has any."""
    every = {
        (node, gpu): gpus_of(state, node).instances(gpu) for node in ("n0", "n1") for gpu in (0, 1)
    }
    return {where: [part.profile for part in parts] for where, parts in every.items() if parts}


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_instances_are_made_for_a_job_and_give_way_to_whole_gpus(tmp_path: Path) -> None:
    state, seen = simulated(tmp_path), tmp_path / "seen"
    with Daemon(state, CLUSTER) as daemon:
        script = f"echo $CUDA_VISIBLE_DEVICES >> {seen}"
        daemon.client.submit(instances("parts", 3, "3g.40gb", script))
        assert daemon.wait("parts")["phase"] == "succeeded"
        uuids = seen.read_text().split()
        assert len(set(uuids)) == 3
        listed = [
            (row["profile"], row["job"]) for node in daemon.client.nodes() for row in node["mig"]
        ]
        assert listed == [("3g.40gb", None)] * 3
        assert all(uuid.startswith("MIG-") for uuid in uuids)
        daemon.stop()
        daemon.start(with_cluster=False)
        daemon.client.submit(WHOLE)
        assert daemon.wait("whole")["phase"] == "succeeded"
        assert there(state) == {}


def test_a_job_whose_instances_cannot_be_made_leaves_no_trace(tmp_path: Path) -> None:
    state = simulated(tmp_path)
    with Daemon(state, CLUSTER) as daemon:
        for node in ("n0", "n1"):
            gpus_of(state, node).fail_next("create", PartitionFault.NO_PERMISSION)
        daemon.client.submit(instances("parts", 2, "1g.10gb"))
        failed = daemon.wait("parts")
        assert failed["phase"] == "failed"
        assert "No permission. Only root may do it" in str(failed["reason"])
        assert there(state) == {}
        daemon.client.submit(WHOLE)
        assert daemon.wait("whole")["phase"] == "succeeded"


def test_a_daemon_that_may_not_partition_says_so_when_a_job_is_submitted(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        answer = daemon.client.submit(instances("parts", 1, "1g.10gb"))
        assert "this daemon may not partition GPUs; start it with --partition-gpus" in str(answer)
        daemon.stop()
        simulated(tmp_path)
        daemon.start(with_cluster=False)
        assert daemon.wait("parts")["phase"] == "succeeded"


def test_a_daemon_that_is_killed_while_it_makes_instances_makes_each_of_them_once(
    tmp_path: Path,
) -> None:
    state = simulated(tmp_path)
    with Daemon(state, CLUSTER) as daemon:
        busy = state / SIMULATED_FOLDER / "n1.lock"
        with busy.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            daemon.client.submit(instances("parts", 4, "7g.80gb"))
            until(lambda: len(there(state)) == 2)
            daemon.kill()
        assert set(there(state)) == {("n0", 0), ("n0", 1)}
        daemon.start(with_cluster=False)
        assert daemon.wait("parts")["phase"] == "succeeded"
        made = [
            json.loads((state / SIMULATED_FOLDER / f"{node}.json").read_text())["created"]
            for node in ("n0", "n1")
        ]
        assert made == [2, 2]
