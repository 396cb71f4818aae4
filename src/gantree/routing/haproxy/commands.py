"""What HAProxy is told at its runtime socket: the lines of the table for `router.lua`, and the servers of backends.

`changes` compares two tables. A server stands for one attempt of a replica. It is added in maintenance, known to the
rule, and then enabled; one that is to go is first unknown to the rule, then in maintenance, then deleted once its last
connection has ended.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from urllib.parse import quote
from zlib import crc32

from gantree.routing.table import RoutedReplica, RoutedService, RouteTable

CHECK = (
    "check inter 1s fastinter 200ms fall 2 rise 1 observe layer4 error-limit 3 on-error mark-down"
)
"""A server that cannot be connected to is out of use until it can be; readiness is what the table says."""
POOL = "pool-max-conn 10000 pool-purge-delay 5s"
"""Idle connections are kept for so long. HAProxy 2.6 keeps none of a server that is added at run time without both."""
SAFE = "/:"
MOST_MODEL_BYTES = 12_000
"""Of a service, as written in its line: HAProxy takes a line no longer than its buffer, of 16 KiB at least. What is
beyond is not known to the router; a daemon takes no service with so much, a cluster of Kubernetes may have one.
"""


def table_lines(table: RouteTable) -> list[str]:
    """Return all lines of a table for `router.lua`, without replicas."""
    owners = table.owner_of_model
    services = (_service_line(each, owners) for each in table.services)
    return [*(["known"] if table.is_known else []), *services, *_node_lines(table)]


def changes(before: RouteTable, after: RouteTable, lingering: Collection[str] = ()) -> list[str]:
    """Return the commands that turn one table into the other, of services that both have.

    lingering: paths of servers that are not deleted yet; one that is wanted again is altered, not added.
    """
    commands = [f"gantree {line}" for line in table_lines(after) if line not in table_lines(before)]
    old = {each.service: each for each in before.services}
    for service in after.services:
        commands += _service_changes(
            old.get(service.service, RoutedService(service.service)), service, lingering
        )
    return commands


def gone(before: RouteTable, after: RouteTable) -> list[str]:
    """Return paths of servers of the one table that the other has not, of services that both have."""
    names = {service.service for service in after.services}
    both = tuple(each for each in before.services if each.service in names)
    left = paths(after)
    return [path for path in paths(replace(before, services=both)) if path not in left]


def paths(table: RouteTable) -> dict[str, None]:
    """Return the paths of all servers of a table, in its order."""
    return {_path(service, each): None for service in table.services for each in service.replicas}


def deletion(path: str) -> str:
    """Return the command that deletes a server; HAProxy refuses it while there is a connection."""
    return f"del server {path}"


def _service_changes(
    before: RoutedService, after: RoutedService, lingering: Collection[str]
) -> Iterator[str]:
    old = {each.server: each for each in before.replicas}
    new = {each.server: each for each in after.replicas}
    for server in old.keys() - new.keys():
        path = f"{after.backend}/{server}"
        yield f"gantree forget {after.backend} {server}"
        yield f"disable health {path}"
        yield f"set server {path} state maint"
    limit_changed = before.routing.concurrency != after.routing.concurrency
    for server, replica in new.items():
        if server not in old:
            yield from _addition(after, replica, is_there=_path(after, replica) in lingering)
        else:
            yield from _alteration(after, old[server], replica, limit_changed=limit_changed)


def _addition(service: RoutedService, replica: RoutedReplica, *, is_there: bool) -> Iterator[str]:
    path = _path(service, replica)
    limit = service.routing.concurrency
    if is_there:
        yield f"set server {path} addr {replica.host} port {replica.port}"
        yield f"set maxconn server {path} {limit}"
    else:
        limited = f" maxconn {limit}" if limit else ""
        yield f"add server {path} {address(replica)}{limited} {CHECK} {POOL}"
    yield _replica_line(service, replica)
    yield _state(path, replica)
    yield f"enable health {path}"


def _alteration(
    service: RoutedService, old: RoutedReplica, new: RoutedReplica, *, limit_changed: bool
) -> Iterator[str]:
    path = _path(service, new)
    if old != new:
        yield _replica_line(service, new)
    if (old.host, old.port) != (new.host, new.port):
        yield f"set server {path} addr {new.host} port {new.port}"
    if _is_open(old) != _is_open(new):
        yield _state(path, new)
    if limit_changed:
        yield f"set maxconn server {path} {service.routing.concurrency}"


def address(replica: RoutedReplica) -> str:
    """Return an address as HAProxy writes it."""
    kind = "ipv6@" if ":" in replica.host else ""
    return f"{kind}{replica.host}:{replica.port}"


def _path(service: RoutedService, replica: RoutedReplica) -> str:
    return f"{service.backend}/{replica.server}"


def _is_open(replica: RoutedReplica) -> bool:
    return replica.ready and not replica.draining


def _state(path: str, replica: RoutedReplica) -> str:
    """Draining in HAProxy: no new requests, also no retries; what runs goes on."""
    return f"set server {path} state {'ready' if _is_open(replica) else 'drain'}"


def _service_line(service: RoutedService, owners: Mapping[str, str]) -> str:
    routing = service.routing
    own = [each for each in service.models if owners[each] == service.service]
    ends = accumulate(len(quote(each, safe=SAFE)) + 1 for each in own)
    models = (each for each, end in zip(own, ends, strict=True) if end <= MOST_MODEL_BYTES)
    words = (
        service.backend, service.service, routing.queue, round(routing.wait_s * 1000), routing.affinity,
        routing.concurrency, *models,
    )  # fmt: skip
    return _line("service", words)


def _replica_line(service: RoutedService, replica: RoutedReplica) -> str:
    words = (
        service.backend, replica.server, crc32(replica.server.encode()), replica.speed, int(replica.ready),
        int(replica.draining), *replica.place,
    )  # fmt: skip
    return f"gantree {_line('replica', words)}"


def _node_lines(table: RouteTable) -> list[str]:
    return [_line("node", (name, *place)) for name, place in sorted(table.place_of_node.items())]


def _line(kind: str, words: Iterable[object]) -> str:
    return " ".join([kind, *(quote(str(word), safe=SAFE) for word in words)])
