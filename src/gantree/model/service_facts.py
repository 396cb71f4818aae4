"""Facts about services and their replicas. A replica is accepted, placed and ended by the facts of its job."""

from dataclasses import dataclass

from gantree.model.facts import Fact
from gantree.model.phases import StopCause
from gantree.model.services import ServiceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccepted(Fact):
    """A service was accepted; so many replicas are wanted. Revisions of a name count on."""

    service: str
    spec: ServiceSpec
    replicas: int
    revision: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRejected(Fact):
    """A service, or another description of a live one, was rejected, and why."""

    service: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUpdated(Fact):
    """A live service has another description; a higher revision if its replicas are to be replaced."""

    service: str
    spec: ServiceSpec
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceScaled(Fact):
    """Another number of replicas is wanted than before, set by the autoscaler (automatic) or a user."""

    service: str
    replicas: int
    before: int
    reason: str = ""
    automatic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEnding(Fact):
    """A service ends: all its replicas drain, and none is replaced."""

    service: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEnded(Fact):
    """No replica of a service that ends is left."""

    service: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReadinessNoted(Fact):
    """An attempt of a replica became ready for requests, or is not ready any more."""

    job: str
    attempt: int
    ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDraining(Fact):
    """A replica gets no new requests; once it has none, or at ends_at, it is stopped.

    Its job ends then. With another cause than CANCELLED the job waits again: the attempt has ended by gone_by.
    """

    job: str
    attempt: int
    ends_at: float
    reason: str
    cause: StopCause = StopCause.CANCELLED
    gone_by: float | None = None
