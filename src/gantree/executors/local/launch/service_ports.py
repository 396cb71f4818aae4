"""The ports at which the members of a replica of a service listen.

The first member listens at the port of the service if it has one. The other members, and all of a service without one,
get a port that is free now. Each member finds its own in PORT, and those of all in GANTREE_ENDPOINTS. Where its engine
is to publish cache events, it finds in GANTREE_CACHE_EVENTS_PORT and GANTREE_CACHE_REPLAY_PORT.
"""

import errno
import socket
from collections.abc import Collection, Mapping, Sequence

from gantree.executors.local.launch.master_port import free_port
from gantree.executors.local.run_directory import RunDirectory
from gantree.model.cluster import Node
from gantree.model.orders import StartGang
from gantree.model.replicas import CACHE_EVENTS, CACHE_REPLAY, Endpoint, ReplicaOf

CACHE_VARIABLES = {
    CACHE_EVENTS: "GANTREE_CACHE_EVENTS_PORT",
    CACHE_REPLAY: "GANTREE_CACHE_REPLAY_PORT",
}


def endpoints_for(
    order: StartGang, nodes: Mapping[str, Node], taken: Collection[int], run: RunDirectory
) -> tuple[Endpoint, ...]:
    """Where each member is to listen, by its number in the gang; () for a job that is no replica.

    The search begins at a number that differs between directories of runs, so that two daemons on one machine whose
    replicas have the same names and start together hardly ever choose one port for both.
    Raises OSError where the port of the service is in use, or none is free.
    """
    if order.service is None:
        return ()
    endpoints: list[Endpoint] = []
    for member in sorted(order.members, key=lambda each: each.node_rank):
        if member.node_rank == 0 and order.service.port is not None:
            port = order.service.port
            _check_unused(port, taken)
        else:
            in_use = {*taken, *(each.port for each in endpoints)}
            port = free_port(str(run.member(member.node_rank)), order.attempt, in_use)
        address = nodes[member.node].address
        endpoints.append(Endpoint(member.role, member.rank, address, port))
    for kind, told in _cache_ports(order.service):
        if told is None:
            continue
        in_use = {*taken, *(each.port for each in endpoints)}
        if told:
            _check_unused(told, in_use)
        port = told or free_port(f"{run.member(0)}/{kind}", order.attempt, in_use)
        endpoints.append(Endpoint(kind, 0, endpoints[0].host, port))
    return tuple(endpoints)


def _cache_ports(service: ReplicaOf) -> tuple[tuple[str, int | None], ...]:
    return (CACHE_EVENTS, service.cache_events_port), (CACHE_REPLAY, service.cache_replay_port)


def port_variables(
    order: StartGang, endpoints: Sequence[Endpoint], node_rank: int
) -> dict[str, str]:
    """What a member of a replica has in its environment; nothing of a job that is no replica."""
    if order.service is None or not endpoints:
        return {}
    count = len(order.members)
    every = (f"{each.role}/{each.member}={each.address}" for each in endpoints[:count])
    of_caches = {CACHE_VARIABLES[each.role]: str(each.port) for each in endpoints[count:]}
    return {
        **of_caches,
        "PORT": str(endpoints[node_rank].port),
        "GANTREE_SERVICE": order.service.service,
        "GANTREE_REPLICA": str(order.service.number),
        "GANTREE_ENDPOINTS": ",".join(every),
    }


def _check_unused(port: int, taken: Collection[int]) -> None:
    """Raises OSError where something listens at the port; connections that are being closed do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if port not in taken:
                listener.bind(("", port))
                return
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"port {port} of the service is in use on this machine")
