"""Routes of nodes: list and look at, cordon, uncordon, drain, label. What runs there is told with the jobs, too."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gantree.api.answers import IfMatch, answer, check_version, tells, version_of
from gantree.api.backend import Backend
from gantree.api.models import Told
from gantree.api.node_view import node_row, node_rows
from gantree.control.controller import Controller

Json = dict[str, Any]
LONGEST_DEADLINE_S = 365 * 86_400.0
Reason = Annotated[str, Field(max_length=256, examples=["fan is broken"])]


class Reasoned(BaseModel):
    """Why."""

    model_config = ConfigDict(extra="forbid")
    reason: Reason = ""


class Draining(Reasoned):
    """Why, and how long who has no place elsewhere may stay; null: not at all."""

    deadline_s: Annotated[float | None, Field(ge=0, le=LONGEST_DEADLINE_S, examples=[1800])] = None


class Labels(BaseModel):
    """Labels to set; null takes one away, also one that the cluster file gives."""

    model_config = ConfigDict(extra="forbid")
    labels: dict[str, str | None] = Field(
        min_length=1, max_length=64, examples=[{"pool": "a", "maintenance": None}]
    )


class NodeTold(Told):
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
    jobs: list[dict[str, JsonValue]]
    labels: dict[str, str]
    labels_by_hand: dict[str, str | None] = Field(
        description="Where an operator's word differs from the cluster file; null: taken away."
    )


class NodesTold(BaseModel):
    """All nodes, in topology order."""

    nodes: list[NodeTold]


class NodeWished(BaseModel):
    """Which node it was asked of."""

    node: str = Field(examples=["n0"])


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/nodes", tags=["nodes"])
    _add_looks(routes, backend)
    _add_wishes(routes, backend)
    return routes


def _add_looks(routes: APIRouter, backend: Backend) -> None:
    @routes.get("", **tells(NodesTold, "The nodes."))
    async def nodes() -> Response:
        """All nodes: whether they may be used, what runs there, their labels."""
        rows = await backend.ask(lambda controller: node_rows(controller.ledger))
        return answer({"nodes": rows})

    @routes.get("/{node}", **tells(NodeTold, "The node; its version is the ETag."))
    async def node(node: str) -> Response:
        """One node."""
        row = await backend.ask(lambda controller: node_row(controller.ledger, node))
        return answer(row, version=version_of(row))


def _add_wishes(routes: APIRouter, backend: Backend) -> None:
    async def wish(
        node: str, if_match: str | None, ask: Callable[[Controller], object]
    ) -> Response:
        def asked(controller: Controller) -> None:
            if if_match is not None:
                check_version(if_match, node_row(controller.ledger, node), f"node {node}")
            ask(controller)

        await backend.ask(asked)
        await backend.loop.advance(backend.controller)
        return answer({"node": node}, 202)

    @routes.post("/{node}/cordon", **tells(NodeWished, "It was asked for.", 202))
    async def cordon(node: str, body: Reasoned | None = None, if_match: IfMatch = None) -> Response:
        """Let nothing new start on a node; what runs there stays."""
        reason = "" if body is None else body.reason
        return await wish(node, if_match, lambda asked: asked.nodes.cordon(node, reason))

    @routes.post("/{node}/drain", **tells(NodeWished, "It was asked for.", 202))
    async def drain(node: str, body: Draining | None = None, if_match: IfMatch = None) -> Response:
        """Cordon a node, and let who runs there save and go on elsewhere, or wait."""
        told = body or Draining()
        return await wish(
            node, if_match, lambda asked: asked.nodes.drain(node, told.deadline_s, told.reason)
        )

    @routes.post("/{node}/uncordon", **tells(NodeWished, "It was asked for.", 202))
    async def uncordon(node: str, if_match: IfMatch = None) -> Response:
        """Let a node be used again."""
        return await wish(node, if_match, lambda asked: asked.nodes.uncordon(node))

    @routes.post("/{node}/labels", **tells(NodeWished, "It was asked for.", 202))
    async def label(node: str, body: Labels, if_match: IfMatch = None) -> Response:
        """Give a node other labels: they decide who may start there from now on."""
        return await wish(node, if_match, lambda asked: asked.nodes.label(node, body.labels))
