"""What routers report of services: requests, latencies, and what is in flight on each replica. Kept in memory only.

A router reports every few seconds; the last report of each counts, for LATELY_WINDOWS of its windows. A daemon that
takes over knows nothing until routers have reported again, which they do within a window.

A report is about the services that it names, idle ones too: a router names all that it sends requests to. A draining
replica has no request left once every router that lately named its service says so. A report counts for that only if
the router knew that the replica drains: it names a version of the table in which it does, or, where it names none, its
whole window lies after that. Where no router reports, a drain lasts until its deadline; that of a replica whose place
is taken ends at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

MOST_ROUTERS = 256
LATELY_WINDOWS = 3.0
LEAST_LATELY_S = 5.0


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a router knows of one attempt of a replica; counts are of the window."""

    replica: str
    attempt: int
    in_flight: int = 0
    requests: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """What a router knows of a service. Counts and rates are of the window, in_flight and queued of its end.

    concurrency is the mean of requests in work or waiting; latencies are in seconds, None where none was measured.
    """

    service: str
    requests: int = 0
    errors: int = 0
    shed: int = 0
    in_flight: int = 0
    queued: int = 0
    concurrency: float = 0.0
    rate: float = 0.0
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    ttft_p99_s: float | None = None
    itl_p99_s: float | None = None
    tokens_per_s: float | None = None
    replicas: tuple[ReplicaReport, ...] = ()


@dataclass(frozen=True, slots=True)
class RouterReport:
    """A report: version is that of the table by which it sends requests (None: not said), at when it arrived."""

    router: str
    window_s: float
    at: float
    services: tuple[ServiceReport, ...] = ()
    version: int | None = None

    def counts_at(self, now: float) -> bool:
        """Whether it still speaks for its router."""
        return now - self.at <= max(LATELY_WINDOWS * self.window_s, LEAST_LATELY_S)

    def of(self, service: str) -> ServiceReport | None:
        """What it says of a service; None where it does not name it."""
        return next((each for each in self.services if each.service == service), None)


@dataclass(frozen=True, slots=True)
class Drain:
    """A draining attempt: since is when that was seen, version that of the first table which says so.

    is_urgent: somebody waits for its place.
    """

    service: str
    job: str
    attempt: int
    since: float
    version: int
    is_urgent: bool = False

    def is_known_to(self, report: RouterReport) -> bool:
        """Whether a router knew of the drain during all that its report is about."""
        if report.version is not None:
            return report.version >= self.version
        return report.at - report.window_s >= self.since


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """What all routers together report of a service; at is when the oldest of these reports arrived.

    Counts, rates and concurrency are sums; of the quantiles the largest, which is at least that of all requests
    together. None: nobody measured it.
    """

    at: float
    requests: int
    errors: int
    shed: int
    in_flight: int
    queued: int
    concurrency: float
    rate: float
    latency_p50_s: float | None
    latency_p99_s: float | None
    ttft_p99_s: float | None
    itl_p99_s: float | None
    tokens_per_s: float | None


@dataclass(slots=True)
class RouterReports:
    """The last report of each router. All on the thread of the controller."""

    _of_router: dict[str, RouterReport] = field(default_factory=dict)

    def take(self, report: RouterReport) -> None:
        """Take the report of a router in place of its last one."""
        self._of_router.pop(report.router, None)
        self._of_router[report.router] = report
        if len(self._of_router) > MOST_ROUTERS:
            del self._of_router[next(iter(self._of_router))]

    def lately(self, now: float) -> list[RouterReport]:
        """The reports that still count, oldest first."""
        return [each for each in self._of_router.values() if each.counts_at(now)]

    def loads(self, now: float) -> dict[str, ServiceLoad]:
        """The load of each service of which a router reported lately."""
        reports: dict[str, list[tuple[float, ServiceReport]]] = {}
        for report in self.lately(now):
            for service in report.services:
                reports.setdefault(service.service, []).append((report.at, service))
        return {service: _together(parts) for service, parts in reports.items()}

    def load_figures(self, now: float) -> dict[str, dict[str, float | None]]:
        """As `loads`, each by the names of its fields, for metrics; lost_rate: errors and shed requests a second."""
        lost = defaultdict[str, float](float)
        for report in self.lately(now):
            for each in report.services:
                lost[each.service] += (each.errors + each.shed) / report.window_s
        return {
            service: asdict(load) | {"lost_rate": lost[service]}
            for service, load in self.loads(now).items()
        }

    def load(self, service: str, now: float) -> ServiceLoad | None:
        """The load of one service; None while no router reports it."""
        return self.loads(now).get(service)

    def in_flight(self, now: float) -> Mapping[tuple[str, int], int]:
        """Requests in flight by replica and attempt, over all routers."""
        found: dict[tuple[str, int], int] = {}
        for report in self.lately(now):
            for service in report.services:
                for each in service.replicas:
                    key = (each.replica, each.attempt)
                    found[key] = found.get(key, 0) + each.in_flight
        return found

    def drained(self, drains: Iterable[Drain], now: float) -> Iterator[Drain]:
        """Those of the drains of which no router has a request left. Where no router reports, nobody waits for it."""
        reports = self.lately(now)
        for drain in drains:
            told = [(each, part) for each in reports if (part := each.of(drain.service))]
            if (told or drain.is_urgent) and all(
                _is_clear(report, part, drain) for report, part in told
            ):
                yield drain


def _is_clear(report: RouterReport, part: ServiceReport, drain: Drain) -> bool:
    key = (drain.job, drain.attempt)
    in_flight = (each.in_flight for each in part.replicas if (each.replica, each.attempt) == key)
    return drain.is_known_to(report) and not any(in_flight)


def _together(parts: list[tuple[float, ServiceReport]]) -> ServiceLoad:
    every = [service for _, service in parts]
    tokens = [each.tokens_per_s for each in every if each.tokens_per_s is not None]
    return ServiceLoad(
        at=min(at for at, _ in parts),
        requests=sum(each.requests for each in every),
        errors=sum(each.errors for each in every),
        shed=sum(each.shed for each in every),
        in_flight=sum(each.in_flight for each in every),
        queued=sum(each.queued for each in every),
        concurrency=sum(each.concurrency for each in every),
        rate=sum(each.rate for each in every),
        latency_p50_s=_largest(each.latency_p50_s for each in every),
        latency_p99_s=_largest(each.latency_p99_s for each in every),
        ttft_p99_s=_largest(each.ttft_p99_s for each in every),
        itl_p99_s=_largest(each.itl_p99_s for each in every),
        tokens_per_s=sum(tokens) if tokens else None,
    )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)
