"""The interfaces that control requires: a clock, and a cluster that carries out orders."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from gantree.executors.check_status import CheckStatus
from gantree.executors.exec_session import PendingExecSession, Terminal
from gantree.executors.inventory import Inventory
from gantree.executors.progress import Progress, StepReports
from gantree.model.cluster import Cluster
from gantree.model.events import Event
from gantree.model.host_use import HostUse
from gantree.model.orders import Order

Clock = Callable[[], float]
"""Seconds since 1970, never going back."""


class ClusterPort(Protocol):
    """A cluster: an executor. It tells of what happens through the `emit` it was handed when it was built.

    It tells only of what is durable on its side, under ids that do not change when it tells again.
    """

    def carry_out(self, order: Order) -> None:
        """Begin to carry out an order and return at once; never raises. Twice is the same as once."""
        ...

    def inventory(self) -> Inventory:
        """What runs where now."""
        ...

    def poll(self) -> None:
        """Look once, and emit what is new."""
        ...

    def adopt(self, epoch: int) -> None:
        """At start: obey no older epoch from now on, find what an earlier process started, emit what became of it.

        Raises JournalError where a newer epoch was obeyed before.
        """
        ...

    def settle(self, job: str, attempt: int) -> None:
        """The end of an attempt is on record: it need not be told again. Raises OSError."""
        ...

    def has_run(self, job: str) -> bool:
        """Whether anything was ever begun under this id, by whomever."""
        ...

    def remains(self, job: str) -> str:
        """What keeps an attempt that is stopped from ending, as a clause; "" where nothing is known."""
        ...

    @property
    def checks_links(self) -> bool:
        """Whether it carries out the check before the start of a job."""
        ...

    @property
    def runs_services(self) -> bool:
        """Whether it tells where replicas of services listen."""
        ...

    def check(self, job: str, attempt: int) -> CheckStatus | None:
        """How the check of an attempt stands, None without one; safe from any thread. Raises OSError."""
        ...

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """The file that a process's output goes to."""
        ...

    def progress(self, job: str, attempt: int) -> Progress | None:
        """How far an attempt says that it is; safe from any thread."""
        ...

    def curve(self, job: str, attempt: int) -> tuple[Progress, ...]:
        """Reports of an attempt over time, few enough to draw, oldest first; safe from any thread."""
        ...

    def host_use(self, job: str, attempt: int) -> HostUse | None:
        """What an attempt uses of CPUs and memory, None if not measured; safe from any thread. Raises OSError."""
        ...

    def step_reports(self, job: str, attempt: int) -> StepReports | None:
        """The own times of steps that the ranks of an attempt report; safe from any thread. Raises OSError."""
        ...

    def take_report(self, token: str, body: bytes) -> float:
        """Take what a rank reports by a request; return after how many seconds it may do so again. From any thread.

        Raises NotFound where ranks report otherwise, Unauthenticated, BadInput, Conflict, TooOften.
        """
        ...

    def take_check(self, token: str, body: bytes) -> dict[str, Any]:
        """Take what a pod posts during the check before its start; return what it is to do. From any thread.

        Raises NotFound where checks are made otherwise, Unauthenticated, BadInput.
        """
        ...

    def record(self, job: str, attempt: int) -> dict[str, Any] | None:
        """What ran as this attempt, where and on what; None if it was never started. Safe from any thread."""
        ...

    def changes(self, job: str, attempt: int) -> tuple[str, ...]:
        """Sentences on what is no longer as that record has it; safe from any thread."""
        ...

    def exec_session(
        self, job: str, attempt: int, rank: int, command: Sequence[str], terminal: Terminal | None
    ) -> PendingExecSession:
        """Ask for a command (none: a shell) beside a process; from any thread. Raises NotFound, Conflict, OSError."""
        ...

    def port(self, job: str, attempt: int, rank: int, port: int) -> tuple[str, int]:
        """Where a process and its kin listen at a port; safe from any thread. Raises NotFound, Conflict, OSError."""
        ...

    def close(self) -> None:
        """Let go; what runs goes on running."""
        ...


Emit = Callable[[Event], None]
"""Where a cluster tells what has happened; safe from any thread."""
MakeCluster = Callable[[Cluster, Emit, Clock], ClusterPort]
"""Builds the cluster from its description, the place to tell events to, and the clock to stamp them with."""
