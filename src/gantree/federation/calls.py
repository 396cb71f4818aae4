"""The calls that a front makes to clusters. `front` asks for them, `driver` makes them."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gantree.model.federation import Assignment, Renewal

Json = dict[str, Any]


class CallKind(Enum):
    """What a call is for."""

    LEASE = "renew the lease"
    FORECAST = "ask for a forecast"
    SUBMIT = "hand in a job"
    CANCEL = "cancel a job"
    LOOK = "look at a job"


CallKey = tuple[CallKind, str, str]


@dataclass(frozen=True, slots=True)
class Call:
    """One call. job is the federation's id, remote the cluster's; which of the rest is there depends on the kind.

    is_service: it is about a service, by its name; one that was handed in anew since it came by came_by is not meant.
    version: to cancel a job only if nothing was recorded of it since.
    """

    kind: CallKind
    cluster: str
    job: str = ""
    remote: str = ""
    assignment: Assignment | None = None
    renewal: Renewal | None = None
    body: Json = field(default_factory=dict)
    is_service: bool = False
    came_by: str = ""
    version: str = ""

    @property
    def key(self) -> CallKey:
        """Calls with the same key are made one after the other."""
        return self.kind, self.cluster, self.remote or self.job
