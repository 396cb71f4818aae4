"""Orders are instructions to a cluster. They are idempotent.

Each has an id and the leader's epoch; an executor refuses an order of an older epoch. An order contains all that the
executor needs: executors never query the core.
"""

from dataclasses import dataclass

from gantree.model.jobs import Check
from gantree.model.placements import Domain, GpuChange, MigPart, SharePart
from gantree.model.replicas import ReplicaOf
from gantree.model.values import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Base of all orders. The core sets epoch 0; the turn sets the leader's."""

    id: str
    job: str
    attempt: int
    epoch: int = 0


@quick
@dataclass(frozen=True, slots=True)
class MemberLaunch:
    """One member to start: `processes` OS processes of `run` on `node`.

    rank is the member's number in its role, node_rank its number in the gang, by its lowest global rank; first_rank is
    the global rank of its first process, ranks those of all of them; () where they follow first_rank one by one. gpus
    are indices on the node in link order, nics device names. Instead of whole GPUs it may have MIG instances or a
    share; devices are (name, count) of devices other than GPUs and NICs.
    """

    role: str
    rank: int
    node: str
    node_rank: int
    first_rank: int
    processes: int
    gpus: tuple[int, ...]
    nics: tuple[str, ...]
    run: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    workdir: str | None = None
    image: str | None = None
    cpus: float = 0.0
    memory_GiB: float = 0.0
    mig: tuple[MigPart, ...] = ()
    share: SharePart | None = None
    devices: tuple[tuple[str, int], ...] = ()
    ranks: tuple[int, ...] = ()

    @property
    def rank_of_process(self) -> tuple[int, ...]:
        """The global rank of each process."""
        return self.ranks or tuple(range(self.first_rank, self.first_rank + self.processes))


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StartGang(Order):
    """Start all members of an attempt, or none. changes are applied to GPUs before.

    variables as in `Job`. domain is the narrowest that holds all members, step_s the predicted seconds of a step, if
    any, parallelism is (axis, ways) in the order in which ranks count: all three only for the record of the run. user
    submitted the job; secrets are (variable, file), read at the start. check is what comes before the command;
    check_replaces: where it names who is at fault, the attempt ends, to be placed anew. replaceable: where a member but
    the first fails or is lost, the others go on until it is replaced or all are told to stop. service: the replica that
    it is, with the port where it listens and when it is ready. leased: its processes end with the lease of the
    federation.
    """

    world_size: int
    members: tuple[MemberLaunch, ...]
    checkpoint_signal: str | None = None
    checkpoint_every_s: float | None = None
    checkpoint_path: str | None = None
    array_index: int | None = None
    changes: tuple[GpuChange, ...] = ()
    variables: str | None = None
    domain: Domain | None = None
    step_s: float | None = None
    user: str = ""
    secrets: tuple[tuple[str, str], ...] = ()
    parallelism: tuple[tuple[str, int], ...] = ()
    check: Check | None = None
    check_replaces: bool = True
    replaceable: bool = False
    service: ReplicaOf | None = None
    leased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceMember(Order):
    """Start one member of an attempt again; the others are not touched. Remains of the old member are removed.

    member is its number in the gang, life counts its replacements; gang are all members from now on.
    """

    member: int
    life: int
    gang: StartGang


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StopGang(Order):
    """Stop all processes of an attempt: SIGTERM, after grace_s SIGKILL. A pending start is cancelled."""

    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint(Order):
    """Request a checkpoint at a step on which the ranks agree; `CheckpointSaved` answers with this request."""

    request: str
    deadline_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendGang(Order):
    """Suspend all processes of an attempt (SIGSTOP), until `ResumeGang`. turn increases, so late duplicates of older
    orders are ignored."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeGang(Order):
    """Resume all processes of an attempt (SIGCONT). turn as in `SuspendGang`."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalGang(Order):
    """Send a signal once to every process of an attempt, after the process has installed a handler."""

    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteToLog(Order):
    """Write a line into the log of the first process of each member of an attempt, once, or an event of its pods."""

    text: str


ORDERS: dict[str, type[Order]] = {
    kind.__name__: kind
    for kind in (
        StartGang, ReplaceMember, StopGang, SaveCheckpoint, SuspendGang, ResumeGang, SignalGang,
        WriteToLog,
    )
}  # fmt: skip
