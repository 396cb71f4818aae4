"""Scripts, progress, records and reruns through a real daemon, before and after a kill -9."""

import sys
import time
from pathlib import Path

import pytest

from gantree.cli.main import main
from gantree.model.errors import Conflict, NotFound
from support.daemon import Daemon

CLUSTER = """
name: two-leaves
tiers: [spine, leaf, node]
machines:
  m4: {gpus: 4, gpu: H100-80GB, cpus: 32, memory_GiB: 256, nics: 2}
nodes:
  - {names: "n[0-1]", machine: m4, at: {spine: s0, leaf: l0}}
  - {names: "n[2-3]", machine: m4, at: {spine: s0, leaf: l1}}
"""
SCRIPT = f"""#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=2 --gpus-per-node=4 --account=nobody
#SBATCH --switches=1 --job-name=train
echo task $SLURM_PROCID of $SLURM_NTASKS on $SLURM_JOB_NODELIST
exec {sys.executable} -S -c '
import sys, time; sys.path.insert(0, "{Path(__file__).parents[3] / "src"}")
from gantree import training
training.progress(7, loss=float("nan"), samples_per_s=50)
while not sys.argv[1:]: time.sleep(0.1)
' "$@"
"""


def gantree(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    capfd.readouterr()
    try:
        main(list(words))
    except SystemExit as left:
        assert not left.code, capfd.readouterr().err
    found = capfd.readouterr()
    return found.out, found.err


def test_a_script_runs_says_how_far_it_is_and_runs_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script, state = tmp_path / "train.sh", str(tmp_path / "state")
    script.write_text(SCRIPT)
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        out, err = gantree(capfd, "submit", "--state", state, str(script))
        assert out == "train\n"
        assert f"{script}:2: #SBATCH --account has no effect here" in err
        daemon.wait("train", until="running")
        while (told := daemon.client.job("train"))["progress"] is None:
            time.sleep(0.02)
        assert (told["progress"]["step"], told["progress"]["loss"]) == (7, "NaN")
        daemon.kill()
        daemon.start()
        (row,) = daemon.client.jobs()
        assert row["progress"] == told["progress"]
        assert "step 7, loss NaN, 50 samples/s" in gantree(capfd, "jobs", "--state", state)[0]
        while not (record := daemon.client.record("train"))["found"]:
            time.sleep(0.02)
        assert record["roles"]["worker"]["script"]["path"] == str(script)
        assert [each["domains"]["leaf"] for each in record["members"]] == ["s0/l0", "s0/l0"]
        assert record["policy"] and record["gantree"]
        shown = gantree(capfd, "record", "train", "--state", state)[0]
        assert "train, attempt 1: 4 ranks in leaf s0/l0" in shown
        script.write_text(SCRIPT + "# changed\n")
        again = daemon.client.rerun("train")
        assert [each["job"] for each in again["jobs"]] == ["train-2"]
        assert any(f"the script {script} has changed" in each for each in again["warnings"])
        assert daemon.client.job("train-2")["spec"]["topology"]["required"] == "leaf"
        assert "task 3 of 4 on n[0-1]" in b"".join(daemon.client.logs("train", rank=3)).decode()
        with pytest.raises(NotFound, match="no attempt 9"):
            daemon.client.record("train", attempt=9)
        daemon.client.cancel("train")
        daemon.client.cancel("train-2")
        daemon.wait("train")
        daemon.wait("train-2")
        out, _ = gantree(
            capfd, "run", "--state", state, "-n", "1", "--name", "once", str(script), "end"
        )
        assert "task 1 of 2 on" in out
        assert daemon.client.job("once")["progress"]["step"] == 7
        daemon.stop()
        daemon._cluster_file.write_text(
            CLUSTER.replace("leaf: l0}", "leaf: l2}")
            .replace("n[0-1]", "n0")
            .replace("n[2-3]", "n1")
        )
        daemon.start()
        with pytest.raises(Conflict, match="no place equal to that of train attempt 1"):
            daemon.client.rerun("train")
        anyhow = daemon.client.rerun("train", anyhow=True)
        assert any("not on an equal place" in each for each in anyhow["warnings"])
