"""A job that trains in real processes leaves a link that was reported to carry less, and goes on elsewhere."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon

Gantree = Callable[..., Any]
CLUSTER = """
name: four
tiers: [leaf, node]
links: {leaf: {bandwidth_GBps: 50, latency_us: 6}}
machines: {m2: {gpus: 2, gpu: H100-80GB, nics: 2}}
nodes:
  - {names: "n[0-1]", machine: m2, at: {leaf: l0}}
  - {names: "n[2-3]", machine: m2, at: {leaf: l1}}
"""
POLICY = "preset: gantree\nevictions: {restart: 1s}\n"
TRAINING = """
step=$(cat $GANTREE_CHECKPOINT_PATH/step 2>/dev/null || echo 0)
echo from $step on $GANTREE_NODE
save() { test $RANK = 0 && echo $step > $GANTREE_CHECKPOINT_PATH/step && echo $step > $GANTREE_CHECKPOINT_ANSWER; }
trap save USR1
while :; do step=$((step + 1)); sleep 0.1; test $((step % 5)) = 0 && save; done
"""
JOB = """
name: train
gang: [{{role: worker, members: 2, processes: 2, each: {{gpus: 2, nics: 2}}, run: [sh, -c, {run}]}}]
topology: {{required: leaf}}
traffic: {{data: 100GB}}
checkpoint: {{every: 1s, signal: SIGUSR1, grace: 2s, path: {path}}}
"""


BUSY = """
name: busy
gang: [{role: worker, members: 2, each: {gpus: 2}, run: [sleep, "600"]}]
topology: {required: leaf}
"""


def test_a_gang_on_a_degraded_link_stays_until_it_has_a_better_place_and_goes_on_from_its_checkpoint(
    gantree: Gantree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    monkeypatch.setenv("GANTREE_STATE", str(tmp_path / "state"))
    with Daemon(tmp_path / "state", CLUSTER, policy_text=POLICY) as daemon:
        daemon.client.submit(JOB.format(run=json.dumps(TRAINING), path=saved))
        daemon.wait("train", until="running")
        daemon.client.submit(BUSY)
        daemon.wait("busy", until="running")
        assert gantree("degrade", "nic:n0/mlx5_0", "nic:n0/mlx5_1", "--health", "0.1").code == 0
        weighed = gantree("why", "train").out
        assert "times as long as they would: nic n0/mlx5_0 carries 10 % of its rate" in weighed
        assert "staying loses" in weighed and "moving costs" in weighed
        daemon.client.cancel("busy")
        until(lambda: re.search(r"^from [1-9][0-9]* on n[23]$", logs(daemon), re.MULTILINE))
        detail = daemon.wait("train", until="running")
        assert (detail["attempt"], detail["preemptions"]) == (2, 0)
        assert "on 2 nodes in one leaf l1" in gantree("why", "train").out
        assert "Its steps take" not in gantree("why", "train").out


def logs(daemon: Daemon) -> str:
    """What all ranks of the newest attempt have printed so far."""
    found = (daemon.state_dir / "runs" / "train" / "2").glob("log/*.log")
    return "".join(each.read_text() for each in found)


def until(holds: Callable[[], object]) -> None:
    """Wait for a condition, for minutes if need be."""
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
