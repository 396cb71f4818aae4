"""One member of a gang for the executor: starts its shim, stops it, and reads its outcome.

The state comes from the member's folder alone, so it is the same for the process that started the shim and for one that
took over from it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantree.executors.local import processes
from gantree.executors.local.checkpoints import UNRELIABLE, folder_stamp
from gantree.executors.local.processes import ShimId
from gantree.executors.local.run_directory import write_plain
from gantree.executors.local.shim.shim import read_json, steady_s, write_json
from gantree.model.orders import MemberLaunch

LIVENESS_EVERY = 5
"""A shim that is no child of ours is looked up in /proc on one look in this many."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a rank ended. order counts within its member; was_stopping: it was being stopped.

    ended_at is by the wall clock, ended_steady_s by `steady_s` of the boot in which it ended.
    """

    rank: int
    exit_code: int
    ended_at: float
    ended_steady_s: float
    order: int
    was_stopping: bool


class Member:
    """The state of one member, from its folder. life counts its replacements."""

    def __init__(
        self, folder: Path, launch: MemberLaunch, boot_id: str, same_boot: bool, life: int = 0
    ) -> None:
        self.folder = folder
        self.launch = launch
        self.life = life
        self.exits: dict[int, Exit] = {}
        self.started = self.ended = self.dead = self.swept = self.told_to_stop = False
        self.clear_passes = 0
        self.failure: dict[str, Any] | None = None
        self._boot_id = boot_id
        self._same_boot = same_boot
        self._shim: ShimId | None = None
        self._child: int | None = None
        self._stamp = UNRELIABLE
        self._polls = launch.node_rank

    @property
    def over(self) -> bool:
        """Nothing of it is left, not even a zombie of ours."""
        return self._child is None and (self.ended or (self.dead and self.swept))

    @property
    def began(self) -> bool:
        """A shim of it came up."""
        return self._shim is not None

    @property
    def is_new(self) -> bool:
        """Nothing was started of it, nor is it to stop."""
        is_past = self.dead or self.told_to_stop or self.failure is not None
        return not (self.began or self._child is not None or is_past)

    @property
    def failed(self) -> bool:
        """Whether a rank of it failed, or it died before it could tell."""
        return self.dead or any(each.exit_code != 0 for each in self.exits.values())

    @property
    def lost(self) -> str | None:
        """Why it died before it recorded the ends of its ranks; None if it did not."""
        if not self.dead or len(self.exits) == self.launch.processes:
            return None
        if not self._same_boot:
            return f"node {self.launch.node} was restarted"
        return f"its shim on node {self.launch.node} was killed" if self.began else None

    @property
    def cgroup(self) -> str | None:
        """The cgroup of its processes, if it made one."""
        return self._shim.cgroup if self._shim else None

    def start(self, launch_record: dict[str, Any], state_dir: Path, epoch: int) -> None:
        """Start the shim in the name of an epoch, unless there is or was one. Raises OSError."""
        if self._child is not None or (self.folder / "shim.json").exists():
            return
        write_json(str(self.folder / "launch.json"), launch_record)
        self._child = processes.spawn_shim(self.folder, state_dir, epoch)

    def stop(self, grace_s: float) -> None:
        """Request a stop. A later deadline than that of an earlier stop changes nothing. Raises OSError."""
        path = str(self.folder / "stop.json")
        kill_at_s = steady_s() + grace_s
        earlier = read_json(path)
        self.told_to_stop = True
        if self.over or (earlier is not None and earlier["kill_at_s"] <= kill_at_s):
            return
        write_json(path, {"kill_at_s": kill_at_s})
        self.wake()

    def set_suspended(self, turn: int, *, suspended: bool) -> None:
        """Have the processes suspended, or let go on. A turn that is not newer than the last changes nothing.

        Raises OSError.
        """
        path = str(self.folder / "turn.json")
        earlier = read_json(path)
        if self.over or (earlier is not None and earlier["turn"] >= turn):
            return
        write_json(path, {"turn": turn, "suspended": suspended})
        self.wake()

    def save(self, request: str) -> None:
        """Have the processes signalled for a checkpoint, once for each request. Raises OSError.

        The shim does not look into the folder that the ranks write in: a job could put there what holds it up.
        """
        path = str(self.folder / "save.json")
        earlier = read_json(path)
        if earlier is None or earlier["request"] != request:
            write_plain(Path(path), {"request": request})
        self.wake()

    def signal(self, order: str, name: str) -> None:
        """Have the processes signalled, once for each order. Raises OSError."""
        path = str(self.folder / "signal.json")
        if self.over or read_json(path) is not None:
            return
        write_json(path, {"order": order, "signal": name})
        self.wake()

    def wake(self) -> None:
        """Make the shim look now. Before shim.json is there it will look of its own accord."""
        self._read_shim()
        if self._shim is not None:
            processes.wake(self._shim, self._boot_id)

    def poll(self, now_ns: int) -> bool:
        """Read what is new; False if there certainly was nothing."""
        if self.ended or self.dead:
            self._reap_child()
            return True
        stamp = folder_stamp(self.folder, now_ns)
        was_dead = self._shim_is_dead()
        self._polls += 1
        if not was_dead and stamp == self._stamp != UNRELIABLE:
            return False
        self._stamp = stamp
        self._read()
        self.dead = was_dead and not self.ended
        return True

    def _read(self) -> None:
        # Asked before the exits are read: once it is there, they all are.
        self.ended = (self.folder / "ended.json").exists()
        self._read_shim()
        self.started = self.started or (self.folder / "started.json").exists()
        self.failure = self.failure or read_json(str(self.folder / "failed.json"))
        self.told_to_stop = self.told_to_stop or (self.folder / "stop.json").exists()
        for rank in [rank for rank in self.launch.rank_of_process if rank not in self.exits]:
            record = read_json(str(self.folder / f"exit.{rank}.json"))
            if record is not None:
                self.exits[rank] = Exit(**record)

    def _read_shim(self) -> None:
        if self._shim is None:
            record = read_json(str(self.folder / "shim.json"))
            self._shim = None if record is None else ShimId(**record)

    def _reap_child(self) -> None:
        """Collect our child once it is done, so that it leaves no zombie."""
        if self._child is not None and processes.reap(self._child):
            self._child = None

    def _shim_is_dead(self) -> bool:
        child_ended = self._child is not None and processes.reap(self._child)
        if self._child is not None and not child_ended:
            return False
        self._child = None
        self._read_shim()
        if self._shim is None:
            return self._never_came_up(child_ended)
        is_due = child_ended or self._polls % LIVENESS_EVERY == 0
        return is_due and not processes.is_alive(self._shim, self._boot_id)

    def _never_came_up(self, child_ended: bool) -> bool:
        """There is no shim.json and no child of ours that could still write it: will it never come?

        A shim that an earlier daemon started just before it died may hold the lock and be about to write; or
        come later still, but then it finds the stop that ended this attempt, and starts nothing.
        """
        if processes.is_locked(self.folder / "lock"):
            return False
        if child_ended and not self.told_to_stop:
            reason = "did not start: its shim ended before it could start anything (see shim.log)"
            self.failure = {"reason": reason, "code": 126, "rank": self.launch.first_rank}
            write_json(str(self.folder / "failed.json"), self.failure)
        return child_ended or self.told_to_stop or not self._same_boot
