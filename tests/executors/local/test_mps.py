"""Gangs that share GPUs by mps: control daemons by a stand-in for NVIDIA's program, started, found, shared, ended."""

import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.executors.local.launch.visible_gpus import gpu_indices
from gantree.executors.local.partitions.worker import GpuPreparation
from gantree.executors.local.sharing.mps_daemons import MpsDaemons
from gantree.model.events import GangEnded, GangStarted, GangStartFailed
from gantree.model.orders import StartGang
from gantree.model.placements import SharePart
from support.gangs import GangStage, four_nodes, left_over, start_order
from support.mps_control import program_in

SHOW = ("sh", "-c", "env | grep ^CUDA_ | sort")


class Shared(GangStage):
    """A stage whose node n0 starts MPS control daemons with a stand-in."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.program = program_in(self.bin)
        super().__init__(folder / "s", four_nodes(), mps_program_of=self._program)

    def _program(self, node: str) -> str | None:
        return self.program if node == "n0" else None

    def share(
        self, *run: str, gpu: int = 1, job: str = "j", way: str = "mps", node: str = "n0"
    ) -> StartGang:
        """Start a gang of one member with half of a GPU."""
        order = start_order(*run, job=job)
        part = SharePart(gpu, 0.5, 20.0, way)
        order = replace(order, members=(replace(order.members[0], share=part, node=node),))
        self.cluster.carry_out(order)
        return order

    def fail(self, *faults: str) -> None:
        """Have the stand-in fail."""
        (self.bin / "faults").write_text(" ".join(faults))

    def commands(self) -> list[str]:
        """The first word of each command that control daemons were given."""
        noted = self.bin / "commands"
        return (
            [line.split()[0] for line in noted.read_text().splitlines()] if noted.exists() else []
        )

    def folders(self) -> list[str]:
        """The folders of control daemons."""
        return sorted(path.name for path in (self.state_dir / "mps").glob("*"))

    def pid(self, folder: str = "0") -> int:
        """The process id of a control daemon."""
        return int((self.state_dir / "mps" / folder / "nvidia-cuda-mps-control.pid").read_text())

    def until_none(self) -> None:
        """Wait until no control daemon is on record, and none is left."""
        self.until(lambda: not MpsDaemons(self.state_dir, self._program, gpu_indices).has_any)
        self.until(lambda: not left_over(self.state_dir / "mps"))
        assert self.folders() == []


@pytest.fixture
def stage() -> Iterator[Shared]:
    # Sockets have short paths; those of pytest's folders are long. A file may still be written as the folder goes.
    with tempfile.TemporaryDirectory(prefix="mps", ignore_cleanup_errors=True) as folder:
        stage = Shared(Path(folder))
        yield stage
        stage.end_all()
        stage.until_none()
        stage.cluster.close()
        assert left_over(Path(folder)) == []


def test_the_first_tenant_starts_a_control_daemon_and_the_last_ends_it(stage: Shared) -> None:
    stage.share("sleep", "600", job="one")
    stage.share("sleep", "600", job="two")
    stage.until_told(GangStarted, 2)
    pid = stage.pid()
    assert stage.folders() == ["0"]
    assert stage.commands().count("start_server") == 1
    stage.stop(0, job="one")
    stage.until_told(GangEnded)
    os.kill(pid, 0)
    stage.stop(0, job="two")
    stage.until_told(GangEnded, 2)
    stage.until_none()
    assert stage.commands().count("quit") == 1


def test_tenants_find_their_control_daemon_and_have_their_limits(stage: Shared) -> None:
    stage.share(*SHOW)
    assert stage.until_ended() == 0
    assert stage.log().splitlines() == [
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50",
        f"CUDA_MPS_LOG_DIRECTORY={stage.state_dir}/mps/0/log",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M",
        f"CUDA_MPS_PIPE_DIRECTORY={stage.state_dir}/mps/0",
        "CUDA_VISIBLE_DEVICES=1",
    ]


def test_each_gpu_has_a_control_daemon_that_sees_it_alone(stage: Shared) -> None:
    stage.share("sleep", "600", gpu=2, job="one")
    stage.share("sleep", "600", gpu=3, job="two")
    stage.until_told(GangStarted, 2)
    assert stage.folders() == ["0", "1"]
    seen = [
        Path(f"/proc/{stage.pid(folder)}/environ").read_bytes().split(b"\0")
        for folder in stage.folders()
    ]
    assert [b"CUDA_VISIBLE_DEVICES=2" in seen[0], b"CUDA_VISIBLE_DEVICES=3" in seen[1]] == [
        True
    ] * 2


def test_time_sliced_shares_and_nodes_of_the_site_get_no_control_daemon(stage: Shared) -> None:
    stage.share(*SHOW, job="slices", way="time-slicing")
    stage.share(*SHOW, job="site", node="n1")
    stage.until_told(GangEnded, 2)
    assert stage.commands() == []
    assert "CUDA_MPS_PIPE_DIRECTORY" not in stage.log(job="slices") + stage.log(job="site")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("daemon", "the MPS control daemon did not start: Failed to start MPS control daemon: no device"),
        ("server", "the MPS server did not start: Failed to start server for"),
        ("fault", "the MPS server is in a fault"),
    ],
)  # fmt: skip
def test_what_does_not_start_fails_the_attempt_in_words_and_leaves_nothing(
    stage: Shared, fault: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantree.executors.local.sharing.mps_control.UP_WITHIN_S", 0.3)
    stage.fail(fault)
    stage.share("true")
    told = stage.until_told(GangStartFailed)
    assert reason in told.reason
    assert not told.final
    assert stage.until_ended() == 126
    stage.until_none()


def test_a_missing_program_fails_the_job_for_good(stage: Shared) -> None:
    Path(stage.program).unlink()
    stage.share("true")
    told = stage.until_told(GangStartFailed)
    assert "which is not installed here" in told.reason
    assert told.final


def test_a_control_daemon_that_does_not_quit_is_killed(stage: Shared) -> None:
    stage.fail("deaf")
    stage.share("true")
    stage.until_ended()
    stage.until_none()


def test_a_daemon_that_starts_again_goes_on_with_the_control_daemon(stage: Shared) -> None:
    stage.share("sleep", "600", job="one")
    stage.until_told(GangStarted)
    pid = stage.pid()
    stage.open().adopt()
    stage.share("sleep", "600", job="two")
    stage.until_told(GangStarted, 2)
    assert stage.pid() == pid
    assert stage.commands().count("start_server") == 1


def test_what_nobody_needs_any_more_is_ended_at_the_next_start(
    stage: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GpuPreparation, "end_sharing", lambda *of: None)
        stage.share("true")
        stage.until_ended()
    os.kill(stage.pid(), 0)
    stage.open().adopt()
    stage.until_none()


def test_a_crash_between_the_control_daemon_and_its_tenant_is_made_good(
    stage: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GpuPreparation, "finished", lambda self: iter(()))
        stage.share(*SHOW)
        thread = stage.cluster._launcher._preparation._thread
        assert thread is not None
        thread.join()
    pid = stage.pid()
    stage.open().adopt()
    stage.until_told(GangStarted)
    assert stage.commands().count("start_server") == 1
    assert pid
    stage.until_ended()
    stage.until_none()


@pytest.mark.parametrize("fault", ["", "zero"])
def test_a_control_daemon_that_died_is_started_anew_for_the_next_tenant(
    stage: Shared, fault: str
) -> None:
    """Whatever status the program ends with where it finds none."""
    stage.fail(fault)
    stage.share("sleep", "600", job="one")
    stage.until_told(GangStarted)
    pid = stage.pid()
    os.kill(pid, signal.SIGKILL)
    stage.share("sleep", "600", job="two")
    stage.until_told(GangStarted, 2)
    assert stage.pid() != pid


def test_a_path_too_long_for_sockets_is_named_with_the_way_out(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 60)
    folder.mkdir()
    stage = Shared(folder)
    stage.share("true")
    assert "start the daemon with a shorter --state" in stage.until_told(GangStartFailed).reason
    stage.until_ended()
    stage.cluster.close()
