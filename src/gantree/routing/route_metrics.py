"""What a router tells Prometheus (`gantree route --metrics`)."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gantree.routing.cache_events.match import Held, Match
from gantree.routing.measurements import Now, Record
from gantree.routing.table import RouteTable

BUCKETS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
LOOKUP_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)


class CacheMetrics:
    """Of services with `affinity: cache`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lookups = Counter(
            "gantree_route_cache_lookups",
            "Prompts that were looked up: found (a replica holds some of it), none, or unknown (no tokens, no events).",
            ("service", "result"),
            registry=registry,
        )
        self._prompt_tokens = Counter(
            "gantree_route_cache_prompt_tokens",
            "Tokens of prompts that were looked up.",
            ("service",),
            registry=registry,
        )
        self._found_tokens = Counter(
            "gantree_route_cache_found_tokens",
            "Of these, tokens that the replica with the most of them holds.",
            ("service",),
            registry=registry,
        )
        self._seconds = Histogram(
            "gantree_route_cache_lookup_seconds",
            "Time of a lookup; a request waits for it no longer than --cache-wait.",
            ("service",),
            buckets=LOOKUP_BUCKETS_S,
            registry=registry,
        )
        self._replicas = Gauge(
            "gantree_route_cache_replicas",
            "Replicas whose cache events are read.",
            ("service",),
            registry=registry,
        )
        self._blocks = Gauge(
            "gantree_route_cache_blocks",
            "Blocks that these replicas hold.",
            ("service",),
            registry=registry,
        )
        self._gaps = Gauge(
            "gantree_route_cache_gaps",
            "Times that events of a replica were lost, since the router started.",
            ("service",),
            registry=registry,
        )

    def looked_up(self, service: str, match: Match | None, seconds: float) -> None:
        """Count a lookup."""
        self._seconds.labels(service).observe(seconds)
        if match is None:
            self._lookups.labels(service, "unknown").inc()
            return
        self._lookups.labels(service, "found" if match.most else "none").inc()
        self._prompt_tokens.labels(service).inc(match.prompt_tokens)
        self._found_tokens.labels(service).inc(match.most)

    def sample(self, service: str, held: Held) -> None:
        """Set what is known now."""
        self._replicas.labels(service).set(held.replicas)
        self._blocks.labels(service).set(held.blocks)
        self._gaps.labels(service).set(held.gaps)


class RouteMetrics:
    """The metrics of one router, with a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "gantree_route_requests",
            "Requests that have ended, by service, status and reason of the choice.",
            ("service", "status", "reason"),
            registry=self.registry,
        )
        self._errors = Counter(
            "gantree_route_errors",
            "Requests that failed: status 500 and above without what was refused, and answers that broke off.",
            ("service",),
            registry=self.registry,
        )
        self._retries = Counter(
            "gantree_route_retries", "Requests sent again.", ("service",), registry=self.registry
        )
        self._total = Histogram(
            "gantree_route_request_seconds",
            "Time from a request to the end of its response.",
            ("service",),
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self._first = Histogram(
            "gantree_route_first_byte_seconds",
            "Time from a request to the head of its response.",
            ("service",),
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "gantree_route_in_flight", "Requests in work.", ("service",), registry=self.registry
        )
        self._queued = Gauge(
            "gantree_route_queued", "Requests that wait.", ("service",), registry=self.registry
        )
        self._replicas = Gauge(
            "gantree_route_replicas",
            "Replicas in the table, by state.",
            ("service", "state"),
            registry=self.registry,
        )
        self._table_age = Gauge(
            "gantree_route_table_age_seconds",
            "Time since the daemon last answered; with a file, since it was read.",
            registry=self.registry,
        )
        self._restarts = Counter(
            "gantree_route_proxy_restarts",
            "Times that HAProxy ended by itself.",
            registry=self.registry,
        )

        self._cache = CacheMetrics(self.registry)
        self.looked_up, self.sample_cache = self._cache.looked_up, self._cache.sample

    def record(self, service: str, record: Record) -> None:
        """Count a request that has ended."""
        self._requests.labels(service, str(record.status), record.reason).inc()
        if record.is_error:
            self._errors.labels(service).inc()
        if record.retries:
            self._retries.labels(service).inc(record.retries)
        self._total.labels(service).observe(record.total_s)
        if record.first_byte_s is not None:
            self._first.labels(service).observe(record.first_byte_s)

    def restarted(self) -> None:
        """Count an end of HAProxy that nobody wanted."""
        self._restarts.inc()

    def sample(self, table: RouteTable, now: Now, table_age_s: float) -> None:
        """Set what is true now."""
        self._table_age.set(table_age_s)
        for gauge in (self._in_flight, self._queued, self._replicas):
            gauge.clear()
        for service in table.services:
            of_service = [
                now.in_flight.get((service.backend, each.server), 0) for each in service.replicas
            ]
            self._in_flight.labels(service.service).set(sum(of_service))
            self._queued.labels(service.service).set(now.queued.get(service.backend, 0))
            for replica in service.replicas:
                state = (
                    "draining" if replica.draining else "ready" if replica.ready else "not-ready"
                )
                self._replicas.labels(service.service, state).inc()
