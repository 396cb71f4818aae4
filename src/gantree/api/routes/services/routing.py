"""Routes for routers: where replicas listen, by long polling, and reports of the requests that they were sent.

A token with the role `router` may do this and nothing else. A router sees the services of the queues of its grants.
"""

import time
from typing import Annotated, ClassVar

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, needs, routes_queue
from gantree.api.backend import Backend
from gantree.api.client.request import LONGEST_WAIT_S
from gantree.api.http.request_body import Body
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import documented, json_response
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import wait_until_set
from gantree.control.services.of_cluster import services_ledger
from gantree.control.services.route_table import QueueRow
from gantree.control.services.router_reports import ReplicaReport, RouterReport, ServiceReport

MOST_SERVICES = 1_000
MOST_REPLICAS = 10_000
LONGEST_WINDOW_S = 300.0
LONGEST_NAME = 127
"""Of a namespace of Kubernetes, a dot and a name."""
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Count = Annotated[int, Field(strict=True, ge=0, le=10**12)]
Rate = Annotated[float, Field(strict=True, ge=0.0, le=1e12)]
Seconds = Annotated[float | None, Field(strict=True, ge=0.0, le=1e9)]


class RouteReplica(OpenModel):
    """A replica that listens. place: its domains from wide to narrow, the node last; gpu null: it has none."""

    replica: str = Field(examples=["chat.3"])
    attempt: int
    host: str = Field(examples=["127.0.0.1"])
    port: int
    cache_events_port: int = Field(
        description="Where its engine publishes cache events; 0: nowhere."
    )
    cache_replay_port: int = Field(description="Where it sends the last ones again; 0: nowhere.")
    node: str
    place: list[str] = Field(examples=[["s0", "s0/l0", "n0"]])
    gpu: str | None = Field(examples=["H100-80GB"])
    speed: float = Field(description="Of the service on this GPU model; 1 on its fastest.")
    ready: bool
    draining: bool = Field(description="It is to end: it gets no new requests.")
    spare: bool = Field(description="It is one more than the load needs.")


class RouteService(OpenModel):
    """A service that is live, and where its replicas listen. wait_s and timeout_s are in seconds."""

    service: str = Field(examples=["chat"])
    models: list[str] = Field(description="Names of models by which clients mean it.")
    concurrency: int = Field(description="Requests that a replica works on at a time; 0: no limit.")
    queue: int = Field(description="Requests that may wait in front of all replicas.")
    wait_s: float
    timeout_s: float = Field(description="For so long a replica may be silent.")
    affinity: str = Field(examples=["prefix"])
    tokenizer: str = Field(
        description="Directory of the model's tokenizer; empty: the first model's."
    )
    wanted: int = Field(description="Replicas that are to run.")
    replicas: list[RouteReplica]


class RoutesResponse(BaseModel):
    """Where replicas listen. version changes with any row; ask for what comes after it."""

    version: str = Field(examples=["8213"])
    services: list[RouteService]


class ReplicaReportBody(BaseModel):
    """What a router knows of an attempt of a replica; counts are of the window, in_flight is of its end."""

    model_config = ConfigDict(extra="forbid")

    replica: Name
    attempt: int = Field(strict=True, ge=0, le=10**9)
    in_flight: Count = 0
    requests: Count = 0
    errors: Count = 0


class ServiceReportBody(BaseModel):
    """What a router knows of a service. concurrency is the mean of requests in work or waiting."""

    model_config = ConfigDict(extra="forbid")

    service: Name
    requests: Count = 0
    errors: Count = 0
    shed: Count = 0
    in_flight: Count = 0
    queued: Count = 0
    concurrency: Rate = 0.0
    rate: Rate = 0.0
    latency_p50_s: Seconds = None
    latency_p99_s: Seconds = None
    ttft_p99_s: Seconds = None
    itl_p99_s: Seconds = None
    tokens_per_s: Annotated[float | None, Field(ge=0.0, le=1e12)] = None
    replicas: list[ReplicaReportBody] = Field([], max_length=MOST_REPLICAS)


class RouterReportBody(Body):
    """The report of a router about the last window_s seconds. version: of the table by which it sends requests.

    It names each service that the router sends requests to, idle ones too.
    """

    MOST_FIELDS: ClassVar[int] = 50_000

    router: Name = Field(examples=["r1"])
    window_s: float = Field(strict=True, gt=0.0, le=LONGEST_WINDOW_S)
    version: str = Field("", max_length=32, pattern=r"^[0-9]{0,18}$")
    services: list[ServiceReportBody] = Field([], max_length=MOST_SERVICES)


class ReportTakenResponse(BaseModel):
    """version is that of the table now: a router with another one asks for it."""

    version: str


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/routes", tags=["routing"])

    @routes.get("", **documented(RoutesResponse, "The table."), **needs(Need.ROUTE))
    async def table(
        caller: CurrentCaller,
        after: Annotated[
            str, Query(max_length=32, description="Only once the table is not of this version.")
        ] = "",
        wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0.0,
    ) -> Response:
        """Where the replicas of services listen; with `after` and `wait_s` as soon as that has changed."""
        deadline = time.monotonic() + wait_s
        while True:
            ticket = backend.ticket()
            version, rows = await backend.call_controller(lambda one: _look(backend, one))
            left_s = deadline - time.monotonic()
            if str(version) != after or left_s <= 0 or backend.stopping:
                services = [row for queue, row in rows if routes_queue(caller, queue)]
                return json_response({"version": str(version), "services": services})
            await wait_until_set(ticket, left_s)

    @routes.post(
        "/reports", **documented(ReportTakenResponse, "It was taken."), **needs(Need.ROUTE)
    )
    async def report(body: RouterReportBody, caller: CurrentCaller) -> Response:
        """Report requests: the load of services, and what is in flight on replicas, draining ones above all."""

        def take(controller: Controller) -> int:
            report = _report(body, caller, controller)
            backend.observed.take(report, controller)
            return _look(backend, controller)[0]

        version = await backend.call_controller(take)
        return json_response({"version": str(version)})

    return routes


def _look(backend: Backend, controller: Controller) -> tuple[int, list[QueueRow]]:
    table = backend.observed.table
    return table.look(services_ledger(controller), controller.clock()), table.rows


def _report(body: RouterReportBody, caller: Caller, controller: Controller) -> RouterReport:
    """The report, without services that the caller may not send requests to."""
    known = services_ledger(controller).services
    services = tuple(
        _service_report(each)
        for each in body.services
        if each.service in known and routes_queue(caller, known[each.service].spec.replica.queue)
    )
    version = int(body.version) if body.version else None
    name = f"{caller.name}/{body.router}"
    return RouterReport(name, body.window_s, controller.clock(), services, version)


def _service_report(body: ServiceReportBody) -> ServiceReport:
    replicas = tuple(ReplicaReport(**each.model_dump()) for each in body.replicas)
    return ServiceReport(**(body.model_dump(exclude={"replicas"}) | {"replicas": replicas}))
