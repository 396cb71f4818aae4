"""Real gangs for tests: start them with few words, wait for what they come to, and find what was left over."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from gantree.executors.local.cluster import LocalCluster
from gantree.executors.local.epochs import EpochFile
from gantree.executors.local.partitions.partitions import PartitionerOf, no_partitioner
from gantree.executors.local.run_limits import DEFAULT_LIMITS, RunLimits
from gantree.executors.local.sharing.mps_daemons import MpsProgramOf, no_mps_program
from gantree.executors.local.sharing.time_slices import TimeSliceOf, no_time_slice
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.events import Event, GangEnded, RankExited
from gantree.model.orders import MemberLaunch, SaveCheckpoint, StartGang, StopGang

E = TypeVar("E", bound=Event)

QUICK_PYTHON = (sys.executable, "-I", "-S", "-c")
"""A Python that is up in 10 ms."""


def four_nodes(**node_fields: Any) -> Cluster:
    """A cluster of the nodes n0 to n3, eight GPUs each."""
    nodes = tuple(Node(f"n{number}", "m8", **node_fields) for number in range(4))
    return Cluster("test", ("node",), {"m8": Machine("m8", 8)}, nodes)


def left_over(state_dir: Path) -> list[int]:
    """Pids of all processes that carry the mark of a run below state_dir."""
    mark = b"GANTREE_RUN=" + os.fsencode(state_dir.resolve())
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


class GangStage:
    """A LocalCluster on a state directory, what it told, and orders in few words."""

    def __init__(
        self,
        state_dir: Path,
        cluster: Cluster,
        failure_grace_s: float = 5.0,
        limits: RunLimits = DEFAULT_LIMITS,
        partitioner_of: PartitionerOf = no_partitioner,
        mps_program_of: MpsProgramOf = no_mps_program,
        time_slice_of: TimeSliceOf = no_time_slice,
    ) -> None:
        self.time_slice_of = time_slice_of
        self.mps_program_of = mps_program_of
        self.partitioner_of = partitioner_of
        self.state_dir = state_dir
        self.events: list[Event] = []
        self.emit: Callable[[Event], None] = self.events.append
        self._site = cluster
        self._failure_grace_s = failure_grace_s
        self.limits = limits
        self.cluster = self.open()

    def open(self) -> LocalCluster:
        """A new LocalCluster on the same directory, as a restarted daemon would have it."""
        self.cluster = LocalCluster(
            self.state_dir,
            self._site,
            lambda event: self.emit(event),  # noqa: PLW0108  # a test may put another emit there
            time.time,
            failure_grace_s=self._failure_grace_s,
            limits=self.limits,
            partitioner_of=self.partitioner_of,
            mps_program_of=self.mps_program_of,
            time_slice_of=self.time_slice_of,
        )
        return self.cluster

    def start(self, *run: str, job: str = "j", attempt: int = 1, **fields: Any) -> StartGang:
        """Start one gang; fields are those of `start_order`."""
        order = start_order(*run, job=job, attempt=attempt, **fields)
        self.cluster.carry_out(order)
        return order

    def stop(self, grace_s: float = 5.0, job: str = "j", attempt: int = 1, epoch: int = 0) -> None:
        """Stop one gang."""
        order_id = f"{job}/{attempt}/stop"
        self.cluster.carry_out(
            StopGang(id=order_id, job=job, attempt=attempt, epoch=epoch, grace_s=grace_s)
        )

    def save(self, request: str = "r1", job: str = "j", attempt: int = 1) -> None:
        """Ask one gang for a checkpoint."""
        self.cluster.carry_out(
            SaveCheckpoint(
                id=request, job=job, attempt=attempt, request=request, deadline_at=time.time() + 60
            )
        )

    def told(self, kind: type[E]) -> list[E]:
        """What was told of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def exit_codes(self) -> dict[int, int]:
        """Exit code by rank, of all gangs together."""
        return {event.rank: event.exit_code for event in self.told(RankExited)}

    def until(self, holds: Callable[[], object], timeout_s: float = 300) -> None:
        """Poll until something holds. Raises AssertionError with all that was told if it never does."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.cluster.poll()
            if holds():
                return
            assert time.monotonic() < deadline, f"waited {timeout_s} s in vain; told: {self.events}"
            time.sleep(0.01)

    def until_told(self, kind: type[E], count: int = 1) -> E:
        """Poll until something was told so often; returns the last of it."""
        self.until(lambda: len(self.told(kind)) >= count)
        return self.told(kind)[-1]

    def until_ended(self) -> int:
        """Poll until the one gang has ended; its exit code."""
        return self.until_told(GangEnded).exit_code

    def until_file(self, path: Path) -> str:
        """Poll until a file has something in it; its text."""
        self.until(lambda: path.exists() and path.read_text())
        return path.read_text()

    def log(self, rank: int = 0, job: str = "j", attempt: int = 1) -> str:
        """What a rank has printed so far."""
        path = self.cluster.log_path(job, attempt, rank)
        return path.read_text() if path.exists() else ""

    def end_all(self) -> None:
        """Stop whatever still runs, and wait until it is gone."""
        self.open().adopt()
        running = [
            key for key, status in self.cluster.inventory().attempts.items() if status != "ended"
        ]
        for job, attempt in running:
            self.stop(0.0, job, attempt, EpochFile(self.state_dir).newest())
        self.until(lambda: set(self.cluster.inventory().attempts.values()) <= {"ended"})


def start_order(
    *run: str,
    job: str = "j",
    attempt: int = 1,
    members: int = 1,
    processes: int = 1,
    epoch: int = 0,
    gpus: tuple[int, ...] = (),
    nics: tuple[str, ...] = (),
    env: tuple[tuple[str, str], ...] = (),
    workdir: str | None = "/tmp",  # any folder that is always there will do
    **order_fields: Any,
) -> StartGang:
    """An order for `members` members of `processes` processes each, one on n0, one on n1 and so on."""
    launches = tuple(
        MemberLaunch(
            role="worker",
            rank=number,
            node=f"n{number}",
            node_rank=number,
            first_rank=number * processes,
            processes=processes,
            gpus=gpus,
            nics=nics,
            run=run,
            env=env,
            workdir=workdir,
        )
        for number in range(members)
    )
    return StartGang(
        id=f"{job}/{attempt}/start",
        job=job,
        attempt=attempt,
        epoch=epoch,
        world_size=members * processes,
        members=launches,
        **order_fields,
    )
