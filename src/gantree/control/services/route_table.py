"""What routers need to know: the services that are live, and where each of their replicas listens.

The table has a version that rises whenever a row changes, also over restarts: it is the number of facts at which a
change was seen. Two versions that differ may have equal rows, after a restart; equal versions never differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gantree.control.services.router_reports import Drain
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.replica_drains import drains_for_another
from gantree.core.services.models import models_of
from gantree.core.services.replicas import live_replicas, name_of
from gantree.model.gang_shapes import in_shape_of
from gantree.model.phases import Phase
from gantree.model.replicas import CACHE_EVENTS, CACHE_REPLAY, Endpoint

Json = dict[str, Any]
QueueRow = tuple[str, Json]


def route_rows(ledger: Ledger) -> list[QueueRow]:
    """A row for each live service with its queue, in order of arrival."""
    live = (each for each in ledger.services.values() if each.is_live)
    return [(each.spec.replica.queue, _service_row(ledger, each)) for each in live]


def _service_row(ledger: Ledger, service: ServiceState) -> Json:
    spec = service.spec
    routing = spec.routing
    replicas = live_replicas(ledger, service)
    rows = [_replica_row(ledger, each) for each in replicas if each.replica.endpoints]
    _mark_spare(rows, spec.replicas.spare)
    return {
        "service": service.service,
        "models": list(models_of(spec)),
        "concurrency": routing.concurrency,
        "queue": routing.queue,
        "wait_s": routing.wait_s,
        "timeout_s": routing.timeout_s,
        "affinity": routing.affinity,
        "tokenizer": routing.tokenizer,
        "wanted": 0 if service.is_ending else service.wanted,
        "replicas": rows,
    }


def _replica_row(ledger: Ledger, state: JobState) -> Json:
    replica, first = state.replica, state.replica.endpoints[0]
    leaves = state.phase is not Phase.RUNNING
    return {
        "replica": name_of(state),
        "attempt": state.attempt,
        "host": first.host,
        "port": first.port,
        "cache_events_port": _port(replica.endpoints, CACHE_EVENTS),
        "cache_replay_port": _port(replica.endpoints, CACHE_REPLAY),
        **_place(ledger, state),
        "ready": replica.ready and not leaves,
        "draining": replica.draining or leaves,
        "spare": False,
    }


def _port(endpoints: Sequence[Endpoint], kind: str) -> int:
    """Where cache events are published, or sent again; 0 where they are not. The first endpoint is a member's."""
    return next((each.port for each in endpoints[1:] if each.role == kind), 0)


def _place(ledger: Ledger, state: JobState) -> Json:
    """Where its first member is, and how fast it is there."""
    assert state.placement is not None, f"{state.job} listens and has no place"
    node, gpu, speed = state.placement.members[0].node, _gpu(ledger, state), speed_of(ledger, state)
    index = None if ledger.fabric is None else ledger.fabric.index_of_node.get(node)
    if ledger.fabric is None or index is None:
        return {"node": node, "place": [node], "gpu": gpu, "speed": speed}
    at = ledger.fabric.nodes[index].at
    paths = ["/".join(at[: tier + 1]) for tier in range(len(at))]
    return {"node": node, "place": [*paths, node], "gpu": gpu, "speed": speed}


def speed_of(ledger: Ledger, state: JobState) -> float:
    """The speed of a replica: of its shape, times that on the GPU model of its first member; 1 without a place."""
    if state.placement is None:
        return 1.0
    of_shape, _ = in_shape_of(state.spec, state.placement)
    return of_shape * dict(state.spec.speeds).get(_gpu(ledger, state) or "", 1.0)


def _gpu(ledger: Ledger, state: JobState) -> str | None:
    """The GPU model of the node of the first member; None where it is not known."""
    assert state.placement is not None, f"{state.job} holds no place"
    fabric, node = ledger.fabric, state.placement.members[0].node
    index = None if fabric is None else fabric.index_of_node.get(node)
    return None if fabric is None or index is None else fabric.machine_of_node(index).gpu or None


def _mark_spare(rows: list[Json], spare: int) -> None:
    """The last replicas that could serve are the spare ones."""
    serving = [row for row in rows if row["ready"] and not row["draining"]]
    for row in serving[max(1, len(serving) - spare) :]:
        row["spare"] = True


@dataclass(slots=True)
class RouteTable:
    """The rows as they were seen last, and what drains in them. All on the thread of the controller."""

    version: int = 0
    rows: list[QueueRow] = field(default_factory=list)
    drains: dict[tuple[str, int], Drain] = field(default_factory=dict)
    _seen: int = -1

    def look(self, ledger: Ledger, now: float) -> int:
        """Take the rows as they are now; return the version of the table."""
        if ledger.applied == self._seen:
            return self.version
        self._seen, rows = ledger.applied, route_rows(ledger)
        if rows != self.rows or not self.version:
            self.version, self.rows = max(ledger.applied, self.version + 1), rows
        self.drains = {
            (name_of(state), state.attempt): self._drain(service, state, now)
            for service, state in _draining(ledger)
        }
        return self.version

    def _drain(self, service: str, state: JobState, now: float) -> Drain:
        name = name_of(state)
        known = self.drains.get((name, state.attempt))
        drain = known or Drain(service, name, state.attempt, now, self.version)
        return replace(drain, is_urgent=drains_for_another(state))


def _draining(ledger: Ledger) -> Iterator[tuple[str, JobState]]:
    """The replicas that are to be stopped once they have no request left, with the name of their service."""
    for service in ledger.services.values():
        for state in live_replicas(ledger, service):
            drains = state.replica.draining and state.phase is Phase.RUNNING
            if state.replica.endpoints and (drains or drains_for_another(state)):
                yield service.service, state
