"""The state of a service in the ledger. Its replicas are jobs (`core.ledger.state`, `JobState.replica`).

A service that has ended is kept: numbers and revisions of its name go on, so no job id is used twice. Only
`core.ledger.apply` writes here.
"""

from dataclasses import dataclass, field

from gantree.model.replicas import Revision
from gantree.model.services import Keeper, ServiceSpec


@dataclass(slots=True)
class ServiceState:
    """A service. Times are seconds of `Event.observed_at`; None: not yet.

    wanted: so many replicas are to run, as it was set last: at scaled_at, for scaled_for, by the autoscaler or not.
    replicas are its jobs that have not ended, by rising number. next_number is above that of all of them. keeper is who
    decides how many there are.
    """

    service: str
    spec: ServiceSpec
    revision: Revision
    wanted: int
    accepted_at: float
    updated_at: float
    next_number: int = 1
    scaled_at: float | None = None
    scaled_for: str = ""
    scaled_automatically: bool = False
    ending_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    replicas: dict[str, None] = field(default_factory=dict)
    keeper: Keeper = Keeper.GANTREE

    @property
    def is_live(self) -> bool:
        """Whether it has, or may get, replicas."""
        return self.ended_at is None

    @property
    def is_ending(self) -> bool:
        """Whether its replicas drain, and none is replaced."""
        return self.ending_at is not None
