"""The cluster on this machine: real processes, on one node or on several virtual ones.

An order is carried out by putting it down in the attempt's run directory and starting or waking a shim; what
happens is read from the same directory. So this object can go at any moment, by `close` or by kill -9, and the
next one on the same state directory knows all that it knew. See docs/executor.md.

`emit` is called from `poll` and `adopt` only, never from `carry_out`: an order may be given in the middle of a
turn. Every event that is emitted can be derived again from disk, under the same id. Not safe for threads.
"""

import errno
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gantree.executors import processes
from gantree.executors.epochs import EpochFile
from gantree.executors.gang import Gang
from gantree.executors.guests import Awaited, Terminal, address_of, guest_of, host_of
from gantree.executors.inventory import Inventory
from gantree.executors.launch import free_port, inherited, launch_record
from gantree.executors.parts import (
    GpuIds,
    MigIds,
    gpu_indices,
    no_instances,
    not_cut_so,
)
from gantree.executors.progress import Progress, progress_in
from gantree.executors.rank_map import rank_map
from gantree.executors.record import (
    About,
    Recorder,
    VersionsOfNode,
    no_versions,
    nothing,
    rank_map_in,
    record_in,
)
from gantree.executors.record_changes import changes
from gantree.executors.rundir import (
    RunDirectory,
    is_job_id,
    order_from_json,
    order_to_json,
    previous_world_size,
    write_plain,
)
from gantree.executors.shim import boot_id, read_json
from gantree.executors.unix_users import RunAs, UnixUser
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput, JournalError
from gantree.model.events import Event, GangEnded, GangStartFailed
from gantree.model.orders import (
    Order,
    ResumeGang,
    SaveCheckpoint,
    SignalGang,
    StartGang,
    StopGang,
    SuspendGang,
)

FAILURE_GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL for the rest of a gang that broke."""

CLEAR_PASSES = 2
"""A process shows no environment for a moment while it becomes another command, so one pass could miss it."""

log = logging.getLogger(__name__)


def always() -> bool:
    """Nobody else can order here."""
    return True


class LocalCluster:
    """Starts, watches and stops gangs on this machine, below state_dir.

    clock gives seconds since 1970. gpu_ids turns GPU indices into CUDA_VISIBLE_DEVICES (UUIDs on real GPUs), mig_ids
    tells the UUIDs of MIG instances, and is asked anew for each gang that has any. leads says whether whoever
    orders here may still do so: it is asked before everything that is done. versions are those of drivers by
    node, about what the daemon says of itself: both for records.
    Raises OSError where state_dir cannot be made.
    """

    def __init__(
        self,
        state_dir: Path,
        cluster: Cluster,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        *,
        gpu_ids: GpuIds = gpu_indices,
        mig_ids: MigIds = no_instances,
        failure_grace_s: float = FAILURE_GRACE_S,
        versions: VersionsOfNode = no_versions,
        about: About = nothing,
        run_as: RunAs | None = None,
        leads: Callable[[], bool] = always,
    ) -> None:
        self._site = cluster
        self._run_as = run_as
        self._recorder = Recorder(versions, about)
        self._state_dir = state_dir.resolve()
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._runs = self._state_dir / "runs"
        self._node_of_name = {node.name: node for node in cluster.nodes}
        self._emit = emit
        self._clock = clock
        self._gpu_ids = gpu_ids
        self._mig_ids = mig_ids
        self._failure_grace_s = failure_grace_s
        self._boot_id = boot_id()
        self._gangs: dict[tuple[str, int], Gang] = {}
        self._active: dict[tuple[str, int], Gang] = {}
        self._impossible: list[Event] = []
        self._complaint_of: dict[tuple[str, int], str] = {}
        self._leads = leads
        self._epochs = EpochFile(self._state_dir)
        self._epoch = self._epochs.newest()

    def carry_out(self, order: Order) -> None:
        """Begin to carry out an order. What goes wrong becomes an event of a later poll, never an exception."""
        try:
            if self._admit(order):
                self._carry_out(order)
        except OSError:
            log.exception("order %s could not be carried out", order.id)
        except BadInput as error:
            log.error("order %s could not be carried out: %s", order.id, error)
            self._impossible += _failed_and_ended(order, self._clock(), str(error))

    def _admit(self, order: Order) -> bool:
        """Refuse a leader that has been replaced or is out of time; remember the newest one before obeying it."""
        if not self._leads():
            log.warning("order %s: its leader, of epoch %d, is out of time", order.id, order.epoch)
            return False
        obeyed = self._epochs.newest()
        if order.epoch < obeyed:
            log.warning(
                "order %s has epoch %d, older than %d: refused", order.id, order.epoch, obeyed
            )
            return False
        if order.epoch > obeyed:
            self._epochs.raise_to(order.epoch)
        self._epoch = order.epoch
        return True

    def _is_deposed(self) -> bool:
        """Whether nothing may be done in the name of its leader any more."""
        return not self._leads() or self._epochs.newest() > self._epoch

    def _carry_out(self, order: Order) -> None:
        gang = self._gang(order.job, order.attempt)
        try:
            match order:
                case StartGang():
                    self._start(gang, order)
                case StopGang():
                    gang.stop(order)
                case SaveCheckpoint():
                    gang.save(order)
                case SuspendGang() | ResumeGang():
                    gang.take_turn(order)
                case SignalGang():
                    gang.signal(order)
                case _:
                    raise AssertionError(f"no such order: {order}")
        finally:
            self._watch(gang)

    def _gang(self, job: str, attempt: int) -> Gang:
        """The gang, from memory or from its directory."""
        known = self._gangs.get((job, attempt))
        if known is not None:
            return known
        run = RunDirectory(self._runs, job, attempt)
        return Gang(run, self._boot_id, self._failure_grace_s, time.time_ns)

    def _watch(self, gang: Gang) -> None:
        """Look at it from now on, if there is anything to look at that is not watched yet."""
        key = (gang.run.job, gang.run.attempt)
        if key not in self._gangs and gang.exists:
            self._gangs[key] = self._active[key] = gang

    def _start(self, gang: Gang, order: StartGang) -> None:
        if gang.exists:
            return
        try:
            obstacle = self._obstacle(order)
            if obstacle is not None:
                gang.fail(obstacle)
                return
            mig_ids = cache(self._mig_ids)
            not_so = self._nobody(order) or not_cut_so(order, mig_ids)
            if not_so is not None:
                gang.fail(not_so, final=True)
                return
            taken = {
                each.master_port for each in self._active.values() if each.master_port is not None
            }
            port = free_port(order.job, order.attempt, taken)
            gang.begin(order, port, order_to_json(order), self._unix(order))
            self._launch(gang, mig_ids)
        except OSError as error:
            gang.fail(f"the gang could not be started: {error}")

    def _obstacle(self, order: StartGang) -> str | None:
        """Why nothing of this order can be started here."""
        for member in order.members:
            if member.node not in self._node_of_name:
                return f"the cluster has no node {member.node!r}"
            if not member.run:
                return f"role {member.role!r} has no command to run"
        name = order.checkpoint_signal
        if name is not None and name not in signal.Signals.__members__:
            return f"this machine has no signal {name!r}"
        return None

    def _unix(self, order: StartGang) -> UnixUser | None:
        """Whom its processes run as; None: whom the daemon runs as. Raises BadInput where there is no such user."""
        return None if self._run_as is None else self._run_as(order.user)

    def _nobody(self, order: StartGang) -> str | None:
        """Why there is nobody whom its processes may run as."""
        try:
            self._unix(order)
        except BadInput as error:
            return str(error)
        return None

    def _launch(self, gang: Gang, mig_ids: MigIds) -> None:
        """Start the shim of every member that has none. Its MIG instances must be there."""
        order, port = gang.order, gang.master_port
        assert order is not None and port is not None
        base = inherited(os.environ)
        map_of_ranks = rank_map(order, self._site, self._node_of_name)
        unix = self._unix(order)
        write_plain(gang.run.ranks, map_of_ranks)
        if unix is not None:
            os.chown(gang.run.ranks, 0, unix.gid)
            gang.run.ranks.chmod(0o640)
        before = previous_world_size(gang.run)
        for member in gang.members:
            record = launch_record(
                order, member.launch, self._node_of_name, gang.run, port, base,
                self._gpu_ids, self._failure_grace_s, mig_ids, before, unix,
            )  # fmt: skip
            member.start(record, self._state_dir, self._epoch)
        self._recorder.begin(gang.run, order, map_of_ranks)

    def poll(self) -> None:
        """Look once at everything that is not over, and emit what is new. What emit raises goes through."""
        if self._is_deposed():
            return
        while self._impossible:
            self._emit(self._impossible[0])
            del self._impossible[0]
        self._look()
        self._sweep()
        for key, gang in list(self._active.items()):
            gang.tell(self._emit, self._clock())
            if gang.over:
                del self._active[key]
                self._complaint_of.pop(key, None)

    def _look(self) -> None:
        for gang in self._active.values():
            try:
                gang.look()
            except OSError as error:
                self._complain(gang, error)

    def _complain(self, gang: Gang, error: OSError) -> None:
        """Say once what is wrong with a gang's files; one whose files are damaged cannot go on."""
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
        self._obey(epoch)
        for job, attempt in self._on_disk():
            gang = self._gang(job, attempt)
            self._watch(gang)
            gang.look()
            if gang.order is not None and gang.may_go_on:
                self._launch_rest(gang, gang.order)
        self.poll()

    def _obey(self, epoch: int) -> None:
        try:
            self._epochs.raise_to(epoch)
            self._epoch = self._epochs.newest()
        except OSError as error:
            raise JournalError(f"{self._state_dir}: {error.filename}: {error.strerror}") from error
        if epoch and self._epoch > epoch:
            raise JournalError(
                f"{self._state_dir} has obeyed epoch {self._epoch}, and this is epoch {epoch}: it belongs to another"
                " journal, or the journal was restored from a copy; in the latter case remove epoch.json there"
            )

    def _launch_rest(self, gang: Gang, order: StartGang) -> None:
        """Start the members that have no shim. Where all have one nothing is asked or written that could fail."""
        if all(member.began for member in gang.members):
            self._recorder.begin(gang.run, order, rank_map_in(gang.run))
            return
        mig_ids = cache(self._mig_ids)
        try:
            not_so = self._nobody(order) or not_cut_so(order, mig_ids)
            if not_so is not None:
                gang.fail(not_so, final=True)
            else:
                self._launch(gang, mig_ids)
        except (OSError, KeyError) as error:
            gang.fail(f"the gang could not be started: {error}")

    def _on_disk(self) -> Iterator[tuple[str, int]]:
        for path in sorted(self._runs.glob("*/*")):
            job, attempt = path.parent.name, path.name
            if is_job_id(job) and attempt.isdecimal() and not (path / "settled").exists():
                yield job, int(attempt)

    def settle(self, job: str, attempt: int) -> None:
        """The end of this attempt is on record elsewhere: it is not told again at the next adopt.

        Does nothing for an attempt that is not over. Raises OSError.
        """
        gang = self._gangs.get((job, attempt))
        if gang is not None and gang.over and (job, attempt) not in self._active:
            gang.run.settled.touch(mode=0o600)
            del self._gangs[job, attempt]

    def inventory(self) -> Inventory:
        """What is there now, without telling anybody."""
        self._look()
        return Inventory({key: gang.status() for key, gang in sorted(self._gangs.items())})

    def has_run(self, job: str) -> bool:
        """Whether there is a directory of this job's. Asked for each job that is handed in."""
        return os.path.isdir(f"{self._runs}/{job}")  # noqa: PTH112 - a Path takes ten times as long

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """The file that a process's stdout and stderr go to. Raises BadInput for an impossible job id."""
        return RunDirectory(self._runs, job, attempt).log(rank)

    def progress(self, job: str, attempt: int) -> Progress | None:
        """How far an attempt says that it is. Reads a file and nothing else: safe from any thread."""
        return progress_in(RunDirectory(self._runs, job, attempt).progress)

    def record(self, job: str, attempt: int) -> dict[str, Any] | None:
        """The record of an attempt, None if it was never started. Safe from any thread. Raises OSError."""
        return record_in(RunDirectory(self._runs, job, attempt))

    def changes(self, job: str, attempt: int) -> tuple[str, ...]:
        """Sentences on what is not as the record of an attempt has it. Safe from any thread. Raises OSError."""
        run = RunDirectory(self._runs, job, attempt)
        gang, found = read_json(str(run.gang)), read_json(str(run.found))
        if gang is None or found is None:
            return ("there is no record of what was found when it started",)
        return changes(found, self._recorder.now(run, order_from_json(gang["order"])))

    def guest(
        self, job: str, attempt: int, rank: int, command: Sequence[str], terminal: Terminal | None
    ) -> Awaited:
        """Ask for a command beside a rank. Safe from any thread. Raises NotFound, Conflict and OSError."""
        run = RunDirectory(self._runs, job, attempt)
        return guest_of(run, self._node_of_name, rank, command, terminal)

    def port(self, job: str, attempt: int, rank: int, port: int) -> tuple[str, int]:
        """Where the member of a rank listens. Safe from any thread. Raises NotFound, Conflict and OSError."""
        return address_of(host_of(RunDirectory(self._runs, job, attempt), rank), port)

    def close(self) -> None:
        """Let go of everything; the gangs run on."""
        self._recorder.close()
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
        GangEnded(id=f"{prefix}/ended", observed_at=now, job=job, attempt=attempt, exit_code=126),
    ]
