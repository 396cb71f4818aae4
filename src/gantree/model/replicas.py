"""A replica of a service, as its job knows it: which one it is, when it is ready, and where it listens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Readiness:
    """When a replica is ready: its port answers, with a status below 400 at http_path if there is one.

    Asked each every_s; an answer counts within timeout_s; after `failures` in a row it is not ready. A replica that is
    not ready within_s after its start is stopped and started again.
    """

    http_path: str | None = None
    every_s: float = 2.0
    timeout_s: float = 1.0
    failures: int = 3
    within_s: float = 600.0


DEFAULT_READINESS = Readiness()
Revision = int | str
"""Which description of a service a replica runs: a number; a digest where a cluster keeps the service itself."""


CACHE_EVENTS, CACHE_REPLAY = "cache-events", "cache-replay"
"""In the place of a role: where the engine of a replica publishes its cache events, and sends the last ones again."""


@dataclass(frozen=True, slots=True)
class ReplicaOf:
    """Which replica of a service a job is: its number, and the revision of the description that it runs.

    The ports and ready are those of that revision, as in `ServiceSpec`. name: that of the replica, where it is not the
    id of its job ("": it is).
    """

    service: str
    number: int
    revision: Revision
    port: int | None = None
    ready: Readiness = DEFAULT_READINESS
    cache_events_port: int | None = None
    cache_replay_port: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a member of a replica listens, or its engine publishes (CACHE_EVENTS, CACHE_REPLAY)."""

    role: str
    member: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port as a URL has them: "10.0.0.7:8000", "[fd00::7]:8000"."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
