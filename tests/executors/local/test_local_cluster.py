"""Real gangs from start to end: what their processes see, and what becomes of them."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.local import gang, run_directory
from gantree.executors.local.processes import ShimId, is_alive, sweep
from gantree.executors.local.shim.shim import EPOCH_LOCK, boot_id, read_json
from gantree.model.events import GangEnded, GangStarted, GangStartFailed, MemberLost, RankExited
from support.gangs import GangStage, four_nodes, left_over, start_order

IGNORES_TERM = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def environment(stage: GangStage, rank: int) -> dict[str, str]:
    return dict(line.split("=", 1) for line in stage.log(rank).splitlines() if "=" in line)


def shim_of(stage: GangStage, node_rank: int, job: str = "j") -> ShimId:
    path = stage.state_dir / "runs" / job / "1" / f"m{node_rank}" / "shim.json"
    stage.until(path.exists)
    return ShimId(**read_json(str(path)))


def test_a_gang_runs_and_every_exit_code_is_told_once(stage: GangStage) -> None:
    stage.start("sh", "-c", "echo I am $RANK", members=2, processes=3)
    assert stage.until_ended() == 0
    stage.cluster.poll()
    assert stage.exit_codes() == dict.fromkeys(range(6), 0)
    assert [type(event) for event in stage.events] == [GangStarted, *[RankExited] * 6, GangEnded]
    assert [stage.log(rank) for rank in range(6)] == [f"I am {rank}\n" for rank in range(6)]
    assert len({event.id for event in stage.events}) == len(stage.events)


def test_each_process_sees_its_ranks_and_its_devices(stage: GangStage) -> None:
    stage.start(
        "env", members=2, processes=2, gpus=(3, 1), nics=("mlx5_1", "mlx5_3"), array_index=7
    )
    stage.until_ended()
    seen = environment(stage, 3)
    port = seen.pop("MASTER_PORT")
    expected = {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1",
        "MASTER_ADDR": "127.0.0.1", "CUDA_VISIBLE_DEVICES": "3,1", "NCCL_IB_HCA": "=mlx5_1,mlx5_3",
        "GANTREE_JOB": "j", "GANTREE_ATTEMPT": "1", "GANTREE_ROLE": "worker", "GANTREE_MEMBER": "1",
        "GANTREE_NODE": "n1", "GANTREE_ARRAY_INDEX": "7",
    }  # fmt: skip
    assert {name: seen.get(name) for name in expected} == expected
    assert [environment(stage, rank)["MASTER_PORT"] for rank in range(4)] == [port] * 4


def test_a_member_without_devices_sees_none(stage: GangStage) -> None:
    stage.start("env")
    stage.until_ended()
    seen = environment(stage, 0)
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    assert "NCCL_IB_HCA" not in seen
    assert "GANTREE_ARRAY_INDEX" not in seen


def test_the_jobs_own_variables_win_except_over_its_rank(
    stage: GangStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET", "hush")
    stage.start("env", env=(("LANG", "tlh"), ("RANK", "99"), ("CUDA_VISIBLE_DEVICES", "5")))
    stage.until_ended()
    seen = environment(stage, 0)
    assert (seen["LANG"], seen["RANK"], seen["CUDA_VISIBLE_DEVICES"]) == ("tlh", "0", "5")
    assert "SOME_SECRET" not in seen


def test_nobody_else_can_read_the_logs_or_the_state(stage: GangStage) -> None:
    stage.start("sh", "-c", "echo out; echo err >&2")
    stage.until_ended()
    log = stage.cluster.log_path("j", 1, 0)
    assert log.read_text() == "out\nerr\n"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (log, log.parent, stage.state_dir)]
    assert modes == [0o600, 0o700, 0o700]


def test_a_launch_prefix_and_a_workdir_are_used(tmp_path: Path) -> None:
    site = four_nodes(launch=("env", "PREFIX=yes"), address="127.0.0.7")
    stage = GangStage(tmp_path / "state", site)
    stage.start("sh", "-c", "echo $PREFIX $MASTER_ADDR $PWD", workdir=str(tmp_path))
    assert stage.until_ended() == 0
    assert stage.log() == f"yes 127.0.0.7 {tmp_path}\n"


def test_two_gangs_at_once_meet_at_different_ports(stage: GangStage) -> None:
    for job in ("a", "b", "c"):
        stage.start("sh", "-c", "echo $MASTER_PORT; sleep 5", job=job)
    stage.until_told(GangStarted, 3)
    stage.until(lambda: all(stage.log(job=job) for job in ("a", "b", "c")))
    assert len({stage.log(job=job) for job in ("a", "b", "c")}) == 3


def test_one_rank_that_fails_stops_the_gang_with_its_exit_code(stage: GangStage) -> None:
    script = "if [ $RANK = 3 ]; then sleep 0.2; exit 7; fi; sleep 600"
    stage.start("sh", "-c", script, members=3, processes=2)
    assert stage.until_ended() == 7
    assert stage.exit_codes() == {rank: 7 if rank == 3 else 143 for rank in range(6)}
    assert stage.told(RankExited)[0].rank == 3


def test_a_rank_killed_by_a_signal_counts_as_the_shell_does(stage: GangStage) -> None:
    stage.start("sh", "-c", "kill -SEGV $$")
    assert stage.until_ended() == 139


def test_who_ignores_sigterm_is_killed_after_the_grace(stage: GangStage) -> None:
    stage.start("sh", "-c", IGNORES_TERM, members=2)
    stage.until(lambda: all("ready" in stage.log(rank) for rank in range(2)))
    began_at = time.monotonic()
    stage.stop(grace_s=0.5)
    assert stage.until_ended() == 137
    assert time.monotonic() - began_at >= 0.5
    assert stage.exit_codes() == {0: 137, 1: 137}


def test_who_ends_well_on_sigterm_ends_with_0(stage: GangStage) -> None:
    stage.start("sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done")
    stage.until(lambda: "ready" in stage.log())
    stage.stop()
    assert stage.until_ended() == 0
    assert not stage.told(GangEnded)[0].unprompted


def test_who_ended_before_the_stop_arrived_ended_unprompted(stage: GangStage) -> None:
    stage.start("true")
    stage.until(lambda: list(stage.cluster.log_path("j", 1, 0).parent.parent.rglob("ended.json")))
    stage.stop()
    assert stage.until_ended() == 0
    assert stage.told(GangEnded)[0].unprompted


def test_a_second_stop_can_bring_the_end_nearer_but_not_put_it_off(stage: GangStage) -> None:
    stage.start("sh", "-c", IGNORES_TERM)
    stage.until(lambda: "ready" in stage.log())
    stage.stop(grace_s=600)
    stage.stop(grace_s=0.3)
    stage.stop(grace_s=600)
    stage.until_ended()


@pytest.mark.parametrize(
    "spawn",
    [
        "sleep 61 & exec sleep 61",
        "setsid sleep 61 & exec sleep 61",
        "(setsid sh -c 'sleep 61 & sleep 61' &) ; exec sleep 61",
        "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & exec sleep 61",
    ],
)
def test_grandchildren_go_with_the_gang(stage: GangStage, spawn: str) -> None:
    stage.start("sh", "-c", spawn)
    stage.until(lambda: len(left_over(stage.state_dir)) >= 2)
    stage.stop(grace_s=0.2)
    stage.until_ended()
    assert left_over(stage.state_dir) == []


def test_what_a_finished_rank_leaves_behind_is_killed(stage: GangStage) -> None:
    stage.start("sh", "-c", "setsid sleep 61 & exit 0")
    assert stage.until_ended() == 0
    assert left_over(stage.state_dir) == []


@pytest.mark.parametrize(
    ("run", "fields", "sentence", "exit_code"),
    [
        (
            ("no-such-command",),
            {},
            "rank 0 on node n0 could not run the command 'no-such-command'",
            127,
        ),
        (("/etc/passwd",), {}, "could not run the command '/etc/passwd': Permission denied", 126),
        (
            ("true",),
            {"workdir": "/no/such/dir"},
            "could not enter its working directory /no/such/dir",
            127,
        ),
        ((), {}, "role 'worker' has no command to run", 126),
        (("true",), {"checkpoint_signal": "SIGWINK"}, "this machine has no signal 'SIGWINK'", 126),
        (
            ("true",),
            {"env": (("A=B", "1"),)},
            "could not run the command 'true': illegal environment",
            126,
        ),
        (("true",), {"members": 5}, "the cluster has no node 'n4'", 126),
    ],
)
def test_what_cannot_be_started_says_why(
    stage: GangStage, run: tuple[str, ...], fields: dict[str, Any], sentence: str, exit_code: int
) -> None:
    stage.start(*run, **fields)
    assert stage.until_ended() == exit_code
    assert [type(event) for event in stage.events] == [GangStartFailed, GangEnded]
    assert sentence in stage.told(GangStartFailed)[0].reason


def start_one_that_cannot(stage: GangStage, later: int) -> int:
    """Two members, of which the second cannot start; one of them does not come up yet: the pid of its shim."""
    order = start_order("sleep", "600", members=2, processes=2)
    bad = replace(order.members[1], run=("no-such-command",))
    with (stage.state_dir / EPOCH_LOCK).open("a") as gate:  # no shim comes up while it is held
        fcntl.flock(gate, fcntl.LOCK_EX)
        stage.cluster.carry_out(replace(order, members=(order.members[0], bad)))
        shim = stage.cluster._gangs["j", 1].members[later]._child
        assert shim is not None
        os.kill(shim, signal.SIGSTOP)
    return shim


def test_if_one_member_cannot_start_those_that_run_are_stopped_and_their_ends_are_told(
    stage: GangStage,
) -> None:
    shim = start_one_that_cannot(stage, later=1)
    stage.until((stage.state_dir / "runs/j/1/m0/started.json").exists)
    os.kill(shim, signal.SIGCONT)
    assert stage.until_ended() == 127
    assert type(stage.events[0]) is GangStartFailed
    assert stage.exit_codes() == {0: 143, 1: 143}
    assert left_over(stage.state_dir) == []


def test_if_one_member_cannot_start_those_that_come_up_later_start_nothing(
    stage: GangStage,
) -> None:
    """So there is no end of a rank to be told: the stop was there before the shim looked for the first time."""
    shim = start_one_that_cannot(stage, later=0)
    stage.until((stage.state_dir / "runs/j/1/m0/stop.json").exists)
    os.kill(shim, signal.SIGCONT)
    assert stage.until_ended() == 127
    assert type(stage.events[0]) is GangStartFailed
    assert stage.exit_codes() == {}
    assert not stage.cluster.log_path("j", 1, 0).exists()


def test_starting_twice_is_starting_once(stage: GangStage, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f"echo $$ >> {starts}; sleep 0.5"
    stage.start("sh", "-c", script)
    stage.start("sh", "-c", script)
    stage.open()
    stage.start("sh", "-c", script)
    stage.until_ended()
    stage.start("sh", "-c", script)
    stage.cluster.poll()
    assert len(starts.read_text().splitlines()) == 1


def test_a_stop_that_comes_before_the_start_wins(stage: GangStage, tmp_path: Path) -> None:
    stage.stop()
    assert stage.until_ended() == 143
    stage.start("touch", str(tmp_path / "ran"))
    stage.open().adopt()
    stage.start("touch", str(tmp_path / "ran"))
    stage.until(lambda: True)
    time.sleep(0.2)
    assert not (tmp_path / "ran").exists()
    assert {event.id for event in stage.events} == {"j/1/ended"}


def test_a_stop_right_behind_the_start_ends_it(stage: GangStage) -> None:
    stage.start("sleep", "600", members=4)
    stage.stop()
    assert stage.until_ended() == 143


def test_orders_of_a_leader_that_was_replaced_are_refused(stage: GangStage) -> None:
    stage.start("sleep", "600", epoch=3)
    stage.until_told(GangStarted)
    stage.stop(epoch=2)
    stage.open().adopt()
    stage.stop(epoch=2)
    stage.start("sleep", "600", job="other", epoch=2)
    time.sleep(0.2)
    stage.cluster.poll()
    assert dict(stage.cluster.inventory().attempts) == {("j", 1): "running"}
    stage.stop(epoch=4)
    assert stage.until_ended() == 143


@pytest.mark.parametrize(
    "script", ["exec sleep 61", "(setsid sleep 61 &); sleep 61 & exec sleep 61"]
)
def test_a_killed_shim_is_a_lost_member_and_leaves_nothing(stage: GangStage, script: str) -> None:
    stage.start("sh", "-c", script, members=2, processes=2)
    stage.until_told(GangStarted)
    stage.until(lambda: len(left_over(stage.state_dir)) >= 4 * (script.count("sleep")))
    os.kill(shim_of(stage, 1).pid, 9)
    assert stage.until_ended() == 137
    assert left_over(stage.state_dir) == []
    lost = stage.told(MemberLost)
    assert [(event.role, event.member) for event in lost] == [("worker", 1)]
    assert stage.exit_codes() == {0: 143, 1: 143}


def test_a_process_that_hid_from_its_dead_shim_is_found_by_its_cgroup(stage: GangStage) -> None:
    stage.start("sh", "-c", "env -i setsid sleep 61.25 & exec sleep 61")
    stage.until_told(GangStarted)
    shim = shim_of(stage, 0)
    if shim.cgroup is None:
        stage.stop()
        pytest.skip("no cgroup may be created here")
    procs = Path(shim.cgroup) / "cgroup.procs"
    stage.until(lambda: len(procs.read_text().split()) == 2)
    os.kill(shim.pid, 9)
    stage.until_ended()
    stage.until(lambda: not Path(shim.cgroup or "").exists())


def test_a_shim_heeds_sigterm_and_no_terminal(stage: GangStage) -> None:
    stage.start("sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done")
    stage.until(lambda: "ready" in stage.log())
    pid = shim_of(stage, 0).pid
    assert os.getsid(pid) == pid
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(pid, number)
    time.sleep(0.1)
    stage.cluster.poll()
    assert stage.exit_codes() == {}
    os.kill(pid, signal.SIGTERM)
    assert stage.until_ended() == 3


def test_ranks_die_with_their_shim_even_if_nobody_looks(stage: GangStage) -> None:
    stage.start("sleep", "600", processes=2)
    stage.until_told(GangStarted)
    ranks = left_over(stage.state_dir)
    os.kill(shim_of(stage, 0).pid, 9)
    deadline = time.monotonic() + 300
    while left_over(stage.state_dir) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(ranks) == 2
    assert left_over(stage.state_dir) == []


def test_leftovers_are_found_by_the_mark_alone(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("mine", "mine-too", "others")]
    sleepers = [
        subprocess.Popen(["sleep", "600"], env={"GANTREE_RUN": folder}, start_new_session=True)
        for folder in folders
    ]
    try:
        # Popen returns a moment before the kernel shows the new environment.
        for sleeper in sleepers:
            while not Path(f"/proc/{sleeper.pid}/environ").read_bytes():
                time.sleep(0.001)
        assert sweep(dict.fromkeys(folders[:2])) == set(folders[:2])
        assert [sleeper.wait(90) for sleeper in sleepers[:2]] == [-9, -9]
        assert sweep(dict.fromkeys(folders[:2])) == set()
        assert sleepers[2].poll() is None
    finally:
        sleepers[2].kill()
        sleepers[2].wait()


def test_inventory_tells_whole_gangs_from_broken_ones(stage: GangStage) -> None:
    stage.start("sleep", "600", job="whole", members=2)
    stage.start("true", job="over")
    stage.start("sh", "-c", f"[ $RANK = 1 ] || {IGNORES_TERM}", job="half", members=2)
    stage.until(lambda: len(stage.told(GangEnded)) == 1 and "ready" in stage.log(job="half"))
    stage.stop(grace_s=60, job="half")
    known = stage.cluster.inventory()
    assert [known.status(job, 1) for job in ("whole", "over", "half", "unknown")] == [
        "running", "ended", "partial", "absent",
    ]  # fmt: skip


def test_a_settled_end_is_not_told_again(stage: GangStage) -> None:
    stage.start("true")
    stage.until_ended()
    stage.cluster.settle("j", 1)
    stage.events.clear()
    stage.open().adopt()
    assert stage.events == []
    assert stage.cluster.inventory().status("j", 1) == "absent"


@pytest.mark.parametrize("job", ["..", "../x", "a/b", "", ".hidden", "a\0b", "x" * 300])
def test_an_id_that_is_no_plain_name_is_refused(stage: GangStage, job: str) -> None:
    stage.start("true", job=job)
    stage.cluster.poll()
    assert [type(event) for event in stage.events] == [GangStartFailed, GangEnded]
    assert sorted(path.name for path in stage.state_dir.iterdir()) == []


def test_carry_out_does_not_wait_for_a_gang(
    stage: GangStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shims begin once there is a file, which somebody else makes only if this waits for them."""
    go, python = tmp_path / "go", tmp_path / "python"
    waits = f"until [ -e '{go}' ]; do sleep 0.01; done"
    python.write_text(f"#!/bin/sh\n{waits}\nexec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    rescue = threading.Timer(20, go.touch)
    rescue.start()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        stage.start("true", members=2, processes=8)
    assert not go.exists()
    rescue.cancel()
    go.touch()
    assert stage.until_ended() == 0
    assert len(stage.exit_codes()) == 16


def test_a_gang_that_cannot_even_be_put_down_has_failed(
    stage: GangStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, value: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gang, "write_json", full)
    monkeypatch.setattr(run_directory, "write_json", full)
    stage.start("true")
    assert stage.until_ended() == 126
    assert "No space left on device" in stage.told(GangStartFailed)[0].reason
    stage.open().adopt()
    assert dict(stage.cluster.inventory().attempts) == {}


def test_an_event_that_could_not_be_handed_over_is_told_again(stage: GangStage) -> None:
    def refuse(event: object) -> None:
        raise OSError("the disk is full")

    take, stage.emit = stage.emit, refuse
    stage.start("true")
    with pytest.raises(OSError, match="the disk is full"):
        stage.until_ended()
    stage.emit = take
    assert stage.until_ended() == 0
    assert [event.id for event in stage.events] == ["j/1/started", "j/1/rank-0-exited", "j/1/ended"]


def test_shims_and_zombies_are_gone_when_the_end_is_told(stage: GangStage) -> None:
    stage.start("true", members=2)
    stage.until_told(GangStarted)
    shims = [shim_of(stage, number) for number in range(2)]
    stage.until_ended()
    assert not any(is_alive(shim, boot_id()) for shim in shims)
    assert not any(Path(f"/proc/{shim.pid}").exists() for shim in shims)
