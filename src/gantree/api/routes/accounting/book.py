"""The route of the book: use by queue, user, model, project and device over a period, and the prices of the site."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import documented, json_response
from gantree.api.routes.accounting.usage import Moment
from gantree.api.views.accounting import book_view

Label = Annotated[str, Query(max_length=317)]


class BookRow(OpenModel):
    """Amounts of one bucket of time and key. Amounts that are 0 are left out."""

    start: int = Field(description="Its first second.")
    width: int = Field(description="Of how many seconds it is.", examples=[86400])
    queue: str = Field(description='"" for what is nobody\'s, such as capacity.')
    user: str
    model: str = Field(examples=["H100-80GB"])
    project: str
    device: str = Field(
        description='"" for whole GPUs, else the MIG profile, or "share".', examples=["3g.40gb"]
    )
    allocated_gpu_s: float = Field(default=0.0, description="GPU-seconds that gangs held.")
    capacity_gpu_s: float = Field(default=0.0, description="GPU-seconds that there were.")


class NodeGroupRow(BaseModel):
    """Nodes that are alike by GPU model, market and the labels of the request."""

    model: str
    gpus: int = Field(description="Of all of them.")
    is_spot: bool
    labels: dict[str, str]


class PricesText(BaseModel):
    """The site's prices file."""

    text: str
    source: str = Field(examples=["prices.yaml"])


class BookResponse(BaseModel):
    """What statements are made of."""

    since: int
    until: int
    now: float
    site: str = Field(description="The cluster's name.")
    rows: list[BookRow]
    nodes: list[NodeGroupRow]
    prices: PricesText | None = Field(description="null: list prices.")


def router(backend: QueryBackend) -> APIRouter:
    """The route of this module."""
    routes = APIRouter(prefix="/v1/usage", tags=["site"])

    @routes.get("/book", **documented(BookResponse, "The rows."), **needs(Need.KNOWN))
    async def book(
        caller: CurrentCaller,
        since: Moment = None,
        until: Moment = None,
        step: Annotated[
            Literal["hour", "day"] | None,
            Query(description="Default: as the site's prices need it."),
        ] = None,
        label: Annotated[
            list[Label] | None,
            Query(
                max_length=32,
                description="Labels by which nodes are grouped; default: those of the site's prices.",
            ),
        ] = None,
    ) -> Response:
        """GPU-seconds by purpose of whole days of UTC, by default the last 31. Hidden queues have no names."""
        prices = backend.prices
        tariff = None if prices is None else prices.tariff
        names = tuple(label or (() if tariff is None else tariff.label_names))
        finest = step or ("hour" if tariff is not None and tariff.windows else "day")
        found = await backend.read_forked(
            book_view.book, caller, since, until, finest, names, asker=caller.name
        )
        text_of_prices = None if prices is None else {"text": prices.text, "source": prices.source}
        return json_response({**found, "prices": text_of_prices})

    return routes
