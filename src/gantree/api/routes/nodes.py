"""Routes of nodes: list, get, cordon, uncordon, drain, label, report a fault."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend, QueryBackend
from gantree.api.http.request_body import WITHOUT_FIELDS, Body
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import IfMatch, check_version, documented, etag_of, json_response
from gantree.api.routes.links import LinkResponse
from gantree.api.views import queries
from gantree.api.views.node_view import node_row
from gantree.control.engine.controller import Controller
from gantree.control.requests.burn_ins import LONGEST_S, SHORTEST_S
from gantree.control.requests.gpu_faults import LARGEST_XID, OPERATOR
from gantree.control.requests.node_commands import LONGEST_DEADLINE_S

Json = dict[str, Any]
Reason = Annotated[str, Field(max_length=256, examples=["fan is broken"])]


class CordonRequest(Body):
    """Why."""

    reason: Reason = ""


class DrainRequest(CordonRequest):
    """Why, and how long who has no place elsewhere may stay; null: not at all."""

    deadline_s: Annotated[float | None, Field(ge=0, le=LONGEST_DEADLINE_S, examples=[1800])] = None


class LabelsRequest(Body):
    """LabelsRequest to set; null takes one away, also one that the cluster file gives."""

    labels: dict[str, str | None] = Field(
        min_length=1, max_length=64, examples=[{"pool": "a", "maintenance": None}]
    )


class FaultRequest(Body):
    """What is wrong with a GPU, or with the node where gpu is null; neither xid nor reason: it is well again."""

    gpu: Annotated[int | None, Field(strict=True, ge=0, le=1023, examples=[3])] = None
    xid: Annotated[int | None, Field(strict=True, ge=1, le=LARGEST_XID, examples=[79])] = None
    reason: Reason = ""
    source: Annotated[str, Field(max_length=256, examples=["log-shipper"])] = OPERATOR


class BurnInRequest(Body):
    """Which cordoned nodes, for how long, and the queue that the job is counted in."""

    nodes: list[str] = Field(min_length=1, max_length=256, examples=[["n7"]])
    duration_s: Annotated[
        float, Field(strict=True, ge=SHORTEST_S, le=LONGEST_S, examples=[600])
    ] = 600.0
    queue: str = "default"


class BurnInResponse(BaseModel):
    """The job of a burn-in; the report is in its record."""

    job: str = Field(examples=["burn-in"])


class JobOnNode(OpenModel):
    """What a job holds on a node; GPUs whole or in part."""

    job: str
    phase: str
    members: int
    gpus: int


class HealthSign(OpenModel):
    """What a source reports to be wrong with a node."""

    source: str = Field(examples=["dcgm"])
    reason: str = Field(examples=["GPU 3: XID 79 (GPU has fallen off the bus)"])
    since: float = Field(description="Seconds since 1970.")
    overruled: bool = Field(description="An operator lets the node be used all the same.")
    kept: str = Field(
        description="Why the node stays in use, and how to take it out; empty where it does not, or is overruled."
    )


class MigInstanceResponse(OpenModel):
    """A MIG instance of a node: its GPU, its profile, the memory slice where it starts, who has it (null: idle)."""

    gpu: int
    profile: str = Field(examples=["1g.10gb"])
    start: int
    job: str | None


class RepairResponse(OpenModel):
    """How far the repair of a node has come, since when (seconds since 1970), and why it ended."""

    state: str = Field(examples=["running"], description="running, failed, stopped, interrupted.")
    sign: str
    step: str = Field(examples=["reboot"])
    number: int = Field(description="The step's number, from 1.")
    steps: list[str]
    reason: str
    since: float


class RepairRequest(Body):
    """What is to become of the repair: start it from its first step, or stop it."""

    action: Literal["start", "stop"]


class NodeResponse(OpenModel):
    """A node: its state ("ready", "cordoned", "draining", "drained", "lost", "broken"), what runs there, its labels."""

    node: str = Field(examples=["n0"])
    state: str = Field(examples=["cordoned"])
    reason: str
    cordoned_at: float | None
    drain: bool
    deadline_at: float | None
    waits_for: list[str] = Field(description="Jobs that can never be told to leave.")
    machine: str
    gpu: str | None
    gpus: int
    free_gpus: int
    domains: dict[str, str]
    jobs: list[JobOnNode]
    labels: dict[str, str]
    labels_by_hand: dict[str, str | None] = Field(
        description="Where an operator's word differs from the cluster file; null: taken away."
    )
    signs: list[HealthSign] = Field(
        default=[], description="What health sources report to be wrong with it."
    )
    repair: RepairResponse | None = Field(
        default=None, description="Its repair, unless that has succeeded."
    )
    mig: list[MigInstanceResponse] = Field(default=[], description="MIG instances of its GPUs.")
    links: list[LinkResponse] = Field(
        default=[], description="Its links and NICs that a source reports to carry less."
    )


class NodesResponse(BaseModel):
    """All nodes, in topology order."""

    nodes: list[NodeResponse]


class NodeCommandResponse(BaseModel):
    """Which node it was asked of."""

    node: str = Field(examples=["n0"])


class NodeFaultResponse(NodeCommandResponse):
    """The fault that is on record now; "" for an XID that calls for nothing, or where the node is well again."""

    fault: str = Field(examples=["GPU 3: XID 79 (GPU has fallen off the bus)"])


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = reads(backend)
    _add_burn_in(routes, backend)
    _add_commands(routes, backend)
    return routes


def reads(backend: QueryBackend) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1/nodes", tags=["nodes"])
    _add_gets(routes, backend)
    return routes


def _add_gets(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get("", **documented(NodesResponse, "The nodes."), **needs(Need.KNOWN))
    async def nodes(caller: CurrentCaller) -> Response:
        """All nodes: whether they may be used, what runs there, their labels."""
        return json_response({"nodes": await backend.read(queries.nodes, caller)})

    @routes.get(
        "/{node}",
        **documented(NodeResponse, "The node; its version is the ETag."),
        **needs(Need.KNOWN),
    )
    async def node(node: str, caller: CurrentCaller) -> Response:
        """One node."""
        row = await backend.read(queries.node, caller, node)
        return json_response(row, version=etag_of(row))


def _add_commands(routes: APIRouter, backend: Backend) -> None:
    asked_for = documented(NodeCommandResponse, "It was asked for.", 202)

    async def command(
        node: str, if_match: str | None, ask: Callable[[Controller], object]
    ) -> Response:
        def asked(controller: Controller) -> None:
            if if_match is not None:
                check_version(if_match, node_row(controller.ledger, node), f"node {node}")
            ask(controller)

        await backend.call_controller(asked)
        await backend.loop.advance(backend.controller)
        return json_response({"node": node}, 202)

    @routes.post("/{node}/cordon", **asked_for, **needs(Need.OPERATE))
    async def cordon(
        node: str, body: CordonRequest | None = None, if_match: IfMatch = None
    ) -> Response:
        """Let nothing new start on a node; what runs there stays."""
        reason = "" if body is None else body.reason
        return await command(
            node, if_match, lambda controller: controller.nodes.cordon(node, reason)
        )

    @routes.post("/{node}/drain", **asked_for, **needs(Need.OPERATE))
    async def drain(
        node: str, body: DrainRequest | None = None, if_match: IfMatch = None
    ) -> Response:
        """Cordon a node, and let who runs there save and go on elsewhere, or wait."""
        drain_request = body or DrainRequest()
        return await command(
            node,
            if_match,
            lambda controller: controller.nodes.drain(
                node, drain_request.deadline_s, drain_request.reason
            ),
        )

    @routes.post(
        "/{node}/uncordon", **asked_for, **needs(Need.OPERATE), dependencies=WITHOUT_FIELDS
    )
    async def uncordon(node: str, if_match: IfMatch = None) -> Response:
        """Let a node be used again."""
        return await command(node, if_match, lambda controller: controller.nodes.uncordon(node))

    @routes.post(
        "/{node}/fault",
        **documented(NodeFaultResponse, "It was reported.", 202),
        **needs(Need.OPERATE),
    )
    async def fault(node: str, body: FaultRequest) -> Response:
        """Report a fault of a GPU: nothing new starts on its node, and who holds a lost GPU is stopped."""
        found = await backend.call_controller(lambda controller: _report(controller, node, body))
        await backend.loop.advance(backend.controller)
        return json_response({"node": node, "fault": found}, 202)

    @routes.post("/{node}/repair", **asked_for, **needs(Need.OPERATE))
    async def repair(node: str, body: RepairRequest) -> Response:
        """Start the repair of a node again, or stop it; the node stays out of use."""
        return await command(
            node, None, lambda controller: getattr(controller.repairs, body.action)(node)
        )

    @routes.post("/{node}/labels", **asked_for, **needs(Need.OPERATE))
    async def label(node: str, body: LabelsRequest, if_match: IfMatch = None) -> Response:
        """Give a node other labels: they decide who may start there from now on."""
        return await command(
            node, if_match, lambda controller: controller.nodes.label(node, body.labels)
        )


def _add_burn_in(routes: APIRouter, backend: Backend) -> None:
    @routes.post(
        "/burn-in",
        **documented(BurnInResponse, "It was requested.", 202),
        **needs(Need.OPERATE),
    )
    async def burn_in(body: BurnInRequest, caller: CurrentCaller) -> Response:
        """Have cordoned, empty nodes check their GPUs and links before they return."""
        job = await backend.call_controller(
            lambda controller: controller.burn_ins.request(
                body.nodes, body.duration_s, body.queue, caller.name
            )
        )
        await backend.loop.advance(backend.controller)
        return json_response({"job": job}, 202)


def _report(controller: Controller, node: str, body: FaultRequest) -> str:
    if body.xid is None and not body.reason:
        controller.faults.clear(node, body.source)
        return ""
    return controller.faults.report(
        node, gpu=body.gpu, xid=body.xid, reason=body.reason, source=body.source
    )
