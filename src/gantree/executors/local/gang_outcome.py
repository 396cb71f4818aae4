"""The outcome of the members of one attempt: exits, losses, and the exit code that follows.

The exit code of a gang is that of the first rank that failed of its own accord. Ranks that ended because they were
stopped do not count.
"""

from dataclasses import dataclass
from typing import Any

from gantree.executors.local.member import Exit, Member
from gantree.executors.local.shim.shim import steady_s

TERMINATED = 143
KILLED = 137
"""128 + SIGTERM and 128 + SIGKILL, as shells count."""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """Why a gang could not be started, as a sentence, and its exit code. final: another attempt would fail, too.

    check_failed: the check before the start named who is at fault.
    """

    reason: str
    code: int
    final: bool
    check_failed: bool = False


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """The outcome so far. failure: why the executor could not start the gang; world_size: None if it has no order."""

    members: tuple[Member, ...]
    world_size: int | None
    failure: dict[str, Any] | None
    same_boot: bool

    @property
    def has_started(self) -> bool:
        """Whether every process of every member was started."""
        return bool(self.members) and all(member.started for member in self.members)

    @property
    def start_failure(self) -> StartFailure | None:
        """Why the gang could not be started."""
        if self.failure is not None:
            return _start_failure(self.failure)
        for member in self.members:
            if member.failure is not None:
                where = f"rank {member.failure['rank']} on node {member.launch.node} "
                return _start_failure(member.failure, "" if "check" in member.failure else where)
        return None

    @property
    def exits(self) -> list[Exit]:
        """All exits so far, in order; the wall clock may have been set in between."""
        exits = [each for member in self.members for each in member.exits.values()]
        return sorted(exits, key=lambda each: (each.ended_steady_s, each.order, each.rank))

    @property
    def lost(self) -> list[Member]:
        """Members whose shim died before it could record how its ranks ended."""
        return [member for member in self.members if member.lost is not None]

    @property
    def is_broken(self) -> bool:
        """Whether a rank has failed, or a member was lost or could not be started."""
        return self.start_failure is not None or any(member.failed for member in self.members)

    @property
    def began(self) -> bool:
        """Whether all processes were started once; a member may be on its way to another place since."""
        return all(member.started or member.life for member in self.members) and bool(self.members)

    def may_go_on_without(self, *, replaceable: bool) -> bool:
        """Whether what has failed can be replaced: members of a gang that began, but not the first."""
        failed = [member for member in self.members if member.failed]
        return (
            replaceable
            and self.began
            and self.start_failure is None
            and all(member.launch.node_rank for member in failed)
        )

    @property
    def exit_code(self) -> int:
        """The exit code of the whole attempt."""
        failed = [each for each in self.exits if each.exit_code != 0]
        own_fault = [each.exit_code for each in failed if not each.was_stopping]
        failure = self.start_failure
        if failure is not None:
            return failure.code
        if self.lost:
            return KILLED
        if own_fault:
            return own_fault[0]
        if not self.has_started:
            return TERMINATED
        return failed[0].exit_code if failed else 0

    @property
    def gpus_unchanged(self) -> bool:
        """Whether no GPU is partitioned otherwise for this attempt: it never began, or its changes were undone."""
        if self.failure is None:
            return self.world_size is None
        return bool(self.failure.get("gpus_unchanged", False))

    @property
    def is_unprompted(self) -> bool:
        """Whether every rank ended of its own accord."""
        exits = self.exits
        return len(exits) == self.world_size and not any(each.was_stopping for each in exits)

    def ended_at(self, now: float) -> float | None:
        """When the last rank ended, on the clock that reads now; None if that is not known.

        Without it, an end that is reported late could be taken for the work of a stop that was decided meanwhile.
        """
        exits = self.exits
        if self.world_size is None or len(exits) < self.world_size:
            return None
        return self.moment(max(each.ended_steady_s for each in exits), now)

    def moment(self, ended_steady_s: float, now: float) -> float | None:
        """A moment on the clock that reads now; None for a moment of another boot."""
        return now - max(0.0, steady_s() - ended_steady_s) if self.same_boot else None


def _start_failure(record: dict[str, Any], where: str = "") -> StartFailure:
    """Of a `failed.json`; one of an older version does not say whether it is final."""
    final, is_check = record.get("final", False), record.get("check") == "replace"
    return StartFailure(where + record["reason"], record["code"], final, is_check)
