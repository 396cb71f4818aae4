"""Which replicas a request may go to, best first: the rule of `routing.choice`, for a gateway that carries the request.

The gateway tries them in this order. Requests in work are those that this picker has chosen for and that have not
ended; a gateway that tells of no response is not seen to end sooner than it ends its stream.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gantree.routing.cache_events.match import Match
from gantree.routing.cache_events.opening import CacheIndexes
from gantree.routing.choice import Candidate, Reason, cache_order, choose, session_order
from gantree.routing.prefixes import PrefixTable, prefix_keys
from gantree.routing.table import RoutedReplica, RoutedService, RouteTable

MOST_ENDPOINTS = 3
FROM, SESSION, NAMED = "x-gantree-from", "x-gantree-session", "x-gantree-service"
"""Headers as of `gantree route`: where the caller is, its session, its service."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request: headers in small letters, its body, and endpoints that the gateway allows (None: all)."""

    headers: Mapping[str, str]
    body: bytes = b""
    subset: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Picked:
    """The replicas of a service for a request, best first, and why the first is."""

    service: RoutedService
    replicas: tuple[RoutedReplica, ...]
    reason: Reason

    @property
    def endpoints(self) -> str:
        """What the gateway is told."""
        return ",".join(map(endpoint_of, self.replicas))


@dataclass(frozen=True, slots=True)
class Refused:
    """No replica: the status of the answer, and why. service: its name in reports, if it is known."""

    status: int
    sentence: str
    service: RoutedService | None = None


def endpoint_of(replica: RoutedReplica) -> str:
    """Address and port of a replica."""
    host = f"[{replica.host}]" if ":" in replica.host else replica.host
    return f"{host}:{replica.port}"


@dataclass(slots=True)
class Picker:
    """Chooses by the newest table. service: that of every request, "" for that which each names; at: a place.

    most_endpoints: so many are named at most; caches: what replicas hold, for services with `affinity: cache`.
    """

    service: str = ""
    at: str = ""
    most_endpoints: int = MOST_ENDPOINTS
    caches: CacheIndexes = field(default_factory=CacheIndexes)
    table: RouteTable = field(default_factory=RouteTable)
    in_flight: Counter[tuple[str, str]] = field(default_factory=Counter)
    _known: dict[str, PrefixTable] = field(default_factory=dict)
    _turn: int = 0

    async def looked_up(self, request: Request) -> Match | None:
        """What replicas hold of its prompt; None where that is not known."""
        service, index = self._service_of(request), self.caches.index
        if isinstance(service, Refused) or index is None or service.routing.affinity != "cache":
            return None
        return await index.match(service.backend, request.body)

    def pick(self, request: Request, match: Match | None = None) -> Picked | Refused:
        """The replicas for a request; match: as of `looked_up`."""
        service = self._service_of(request)
        if isinstance(service, Refused):
            return service
        of_server = {each.server: each for each in service.replicas if _is_allowed(each, request)}
        candidates = [self._candidate(service, each) for each in of_server.values()]
        caller = self._caller(request)
        self._turn += 1
        preferred, keys = self._preferred(service, request, caller, candidates, match)
        first = choose(candidates, caller, preferred, self._turn)
        if first.replica is None:
            return _refused(service, first.reason)
        if keys:
            self._prefixes(service).record(keys, first.replica)
        if match is not None and self.caches.index is not None:
            self.caches.index.expect(service.backend, first.replica, match)
        names = [first.replica]
        while len(names) < self.most_endpoints:
            left = [each for each in candidates if each.name not in names]
            next_best = choose(left, caller, preferred, self._turn).replica
            if next_best is None:
                break
            names.append(next_best)
        return Picked(service, tuple(of_server[name] for name in names), first.reason)

    def _service_of(self, request: Request) -> RoutedService | Refused:
        named = self.service or request.headers.get(NAMED, "")
        if named:
            found = next((each for each in self.table.services if each.service == named), None)
            return found or Refused(503 if self.service else 404, f"there is no service {named}")
        model = _text_in(request.body, "model")
        if not model:
            why = "the request names no model; name the service in the header X-Gantree-Service"
            return Refused(404, why)
        found = next((each for each in self.table.services if model in each.models), None)
        return found or Refused(404, f"no service has the model {model}")

    def _candidate(self, service: RoutedService, replica: RoutedReplica) -> Candidate:
        return Candidate(
            name=replica.server,
            place=replica.place,
            ready=replica.ready,
            draining=replica.draining,
            in_flight=self.in_flight[service.service, replica.server],
            concurrency=service.routing.concurrency,
            speed=replica.speed,
        )

    def _caller(self, request: Request) -> tuple[str, ...]:
        """The place of a caller: that of a node, or the domains of a path such as s0/l0."""
        named = request.headers.get(FROM) or self.at
        parts = [part for part in named.split("/") if part]
        path = tuple("/".join(parts[: depth + 1]) for depth in range(len(parts)))
        return self.table.place_of_node.get(named, path)

    def _preferred(
        self,
        service: RoutedService,
        request: Request,
        caller: Sequence[str],
        candidates: Sequence[Candidate],
        match: Match | None,
    ) -> tuple[list[str], list[int]]:
        """Replicas that a request prefers, and the keys of its beginning."""
        if service.routing.affinity == "session":
            session = request.headers.get(SESSION) or _text_in(request.body, "user")
            return (session_order(candidates, caller, session) if session else []), []
        if service.routing.affinity in ("prefix", "cache") and request.body:
            starts = (request.body.find(word) for word in (b'"messages"', b'"prompt"'))
            start = next((each for each in starts if each >= 0), 0)
            keys = prefix_keys(request.body[start:])
            if match is not None and match.most:
                return cache_order(candidates, caller, match.tokens_of_server, self._turn), keys
            known = self._prefixes(service).replica(keys)
            return ([known] if known else []), keys
        return [], []

    def _prefixes(self, service: RoutedService) -> PrefixTable:
        return self._known.setdefault(service.service, PrefixTable())


def _is_allowed(replica: RoutedReplica, request: Request) -> bool:
    """Whether the gateway allows a replica: by address and port, or by address alone."""
    allowed = request.subset
    return allowed is None or endpoint_of(replica) in allowed or replica.host in allowed


def _refused(service: RoutedService, reason: Reason) -> Refused:
    if reason is Reason.NO_ROOM:
        return Refused(429, f"all replicas of {service.service} are full", service)
    return Refused(503, f"no replica of {service.service} is ready", service)


def _text_in(body: bytes, key: str) -> str:
    """A text of a JSON object; "" where there is none."""
    try:
        document: Any = json.loads(body) if body else None
    except (ValueError, RecursionError):
        return ""
    found = document.get(key) if isinstance(document, dict) else None
    return found if isinstance(found, str) else ""
