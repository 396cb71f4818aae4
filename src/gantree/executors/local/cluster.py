"""The executor of this machine: real processes, on one node or on several virtual ones.

An order is carried out by writing it into the attempt's run directory and starting or waking a shim; events are read
from the same directory. So this object may end at any moment, by `close` or by kill -9, and the next one on the same
state directory has the same state. See docs/executor.md.

`emit` is called from `poll` and `adopt` only, never from `carry_out`: an order may be given in the middle of a
turn. Every event that is emitted can be derived again from disk, under the same id. Not safe for threads.
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gantree.executors.check_status import CheckStatus
from gantree.executors.exec_session import PendingExecSession, Terminal
from gantree.executors.inventory import Inventory
from gantree.executors.local import processes
from gantree.executors.local.checking.files import MarkFaults, check_in, no_marks
from gantree.executors.local.checking.plan import PriceCheck, no_prices
from gantree.executors.local.epochs import LeaderGuard
from gantree.executors.local.exec_sessions import address_of, open_exec_session, running_member
from gantree.executors.local.gang import Gang
from gantree.executors.local.gang_launcher import GangLauncher
from gantree.executors.local.host_use import host_use_in
from gantree.executors.local.launch.visible_gpus import (
    GpuIds,
    MigIds,
    gpu_indices,
    no_instances,
)
from gantree.executors.local.partitions.created_instances import NodePart
from gantree.executors.local.partitions.partitions import (
    PartitionerOf,
    Partitions,
    no_partitioner,
    parts_of,
)
from gantree.executors.local.partitions.worker import GpuPreparation
from gantree.executors.local.progress_file import curve_in, progress_in
from gantree.executors.local.recording.changes import changes
from gantree.executors.local.recording.recorder import (
    About,
    Recorder,
    VersionsOfNode,
    no_versions,
    nothing,
    record_in,
)
from gantree.executors.local.run_directory import (
    RunDirectory,
    is_job_id,
    order_from_json,
    order_to_json,
)
from gantree.executors.local.run_limits import DEFAULT_LIMITS, RunLimits
from gantree.executors.local.run_pruner import RunPruner
from gantree.executors.local.sharing.mps_daemons import (
    MpsDaemons,
    MpsProgramOf,
    no_mps_program,
)
from gantree.executors.local.sharing.shared_gpus import SharedGpu, shared_gpus
from gantree.executors.local.sharing.time_slices import TimeSliceOf, TimeSlices, no_time_slice
from gantree.executors.local.shim.shim import boot_id, read_json
from gantree.executors.local.step_times_file import step_reports_in
from gantree.executors.local.unix_users import RunAs
from gantree.executors.progress import Progress, StepReports
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput, NotFound
from gantree.model.events import Event, GangEnded, GangStartFailed
from gantree.model.host_use import HostUse
from gantree.model.orders import (
    Order,
    ReplaceMember,
    ResumeGang,
    SaveCheckpoint,
    SignalGang,
    StartGang,
    StopGang,
    SuspendGang,
    WriteToLog,
)

FAILURE_GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL for the rest of a gang that broke."""

CLEAR_PASSES = 2
"""A process shows no environment for a moment while it becomes another command, so one pass could miss it."""

log = logging.getLogger(__name__)


def always() -> bool:
    """No other leader can give orders here."""
    return True


class LocalCluster:
    """Starts, watches and stops gangs on this machine, below state_dir.

    clock gives seconds since 1970. gpu_ids turns GPU indices into CUDA_VISIBLE_DEVICES (UUIDs on real GPUs), mig_ids
    returns the UUIDs of MIG instances, for each gang that has any. partitioner_of gives who partitions the GPUs of a
    node; None: nobody may, and instances are used as they are. mps_program_of gives the program that starts MPS
    control daemons on a node; None: the site runs them. time_slice_of gives the time slice of a node's shared GPUs.
    leads returns whether the leader of this daemon still leads, and is called before each action. limits say what
    output and old run directories may take of the disk. versions (of drivers, by node) and about (of the daemon) are
    for records. open_files is the soft limit of jobs on them; None: that of this process. price_check prices what
    checks measure, mark_faults makes the events for who is found at fault; both are called where orders are carried
    out and polls are made.
    Raises OSError where state_dir cannot be made.
    """

    checks_links = True
    runs_services = True

    def __init__(
        self,
        state_dir: Path,
        cluster: Cluster,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        *,
        gpu_ids: GpuIds = gpu_indices,
        mig_ids: MigIds = no_instances,
        partitioner_of: PartitionerOf = no_partitioner,
        mps_program_of: MpsProgramOf = no_mps_program,
        time_slice_of: TimeSliceOf = no_time_slice,
        failure_grace_s: float = FAILURE_GRACE_S,
        versions: VersionsOfNode = no_versions,
        about: About = nothing,
        run_as: RunAs | None = None,
        leads: Callable[[], bool] = always,
        limits: RunLimits = DEFAULT_LIMITS,
        open_files: int | None = None,
        price_check: PriceCheck = no_prices,
        mark_faults: MarkFaults = no_marks,
    ) -> None:
        self._mark_faults = mark_faults
        self._recorder = Recorder(versions, about)
        self._state_dir = state_dir.resolve()
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._runs = self._state_dir / "runs"
        self._node_of_name = {node.name: node for node in cluster.nodes}
        self._emit = emit
        self._clock = clock
        self._failure_grace_s = failure_grace_s
        self._boot_id = boot_id()
        self._gangs: dict[tuple[str, int], Gang] = {}
        self._active: dict[tuple[str, int], Gang] = {}
        self._impossible: list[Event] = []
        self._complaint_of: dict[tuple[str, int], str] = {}
        self._guard = LeaderGuard(self._state_dir, leads)
        self._launcher = GangLauncher(
            cluster, self._state_dir, self._recorder, gpu_ids, mig_ids, failure_grace_s, run_as,
            lambda: self._guard.epoch,
            GpuPreparation(
                Partitions(self._state_dir, partitioner_of),
                MpsDaemons(self._state_dir, mps_program_of, gpu_ids),
                TimeSlices(self._state_dir, time_slice_of, gpu_ids),
            ),
            self._held_by_others, limits, open_files, price_check,
        )  # fmt: skip
        self._pruner = RunPruner(self._runs, limits)

    def carry_out(self, order: Order) -> None:
        """Begin to carry out an order. What goes wrong becomes an event of a later poll, never an exception."""
        try:
            if self._guard.admits(order):
                self._carry_out(order)
        except OSError:
            log.exception("order %s could not be carried out", order.id)
        except BadInput as error:
            log.error("order %s could not be carried out: %s", order.id, error)
            self._impossible += _failed_and_ended(order, self._clock(), str(error))

    def _carry_out(self, order: Order) -> None:
        gang = self._gang(order.job, order.attempt)
        try:
            match order:
                case StartGang():
                    self._launcher.start(gang, order, self._taken_ports())
                case ReplaceMember():
                    gang.replace(order, order_to_json(order.gang))
                case StopGang():
                    gang.stop(order)
                case SaveCheckpoint():
                    gang.save(order)
                case SuspendGang() | ResumeGang():
                    gang.set_suspended(order)
                case SignalGang():
                    gang.signal(order)
                case WriteToLog():
                    gang.write_to_log(order)
                case _:
                    raise AssertionError(f"no such order: {order}")
        finally:
            self._watch(gang)

    def _taken_ports(self) -> set[int]:
        return {port for gang in self._active.values() for port in gang.ports}

    def _gang(self, job: str, attempt: int) -> Gang:
        """The gang, from memory or from its directory."""
        known = self._gangs.get((job, attempt))
        if known is not None:
            return known
        run = RunDirectory(self._runs, job, attempt)
        return Gang(run, self._boot_id, self._failure_grace_s, time.time_ns, self._mark_faults)

    def _watch(self, gang: Gang) -> None:
        """Look at it from now on, if there is anything to look at that is not watched yet."""
        key = (gang.run.job, gang.run.attempt)
        if key not in self._gangs and gang.exists:
            self._gangs[key] = self._active[key] = gang

    def poll(self) -> None:
        """Look once at everything that is not over, and emit what is new. What emit raises goes through."""
        if self._guard.is_deposed:
            return
        while self._impossible:
            self._emit(self._impossible[0])
            del self._impossible[0]
        self._launch_prepared()
        self._poll()
        self._sweep()
        for key, gang in list(self._active.items()):
            if gang.has_unstarted_replacement:
                self._start_replacements(gang)
            gang.emit_events(self._emit, self._clock())
            if gang.over:
                del self._active[key]
                self._complaint_of.pop(key, None)
                if gang.order is not None:
                    self._launcher.end_sharing(gang.order, self._shared_gpus())

    def _held_by_others(self, gang: Gang | None) -> frozenset[NodePart]:
        """The MIG instances of all gangs but one that are not over."""
        others = (each for each in self._active.values() if each is not gang and not each.over)
        orders = [each.order for each in others]
        return frozenset(part for order in orders if order for part in parts_of(order))

    def _shared_gpus(self) -> frozenset[SharedGpu]:
        """The GPUs that gangs share which are not over."""
        orders = [gang.order for gang in self._active.values() if not gang.over]
        return frozenset(gpu for order in orders if order for gpu in shared_gpus(order))

    def _launch_prepared(self) -> None:
        try:
            self._launcher.poll()
        except OSError:
            log.exception("a gang whose GPUs are ready could not be started; it is tried again")

    def _start_replacements(self, gang: Gang) -> None:
        try:
            self._launcher.start_replacements(gang)
        except OSError:
            log.exception("a member could not be replaced; it is tried again")

    def _poll(self) -> None:
        for gang in self._active.values():
            try:
                gang.poll()
            except OSError as error:
                self._complain(gang, error)

    def _complain(self, gang: Gang, error: OSError) -> None:
        """Report once what is wrong with the files of a gang; a gang with damaged files cannot go on."""
        key, complaint = (gang.run.job, gang.run.attempt), str(error)
        if self._complaint_of.get(key) != complaint:
            self._complaint_of[key] = complaint
            log.error("job %s attempt %d: %s", *key, complaint)
        if error.errno == errno.EBADMSG:
            try:
                gang.fail(f"its run directory is damaged: {error.filename}")
            except OSError:
                log.exception("job %s attempt %d could not be stopped", *key)

    def _sweep(self) -> None:
        """Kill what dead shims left behind; a member is over once CLEAR_PASSES in a row find nothing of it."""
        members = [member for gang in self._active.values() for member in gang.to_sweep()]
        if not members:
            return
        found = processes.sweep({str(member.folder): member.cgroup for member in members})
        for member in members:
            member.clear_passes = 0 if str(member.folder) in found else member.clear_passes + 1
            member.swept = member.clear_passes >= CLEAR_PASSES

    def adopt(self, epoch: int = 0) -> None:
        """Find every attempt on disk, finish what an earlier daemon had begun to start, emit what happened.

        No older epoch is obeyed from then on. Raises JournalError where a newer one was.
        """
        self._guard.begin(epoch)
        self._pruner.start()
        for job, attempt in self._on_disk():
            gang = self._gang(job, attempt)
            self._watch(gang)
            gang.poll()
        self._launcher.tidy(self._held_by_others(None), self._shared_gpus())
        for gang in list(self._active.values()):
            if gang.order is not None and gang.may_go_on:
                self._launcher.resume(gang, gang.order)
        self.poll()

    def _on_disk(self) -> Iterator[tuple[str, int]]:
        for path in sorted(self._runs.glob("*/*")):
            job, attempt = path.parent.name, path.name
            if is_job_id(job) and attempt.isdecimal() and not (path / "settled").exists():
                yield job, int(attempt)

    def settle(self, job: str, attempt: int) -> None:
        """Note that the end of this attempt is on record elsewhere, so that the next adopt does not report it.

        Does nothing for an attempt that is not over. Raises OSError.
        """
        gang = self._gangs.get((job, attempt))
        if gang is not None and gang.over and (job, attempt) not in self._active:
            gang.run.settled.touch(mode=0o600)
            del self._gangs[job, attempt]

    def inventory(self) -> Inventory:
        """Return the current state without emitting events."""
        self._poll()
        return Inventory({key: gang.status() for key, gang in sorted(self._gangs.items())})

    def has_run(self, job: str) -> bool:
        """Whether a job has a directory. Called for each submitted job."""
        return os.path.isdir(f"{self._runs}/{job}")  # noqa: PTH112 - a Path takes ten times as long

    def remains(self, job: str) -> str:
        """Nothing: processes are killed when their grace is over."""
        return ""

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """The file that a process's stdout and stderr go to. Raises BadInput for an impossible job id."""
        return RunDirectory(self._runs, job, attempt).log(rank)

    def progress(self, job: str, attempt: int) -> Progress | None:
        """The progress that an attempt reports. Reads one file only, so it is safe from any thread."""
        return progress_in(RunDirectory(self._runs, job, attempt).progress)

    def check(self, job: str, attempt: int) -> CheckStatus | None:
        """How the check of an attempt stands. Safe from any thread. Raises OSError for a damaged run directory."""
        return check_in(RunDirectory(self._runs, job, attempt))

    def curve(self, job: str, attempt: int) -> tuple[Progress, ...]:
        """The reports that an attempt keeps. Safe from any thread."""
        return curve_in(RunDirectory(self._runs, job, attempt).progress)

    def host_use(self, job: str, attempt: int) -> HostUse | None:
        """What an attempt uses of CPUs and memory. Safe from any thread. Raises OSError for a damaged directory."""
        return host_use_in(RunDirectory(self._runs, job, attempt))

    def step_reports(self, job: str, attempt: int) -> StepReports | None:
        """The own times of steps that ranks report. Safe from any thread. Raises OSError for a damaged rank map."""
        return step_reports_in(RunDirectory(self._runs, job, attempt))

    def take_report(self, token: str, body: bytes) -> float:
        """Raises NotFound: ranks report in files."""
        raise NotFound("ranks of this daemon report in files of their run directories")

    def take_check(self, token: str, body: bytes) -> dict[str, Any]:
        """Raises NotFound: checks report in files."""
        raise NotFound("checks of this daemon report in files of their run directories")

    def record(self, job: str, attempt: int) -> dict[str, Any] | None:
        """The record of an attempt, None if it was never started. Safe from any thread. Raises OSError."""
        return record_in(RunDirectory(self._runs, job, attempt))

    def changes(self, job: str, attempt: int) -> tuple[str, ...]:
        """Sentences on what is not as the record of an attempt has it. Safe from any thread. Raises OSError."""
        run = RunDirectory(self._runs, job, attempt)
        gang, found = read_json(str(run.gang)), read_json(str(run.record))
        if gang is None or found is None:
            return ("there is no record of what was found when it started",)
        return changes(found, self._recorder.now(run, order_from_json(gang["order"])))

    def exec_session(
        self, job: str, attempt: int, rank: int, command: Sequence[str], terminal: Terminal | None
    ) -> PendingExecSession:
        """Ask for a command beside a rank. Safe from any thread. Raises NotFound, Conflict and OSError."""
        run = RunDirectory(self._runs, job, attempt)
        return open_exec_session(run, self._node_of_name, rank, command, terminal)

    def port(self, job: str, attempt: int, rank: int, port: int) -> tuple[str, int]:
        """Where the member of a rank listens. Safe from any thread. Raises NotFound, Conflict and OSError."""
        return address_of(running_member(RunDirectory(self._runs, job, attempt), rank), port)

    def close(self) -> None:
        """Let go of everything; the gangs run on."""
        self._launcher.close()
        self._recorder.close()
        self._pruner.close()
        self._gangs.clear()
        self._active.clear()


def _failed_and_ended(order: Order, now: float, reason: str) -> list[Event]:
    """What a start that cannot even be put down comes to. Nothing of it exists."""
    if not isinstance(order, StartGang):
        return []
    job, attempt, prefix = order.job, order.attempt, f"{order.job}/{order.attempt}"
    return [
        GangStartFailed(
            id=f"{prefix}/start-failed", observed_at=now, job=job, attempt=attempt, reason=reason
        ),
        GangEnded(
            id=f"{prefix}/ended",
            observed_at=now,
            job=job,
            attempt=attempt,
            exit_code=126,
            gpus_unchanged=True,
        ),
    ]
