"""Routes of links: those that carry less than their rate, reports of it, and overruling them."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend, QueryBackend
from gantree.api.http.request_body import Body
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import documented, json_response
from gantree.api.views import queries
from gantree.control.engine.controller import Controller
from gantree.control.requests.link_commands import OPERATOR

LinkText = Annotated[str, Field(max_length=512, examples=["leaf:s0/l0", "nic:n1/mlx5_0"])]


class RestoreRequest(Body):
    """Which link."""

    link: LinkText


class DegradeRequest(RestoreRequest):
    """Which share of its rate a link carries, and who says so; 1 once it is whole again. load is how busy it is."""

    health: Annotated[float, Field(ge=0, le=1, examples=[0.5])]
    load: Annotated[float, Field(ge=0, le=1, examples=[0.0])] = 0.0
    reason: Annotated[str, Field(max_length=256, examples=["2x of 4x lanes"])] = ""
    source: Annotated[str, Field(max_length=256, examples=["ufm"])] = OPERATOR


class LinkResponse(OpenModel):
    """What one source reports of one link; since is in seconds since 1970."""

    link: str = Field(examples=["nic:n1/mlx5_0"])
    health: float
    load: float = Field(description="How much of that others' traffic takes, from 0 to 1.")
    source: str
    reason: str
    since: float
    overruled: bool = Field(description="An operator counts the link as whole all the same.")


class LinksResponse(BaseModel):
    """All reports, by link and source."""

    links: list[LinkResponse]


class LinkCommandResponse(BaseModel):
    """Which link it was asked of."""

    link: str = Field(examples=["leaf:s0/l0"])


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = reads(backend)
    _add_commands(routes, backend)
    return routes


def reads(backend: QueryBackend) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1/links", tags=["links"])

    @routes.get("", **documented(LinksResponse, "The links."), **needs(Need.KNOWN))
    async def links(caller: CurrentCaller) -> Response:
        """The links of which a source reports that they carry less than their rate."""
        return json_response({"links": await backend.read(queries.links, caller)})

    return routes


def _add_commands(routes: APIRouter, backend: Backend) -> None:
    asked_for = documented(LinkCommandResponse, "It was asked for.", 202)

    async def command(link: str, ask: Callable[[Controller], object]) -> Response:
        await backend.call_controller(ask)
        await backend.loop.advance(backend.controller)
        return json_response({"link": link}, 202)

    @routes.post("/degrade", **asked_for, **needs(Need.OPERATE))
    async def degrade(body: DegradeRequest) -> Response:
        """Report which share of its rate a link carries: prices and placements heed it from now on."""
        return await command(
            body.link,
            lambda controller: controller.links.degrade(
                body.link, body.health, body.reason, body.source, body.load
            ),
        )

    @routes.post("/restore", **asked_for, **needs(Need.OPERATE))
    async def restore(body: RestoreRequest) -> Response:
        """Count a link as whole, until a source reports something else of it."""
        return await command(body.link, lambda controller: controller.links.restore(body.link))
