"""The table of services and their replicas that a router works by: `GET /v1/routes` of a daemon, or a file.

{"version": "7", "services": [{"service": "chat", "models": ["llama-8b"], "concurrency": 32, "queue": 100, "wait_s": 60,
  "timeout_s": 600, "affinity": "prefix", "wanted": 2, "replicas": [{"replica": "chat.3", "attempt": 1,
  "host": "127.0.0.1", "port": 40123, "node": "n0", "place": ["s0", "s0/l0", "n0"], "gpu": "H100-80GB", "speed": 1.0,
  "ready": true, "draining": false, "spare": false}]}], "nodes": {"n7": ["s0", "s0/l1", "n7"]}}

`nodes`, which a daemon may leave out, says where callers are that name their node. Fields that are not known are passed
over: a daemon may be newer than its routers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gantree.model.errors import BadInput
from gantree.model.services import AFFINITIES, Routing

DEFAULTS = Routing()
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class RoutedReplica:
    """One attempt of a replica. place: its domains from wide to narrow, then its node.

    cache_events_port, cache_replay_port: where its engine publishes its cache events, and sends them again; 0: nowhere.
    """

    replica: str
    attempt: int
    host: str
    port: int
    place: tuple[str, ...] = ()
    speed: float = 1.0
    ready: bool = True
    draining: bool = False
    cache_events_port: int = 0
    cache_replay_port: int = 0

    @property
    def server(self) -> str:
        """Its name in HAProxy."""
        return f"{haproxy_name(self.replica)}_{self.attempt}"


@dataclass(frozen=True, slots=True)
class RoutedService:
    """A service and how its requests are routed (`model.services.Routing`)."""

    service: str
    routing: Routing = DEFAULTS
    replicas: tuple[RoutedReplica, ...] = ()

    @property
    def backend(self) -> str:
        """Its name in HAProxy."""
        return haproxy_name(self.service)

    @property
    def models(self) -> tuple[str, ...]:
        """What clients give as `model`."""
        return self.routing.models or (self.service,)

    @property
    def tokenizer(self) -> str:
        """The directory of its tokenizer, among those that the router has."""
        return self.routing.tokenizer or self.models[0]


@dataclass(frozen=True, slots=True)
class RouteTable:
    """What there is, and the version to ask for changes after."""

    services: tuple[RoutedService, ...] = ()
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: str = ""

    @property
    def is_known(self) -> bool:
        """Whether somebody gave it: a router that has not reached its daemon yet has none."""
        return bool(self.version or self.services)

    @property
    def place_of_node(self) -> dict[str, tuple[str, ...]]:
        """Where callers are that name a node: one that replicas are on, or one of `nodes`."""
        replicas = (each for service in self.services for each in service.replicas if each.place)
        return {**{each.place[-1]: each.place for each in replicas}, **self.nodes}

    @property
    def owner_of_model(self) -> dict[str, str]:
        """The service that gets the requests for a model: the first that has it."""
        owners: dict[str, str] = {}
        for service in self.services:
            for model in service.models:
                owners.setdefault(model, service.service)
        return owners

    @property
    def shared_models(self) -> tuple[str, ...]:
        """What to say of models that several services have."""
        owners = self.owner_of_model
        return tuple(
            f"services {owners[model]} and {service.service} both have the model {model}"
            for service in self.services
            for model in service.models
            if owners[model] != service.service
        )


def haproxy_name(name: str) -> str:
    """Return a name that HAProxy accepts, other for each name."""
    return _UNSAFE.sub(lambda found: f":{ord(found[0]):X}:", name)


def table_of(document: Any) -> RouteTable:
    """Read a table. Raises BadInput."""
    try:
        services = tuple(map(_service, document["services"]))
        nodes = {str(name): tuple(place) for name, place in document.get("nodes", {}).items()}
        return RouteTable(services, nodes, str(document.get("version", "")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise BadInput(f"table of routes: {what}; docs/routing.md has its form") from error


def _service(row: Any) -> RoutedService:
    affinity = row.get("affinity", DEFAULTS.affinity)
    if affinity not in AFFINITIES:
        raise ValueError(f"found affinity {affinity!r}; allowed: {', '.join(AFFINITIES)}")
    routing = Routing(
        models=tuple(map(str, row.get("models", ()))),
        concurrency=int(row.get("concurrency", DEFAULTS.concurrency)),
        queue=int(row.get("queue", DEFAULTS.queue)),
        wait_s=float(row.get("wait_s", DEFAULTS.wait_s)),
        timeout_s=float(row.get("timeout_s", DEFAULTS.timeout_s)),
        affinity=affinity,
        tokenizer=str(row.get("tokenizer", DEFAULTS.tokenizer)),
    )
    return RoutedService(str(row["service"]), routing, tuple(map(_replica, row["replicas"])))


def _replica(row: Any) -> RoutedReplica:
    speed = float(row.get("speed", 1.0))
    if not speed > 0:
        raise ValueError(f"found speed {speed!r} of {row['replica']}; allowed: a number above 0")
    return RoutedReplica(
        replica=str(row["replica"]),
        attempt=int(row["attempt"]),
        host=str(row["host"]),
        port=int(row["port"]),
        place=tuple(map(str, row.get("place", ()))),
        speed=speed,
        ready=bool(row.get("ready", True)),
        draining=bool(row.get("draining", False)),
        cache_events_port=int(row.get("cache_events_port", 0)),
        cache_replay_port=int(row.get("cache_replay_port", 0)),
    )
