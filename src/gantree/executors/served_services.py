"""Services that a cluster keeps itself, as they are now: on Kubernetes the GangServices. Others are in the ledger."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gantree.model.services import ServiceSpec


@dataclass(frozen=True, slots=True)
class ServedReplica:
    """A replica: its name, number and revision; its job ("" for none yet) and attempt, and where that listens.

    host is "" where it does not listen. draining: it is to end, at drain_ends_at at the latest where that is known.
    since is when it became ready, or ceased to be; reason is why it is not.
    """

    replica: str
    job: str
    attempt: int
    host: str
    port: int
    ready: bool
    draining: bool
    number: int = 0
    revision: str = ""
    drain_ends_at: float | None = None
    since: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Another number of replicas was wanted: when, why, and whether by the autoscaler."""

    at: float
    reason: str
    automatic: bool


@dataclass(frozen=True, slots=True)
class ServedService:
    """A service: its description, how many replicas are wanted, and its replicas, by number.

    of_pods: its replicas are pods that other controllers make, so wanted is only how many there are. reason is why it
    is not as it is wanted.
    """

    spec: ServiceSpec
    wanted: int
    replicas: tuple[ServedReplica, ...]
    of_pods: bool = False
    revision: str = ""
    made_at: float = 0.0
    reason: str = ""
    scaled: Scaled | None = None


class ClusterServices(Protocol):
    """What a cluster tells of its services, and what it does for them; on the controller's thread."""

    @property
    def served(self) -> tuple[ServedService, ...]:
        """All of them."""
        ...

    @property
    def changes(self) -> int:
        """A number that rises with every change of them, also over restarts."""
        ...

    def drained(self, replica: str) -> None:
        """No request is left on a replica that drains."""
        ...

    def scale(self, service: str, replicas: int, reason: str, *, automatic: bool) -> None:
        """Have another number of replicas wanted, as the autoscaler says (automatic) or a user."""
        ...


@runtime_checkable
class KeepsServices(Protocol):
    """A cluster that keeps services itself."""

    @property
    def services(self) -> ClusterServices:
        """Its services."""
        ...


def services_of(cluster: object) -> ClusterServices | None:
    """The services that a cluster keeps itself; None where they are in the ledger."""
    return cluster.services if isinstance(cluster, KeepsServices) else None
