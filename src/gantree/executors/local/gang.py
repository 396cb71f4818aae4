"""One attempt of a gang: carries out its orders, and stops its members together.

All state is in the run directory, so every poll derives the same from the same files. A gang is *broken* once a rank
has failed, or a member was lost or could not be started; then all other members are stopped at once, before anything
is decided. Where the order says that members can be replaced, the others of one that is not the first go on until the
order to replace it, or to stop all, comes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gantree.executors.inventory import Status
from gantree.executors.local.checking.files import MarkFaults, no_marks, report_in
from gantree.executors.local.checkpoints import CheckpointWatch, Saved
from gantree.executors.local.gang_events import gang_events
from gantree.executors.local.gang_outcome import GangOutcome
from gantree.executors.local.member import Member
from gantree.executors.local.run_directory import (
    RunDirectory,
    lives_in,
    order_from_json,
    write_first,
)
from gantree.executors.local.shim.shim import read_json, write_json
from gantree.executors.local.unix_users import UnixUser
from gantree.model.events import Event
from gantree.model.orders import (
    MemberLaunch,
    ReplaceMember,
    ResumeGang,
    SaveCheckpoint,
    SignalGang,
    StartGang,
    StopGang,
    SuspendGang,
    WriteToLog,
)
from gantree.model.replicas import Endpoint

REPLACED_GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL for what is left of a member that is replaced."""


class Gang:
    """One attempt, from its run directory."""

    def __init__(
        self,
        run: RunDirectory,
        boot_id: str,
        failure_grace_s: float,
        now_ns: Callable[[], int],
        mark_faults: MarkFaults = no_marks,
    ) -> None:
        self.run = run
        self._mark_faults = mark_faults
        self.members: tuple[Member, ...] = ()
        self._former: list[Member] = []
        self.order: StartGang | None = None
        self.master_port: int | None = None
        self.endpoints: tuple[Endpoint, ...] = ()
        self._checkpoints: CheckpointWatch | None = None
        self._boot_id = boot_id
        self._failure_grace_s = failure_grace_s
        self._now_ns = now_ns
        self._same_boot = True
        self._emitted: set[str] = set()
        self._saved: tuple[Saved, ...] = ()
        self._has_news = True
        self._stop: dict[str, Any] | None = read_json(str(run.stop))
        self._failure: dict[str, Any] | None = read_json(str(run.failed))
        self._load()

    def _load(self) -> None:
        record = read_json(str(self.run.gang))
        if record is None:
            return
        self.order = order = order_from_json(record["order"])
        self.master_port = record["master_port"]
        self.endpoints = tuple(Endpoint(**each) for each in record.get("endpoints", ()))
        self._same_boot = record["boot_id"] == self._boot_id
        lives = lives_in(record)
        self.members = tuple(
            self._member(launch, lives.get(launch.node_rank, 0)) for launch in order.members
        )
        self._former = [
            self._member(launch, life)
            for launch in order.members
            for life in range(lives.get(launch.node_rank, 0))
        ]
        self._checkpoints = CheckpointWatch(
            self.run.checkpoint, order.world_size, order.checkpoint_signal is not None, self._now_ns
        )

    def _member(self, launch: MemberLaunch, life: int) -> Member:
        folder = self.run.member(launch.node_rank, life)
        return Member(folder, launch, self._boot_id, self._same_boot, life)

    def begin(
        self,
        order: StartGang,
        master_port: int,
        order_json: dict[str, Any],
        unix: UnixUser | None = None,
        endpoints: Sequence[Endpoint] = (),
    ) -> None:
        """Write the order, durably; from then on the attempt exists. An order that is there stays. Raises OSError."""
        self.run.make(range(len(order.members)), unix)
        record = {
            "master_port": master_port,
            "boot_id": self._boot_id,
            "order": order_json,
            "endpoints": list(map(asdict, endpoints)),
        }
        write_first(self.run.gang, record)
        self._load()

    def fail(self, reason: str, *, final: bool = False, gpus_unchanged: bool = False) -> None:
        """The gang cannot be started: stop the members that were. Raises OSError.

        final: another attempt would fail, too. gpus_unchanged: no GPU is partitioned otherwise for its order.
        """
        if self._failure is None:
            unchanged = gpus_unchanged or self.order is None
            self._failure = {
                "reason": reason, "code": 126, "final": final, "gpus_unchanged": unchanged,
            }  # fmt: skip
            self._has_news = True
            self.run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(str(self.run.failed), self._failure)
            self.run.log_failure(reason)
            self._stop_members()

    def stop(self, order: StopGang) -> None:
        """Stop every member; an attempt that has not begun never will. Raises OSError."""
        stop = {"order": order.id, "grace_s": order.grace_s}
        if stop != self._stop:
            self.run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(str(self.run.stop), stop)
            self._stop = stop
            self._has_news = True
        self._stop_members()

    def replace(self, order: ReplaceMember, order_json: dict[str, Any]) -> None:
        """Have a member start anew where the order says; what is left of it is stopped. Raises OSError.

        An order that was obeyed changes nothing, nor does one for a gang that is to stop. order_json is its gang.
        """
        old = next((each for each in self.members if each.launch.node_rank == order.member), None)
        if old is None or old.life >= order.life or self.stopped or self.over:
            return
        lives = {each.launch.node_rank: each.life for each in self.members if each.life}
        write_json(
            str(self.run.gang),
            {
                "master_port": self.master_port,
                "boot_id": self._boot_id,
                "order": order_json,
                "endpoints": list(map(asdict, self.endpoints)),
                "lives": lives | {order.member: order.life},
            },
        )
        if not old.over:
            old.stop(REPLACED_GRACE_S)
        self._former.append(old)
        launch = next(each for each in order.gang.members if each.node_rank == order.member)
        new = self._member(launch, order.life)
        self.members = tuple(new if each is old else each for each in self.members)
        self.order, self._has_news = order.gang, True

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that it was given."""
        meeting = () if self.master_port is None else (self.master_port,)
        return (*meeting, *(each.port for each in self.endpoints))

    @property
    def startable(self) -> tuple[Member, ...]:
        """The members that may be started: of those that were replaced nothing is left."""
        busy = {each.launch.node_rank for each in self._former if not each.over}
        return tuple(each for each in self.members if each.launch.node_rank not in busy)

    @property
    def has_unstarted_replacement(self) -> bool:
        """Whether a member that was replaced can start now."""
        return not self.stopped and any(each.life and each.is_new for each in self.startable)

    def save(self, order: SaveCheckpoint) -> None:
        """Ask for a checkpoint, of an attempt that has begun and is to go on. Raises OSError."""
        if self._checkpoints is None or self.stopped or self.over:
            return
        self._checkpoints.request(order)
        for member in self.members:
            if not member.over and self.order is not None and self.order.checkpoint_signal:
                member.save(order.request)

    def set_suspended(self, order: SuspendGang | ResumeGang) -> None:
        """Suspend all members where they are, or let them go on, unless the attempt is to stop. Raises OSError."""
        if self.stopped:
            return
        for member in self.members:
            member.set_suspended(order.turn, suspended=isinstance(order, SuspendGang))

    def signal(self, order: SignalGang) -> None:
        """Have every process signalled, unless the attempt is to stop. Raises OSError."""
        if self.stopped:
            return
        for member in self.members:
            member.signal(order.id, order.signal)

    def write_to_log(self, order: WriteToLog) -> None:
        """Write a line into the log of each member that runs, once an order, unless the attempt is to stop.

        Raises OSError.
        """
        written = self.run.written(order.id)
        if self.stopped or self.order is None or written.exists():
            return
        for member in self.members:
            if not member.over:
                self.run.write_to_log(member.launch.rank_of_process[0], order.text)
        written.touch(mode=0o600)

    @property
    def exists(self) -> bool:
        """Whether there was an order to start or to stop it."""
        return self.order is not None or self.stopped

    @property
    def stopped(self) -> bool:
        """Whether it is to stop, or cannot start: no more members may be started."""
        return self._stop is not None or self._failure is not None

    @property
    def over(self) -> bool:
        """Whether no member is left, and none will be started."""
        if self.order is None:
            return self.stopped
        return all(member.over for member in (*self.members, *self._former))

    @property
    def may_go_on(self) -> bool:
        """Whether members that have no shim yet may be started; others may have ended well."""
        return not (self.over or self.stopped or self.outcome.is_broken)

    @property
    def outcome(self) -> GangOutcome:
        """What has become of the members so far."""
        world_size = None if self.order is None else self.order.world_size
        return GangOutcome(self.members, world_size, self._failure, self._same_boot)

    def status(self) -> Status:
        """As `Inventory` puts it."""
        if self.over:
            return "ended"
        whole = not self.outcome.is_broken and not self.stopped
        return "running" if whole and not any(member.over for member in self.members) else "partial"

    def poll(self) -> None:
        """Read the members' files, and stop all members if the gang is to stop or is broken."""
        self._poll()
        outcome = self.outcome
        is_broken = outcome.is_broken and not (
            self.order is not None and outcome.may_go_on_without(replaceable=self.order.replaceable)
        )
        if not self.over and (self._stop is not None or is_broken):
            self._stop_members()

    def _poll(self) -> None:
        """Members first, so that checkpoints of a member that has ended are found in the same poll."""
        now_ns = self._now_ns()
        for member in (*self.members, *self._former):
            if not member.over and member.poll(now_ns):
                self._has_news = True
        if self._checkpoints is not None:
            saved = self._checkpoints.poll()
            self._has_news = self._has_news or saved != self._saved
            self._saved = saved

    def to_sweep(self) -> Iterator[Member]:
        """Members whose shim is dead and whose processes may not all be gone."""
        every = (*self.members, *self._former)
        return (member for member in every if member.dead and not member.swept)

    def _marks(self) -> Sequence[Event]:
        """Of the nodes and links that its check found at fault. Raises OSError for a damaged report."""
        report = None if self.order is None or self.order.check is None else report_in(self.run)
        if report is None or not report["faults"]:
            return ()
        return self._mark_faults(self.run.job, self.run.attempt, report["faults"])

    def _stop_members(self) -> None:
        """Stop all members, with the grace of the stop order, or else that of the executor."""
        grace_s = self._failure_grace_s if self._stop is None else self._stop["grace_s"]
        for member in (*self.members, *self._former):
            if not member.over:
                member.stop(grace_s)

    def emit_events(self, emit: Callable[[Event], None], now: float) -> None:
        """Emit the events that were not emitted yet, in order. If emit raises, the event counts as not emitted."""
        if not self._has_news and not self.over:
            return
        events = gang_events(
            self.run, self.outcome, self._saved, now, self.endpoints, stopped=self.stopped, over=self.over
        )  # fmt: skip
        for event in (*self._marks(), *events):  # first: the next place avoids who is at fault
            if event.id not in self._emitted:
                emit(event)
                self._emitted.add(event.id)
        self._has_news = False
