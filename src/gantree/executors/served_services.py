"""Services that a cluster keeps itself, as they are now: on Kubernetes the GangServices. Others are in the ledger."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gantree.model.services import ServiceSpec


@dataclass(frozen=True, slots=True)
class ServedReplica:
    """A replica that listens: its name, its job and attempt, and where. draining: it is to end."""

    replica: str
    job: str
    attempt: int
    host: str
    port: int
    ready: bool
    draining: bool


@dataclass(frozen=True, slots=True)
class ServedService:
    """A service: its description, how many replicas are wanted, and those that listen, by number."""

    spec: ServiceSpec
    wanted: int
    replicas: tuple[ServedReplica, ...]


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

    def scale(self, service: str, replicas: int, reason: str) -> None:
        """Have another number of replicas wanted, as the autoscaler says."""
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
