"""A cluster that only writes down what it is told. For tests of what control says to a cluster, and when."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gantree.executors.check_status import CheckStatus
from gantree.executors.exec_session import PendingExecSession, Terminal
from gantree.executors.inventory import Inventory, Status
from gantree.executors.progress import Progress, StepReports
from gantree.model.cluster import Cluster
from gantree.model.errors import Conflict, NotFound
from gantree.model.events import Event
from gantree.model.host_use import HostUse
from gantree.model.orders import Order


class RecordingCluster:
    """Carries nothing out. `told` is what it was told; the test says through `emit` what has come of it."""

    checks_links = True
    runs_services = True

    def __init__(
        self, cluster: Cluster, emit: Callable[[Event], None], clock: Callable[[], float]
    ) -> None:
        self.cluster = cluster
        self.emit = emit
        self.clock = clock
        self.told: list[Order] = []
        self.attempts: dict[tuple[str, int], Status] = {}
        self.to_adopt: list[Event] = []
        self.remaining: dict[str, str] = {}
        self.logs = Path("/nonexistent")
        self.closed = False

    def carry_out(self, order: Order) -> None:
        """Write the order down."""
        self.told.append(order)

    def inventory(self) -> Inventory:
        """What the test says that runs."""
        return Inventory(dict(self.attempts))

    def poll(self) -> None:
        """Nothing is ever new."""

    def adopt(self, epoch: int) -> None:
        """Tell what the test says that happened meanwhile."""
        for event in self.to_adopt:
            self.emit(event)

    def settle(self, job: str, attempt: int) -> None:
        """Forget the attempt."""
        del self.attempts[job, attempt]

    def has_run(self, job: str) -> bool:
        """Whether the test has put logs of it there."""
        return (self.logs / job).exists()

    def remains(self, job: str) -> str:
        """What the test says."""
        return self.remaining.get(job, "")

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """A folder an attempt below `logs`, which the test may set."""
        return self.logs / job / str(attempt) / str(rank)

    def curve(self, job: str, attempt: int) -> tuple[Progress, ...]:
        """Nothing is reported."""
        return ()

    def host_use(self, job: str, attempt: int) -> HostUse | None:
        """Nothing runs here."""
        return None

    def progress(self, job: str, attempt: int) -> Progress | None:
        """Nothing runs here."""
        return None

    def check(self, job: str, attempt: int) -> CheckStatus | None:
        """Nothing is checked."""
        return None

    def step_reports(self, job: str, attempt: int) -> StepReports | None:
        """Nothing is reported."""
        return None

    def take_report(self, token: str, body: bytes) -> float:
        """Nobody reports by requests here."""
        raise NotFound("ranks report by files here")

    def take_check(self, token: str, body: bytes) -> dict[str, Any]:
        """Nobody posts here."""
        raise NotFound("checks report by files here")

    def record(self, job: str, attempt: int) -> dict[str, Any] | None:
        """Nothing runs here."""
        return None

    def changes(self, job: str, attempt: int) -> tuple[str, ...]:
        """Nothing runs here."""
        return ()

    def exec_session(
        self, job: str, attempt: int, rank: int, command: Sequence[str], terminal: Terminal | None
    ) -> PendingExecSession:
        """Nothing runs here."""
        raise Conflict(f"{job} does not run")

    def port(self, job: str, attempt: int, rank: int, port: int) -> tuple[str, int]:
        """Nothing runs here."""
        raise Conflict(f"{job} does not run")

    def close(self) -> None:
        """Remember that it was let go."""
        self.closed = True
