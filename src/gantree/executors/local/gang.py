"""One attempt of a gang: its members together, what must be stopped, and what there is to tell.

Nothing here remembers what it did: every look reads the folders and derives the same from the same. A gang is
*broken* once a rank has failed, a member was lost or could not be started; then every other member is stopped
at once, without waiting for anybody's decision. Ids of events are made from names alone, so telling twice is
telling once, also across daemons.

The gang's exit code is that of the first rank that failed of its own accord; ranks that ended because they were
told to say nothing about the cause.
"""

from collections.abc import Callable, Iterator
from typing import Any

from gantree.executors.inventory import Status
from gantree.executors.local.checkpoints import CheckpointWatch, Saved
from gantree.executors.local.member import Exit, Member
from gantree.executors.local.run_directory import RunDirectory, order_from_json, write_first
from gantree.executors.local.shim.shim import read_json, steady_s, write_json
from gantree.executors.local.unix_users import UnixUser
from gantree.model.events import (
    CheckpointSaved,
    Event,
    GangEnded,
    GangStarted,
    GangStartFailed,
    MemberLost,
    RankExited,
)
from gantree.model.orders import (
    ResumeGang,
    SaveCheckpoint,
    SignalGang,
    StartGang,
    StopGang,
    SuspendGang,
)

TERMINATED = 143
KILLED = 137
"""128 + SIGTERM and 128 + SIGKILL, as shells count."""


class Gang:
    """One attempt, from its run directory."""

    def __init__(
        self, run: RunDirectory, boot_id: str, failure_grace_s: float, now_ns: Callable[[], int]
    ) -> None:
        self.run = run
        self.members: tuple[Member, ...] = ()
        self.order: StartGang | None = None
        self.master_port: int | None = None
        self._checkpoints: CheckpointWatch | None = None
        self._boot_id = boot_id
        self._failure_grace_s = failure_grace_s
        self._now_ns = now_ns
        self._same_boot = True
        self._told: set[str] = set()
        self._saved: tuple[Saved, ...] = ()
        self._is_news = True
        self._stop: dict[str, Any] | None = read_json(str(run.stop))
        self._failure: dict[str, Any] | None = read_json(str(run.failed))
        self._load()

    def _load(self) -> None:
        record = read_json(str(self.run.gang))
        if record is None:
            return
        self.order = order = order_from_json(record["order"])
        self.master_port = record["master_port"]
        self._same_boot = same_boot = record["boot_id"] == self._boot_id
        self.members = tuple(
            Member(self.run.member(launch.node_rank), launch, self._boot_id, same_boot)
            for launch in order.members
        )
        self._checkpoints = CheckpointWatch(
            self.run.checkpoint, order.world_size, order.checkpoint_signal is not None, self._now_ns
        )

    def begin(
        self,
        order: StartGang,
        master_port: int,
        order_json: dict[str, Any],
        unix: UnixUser | None = None,
    ) -> None:
        """Put the order down, durably; from here on the attempt exists. What was put down stays. Raises OSError."""
        self.run.make(range(len(order.members)), unix)
        record = {"master_port": master_port, "boot_id": self._boot_id, "order": order_json}
        write_first(self.run.gang, record)
        self._load()

    def fail(self, reason: str, *, final: bool = False) -> None:
        """It cannot be started; what has been started of it is stopped. Raises OSError.

        final: it could not be the next time either.
        """
        if self._failure is None:
            self._failure = {"reason": reason, "code": 126, "final": final}
            self._is_news = True
            self.run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(str(self.run.failed), self._failure)
            self._stop_members()

    def stop(self, order: StopGang) -> None:
        """Stop every member; an attempt that has not begun never will. Raises OSError."""
        stop = {"order": order.id, "grace_s": order.grace_s}
        if stop != self._stop:
            self.run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(str(self.run.stop), stop)
            self._stop = stop
            self._is_news = True
        self._stop_members()

    def save(self, order: SaveCheckpoint) -> None:
        """Ask for a checkpoint, of an attempt that has begun and is to go on. Raises OSError."""
        if self._checkpoints is None or self.stopped or self.over:
            return
        self._checkpoints.ask(order)
        for member in self.members:
            if not member.over and self.order is not None and self.order.checkpoint_signal:
                member.save(order.request)

    def take_turn(self, order: SuspendGang | ResumeGang) -> None:
        """Suspend all members where they are, or let them go on, unless the attempt is to stop. Raises OSError."""
        if self.stopped:
            return
        for member in self.members:
            member.take_turn(order.turn, suspended=isinstance(order, SuspendGang))

    def signal(self, order: SignalGang) -> None:
        """Have every process signalled, unless the attempt is to stop. Raises OSError."""
        if self.stopped:
            return
        for member in self.members:
            member.signal(order.id, order.signal)

    @property
    def exists(self) -> bool:
        """It was ever told to start or to stop."""
        return self.order is not None or self.stopped

    @property
    def stopped(self) -> bool:
        """It was told to stop or cannot start: nothing more of it may be started."""
        return self._stop is not None or self._failure is not None

    @property
    def over(self) -> bool:
        """Nothing of it is left, and nothing will come."""
        if self.order is None:
            return self.stopped
        return all(member.over for member in self.members)

    @property
    def may_go_on(self) -> bool:
        """Nothing speaks against starting the members that have no shim yet, also where others have ended well."""
        return not (self.over or self.stopped or self._broken())

    def status(self) -> Status:
        """As `Inventory` puts it."""
        if self.over:
            return "ended"
        whole = not self._broken() and not self.stopped
        return "running" if whole and not any(member.over for member in self.members) else "partial"

    def look(self) -> None:
        """Read what is new, and stop what must not go on."""
        self._look()
        if not self.over and (self._stop is not None or self._broken()):
            self._stop_members()

    def _look(self) -> None:
        """Members first: what the ranks of an ended member had saved is then found in the same look."""
        now_ns = self._now_ns()
        for member in self.members:
            if not member.over and member.look(now_ns):
                self._is_news = True
        if self._checkpoints is not None:
            saved = self._checkpoints.look()
            self._is_news = self._is_news or saved != self._saved
            self._saved = saved

    def to_sweep(self) -> Iterator[Member]:
        """Members whose shim is dead and whose leftovers have not been found gone."""
        return (member for member in self.members if member.dead and not member.swept)

    def _stop_members(self) -> None:
        """The job's own grace where a stop was ordered; until then the executor's."""
        grace_s = self._failure_grace_s if self._stop is None else self._stop["grace_s"]
        for member in self.members:
            if not member.over:
                member.stop(grace_s)

    def _start_failure(self) -> tuple[str, int] | None:
        """Why it could not be started, as a sentence, and the exit code that goes with it."""
        if self._failure is not None:
            return self._failure["reason"], self._failure["code"]
        for member in self.members:
            if member.failure is not None:
                where = f"rank {member.failure['rank']} on node {member.launch.node}"
                return f"{where} {member.failure['reason']}", member.failure["code"]
        return None

    def _exits(self) -> list[Exit]:
        """All exits so far, as they happened; the wall clock may have been set in between."""
        exits = [each for member in self.members for each in member.exits.values()]
        return sorted(exits, key=lambda each: (each.ended_steady_s, each.order, each.rank))

    def _broken(self) -> bool:
        return (
            self._start_failure() is not None
            or any(member.dead for member in self.members)
            or any(each.exit_code != 0 for member in self.members for each in member.exits.values())
        )

    def _lost(self) -> list[Member]:
        return [member for member in self.members if member.lost is not None]

    def exit_code(self) -> int:
        """Of the whole attempt."""
        failed = [each for each in self._exits() if each.exit_code != 0]
        own_fault = [each.exit_code for each in failed if not each.was_stopping]
        failure = self._start_failure()
        if failure is not None:
            return failure[1]
        if self._lost():
            return KILLED
        if own_fault:
            return own_fault[0]
        if not all(member.started for member in self.members) or not self.members:
            return TERMINATED
        return failed[0].exit_code if failed else 0

    def tell(self, emit: Callable[[Event], None], now: float) -> None:
        """Emit what is known, durable and not yet told, in the order in which it happened.

        What emit raises goes through; the event then counts as not told.
        """
        if not self._is_news and not self.over:
            return
        for event in self._all_events(now):
            if event.id not in self._told:
                emit(event)
                self._told.add(event.id)
        self._is_news = False

    def _all_events(self, now: float) -> Iterator[Event]:
        job, attempt = self.run.job, self.run.attempt
        prefix = f"{job}/{attempt}"
        failure = self._start_failure()
        started = bool(self.members) and all(member.started for member in self.members)
        if failure is not None:
            yield GangStartFailed(
                id=f"{prefix}/start-failed",
                observed_at=now,
                job=job,
                attempt=attempt,
                reason=failure[0],
                final=self._failure is not None and self._failure.get("final", False),
            )
        elif started:
            yield GangStarted(id=f"{prefix}/started", observed_at=now, job=job, attempt=attempt)
        if started or self.stopped or self._broken():
            yield from self._checkpoint_events(now)
            yield from self._exit_events(now)
        if self.over:
            yield GangEnded(
                id=f"{prefix}/ended",
                observed_at=now,
                job=job,
                attempt=attempt,
                exit_code=self.exit_code(),
                occurred_at=self._ended_at(now),
                unprompted=self._unprompted(),
            )

    def _unprompted(self) -> bool:
        """Every rank ended of its own accord."""
        exits = self._exits()
        complete = self.order is not None and len(exits) == self.order.world_size
        return complete and not any(each.was_stopping for each in exits)

    def _ended_at(self, now: float) -> float | None:
        """When the last rank ended, on the clock that reads now; None where that is not known.

        Told later than it happened, an end of its own accord would pass for the work of a stop decided meanwhile.
        """
        exits = self._exits()
        if self.order is None or len(exits) < self.order.world_size:
            return None
        return self._moment(max(each.ended_steady_s for each in exits), now)

    def _moment(self, ended_steady_s: float, now: float) -> float | None:
        """A moment on the clock that reads now; None for one of another boot."""
        return now - max(0.0, steady_s() - ended_steady_s) if self._same_boot else None

    def _checkpoint_events(self, now: float) -> Iterator[Event]:
        for saved in self._saved:
            is_answer = saved.request is not None
            name = f"answer-to/{saved.request}" if is_answer else f"checkpoint-at-{saved.step}"
            yield CheckpointSaved(
                id=f"{self.run.job}/{self.run.attempt}/{name}",
                observed_at=now,
                job=self.run.job,
                attempt=self.run.attempt,
                step=saved.step,
                request=saved.request,
            )

    def _exit_events(self, now: float) -> Iterator[Event]:
        job, attempt = self.run.job, self.run.attempt
        for each in self._exits():
            yield RankExited(
                id=f"{job}/{attempt}/rank-{each.rank}-exited",
                observed_at=now,
                occurred_at=self._moment(each.ended_steady_s, now),
                job=job,
                attempt=attempt,
                rank=each.rank,
                exit_code=each.exit_code,
            )
        for member in self._lost():
            launch = member.launch
            yield MemberLost(
                id=f"{job}/{attempt}/member-{launch.node_rank}-lost",
                observed_at=now,
                job=job,
                attempt=attempt,
                role=launch.role,
                member=launch.rank,
                reason=member.lost or "",
            )
