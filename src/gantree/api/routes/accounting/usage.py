"""Routes of usage: GPU-hours by whom or what, and GPU utilisation, of jobs that the caller may read."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import documented, json_response
from gantree.api.views import gpu_use_view
from gantree.api.views.accounting import usage_view
from gantree.api.views.accounting.site_prices import at_prices

LAST_MOMENT = 253_402_300_799.0
"""The end of the year 9999."""
Moment = Annotated[
    float | None,
    Query(ge=0, le=LAST_MOMENT, allow_inf_nan=False, description="Seconds since 1970."),
]


class UsageAmounts(OpenModel):
    """Hours of GPUs (a part of a GPU as that part), of jobs that waited, and what the GPUs cost on demand.

    held is the sum of starting, restart, checkpoint, useful, idle, lost and unmeasured. Of jobs, the time to start and
    to stop and what was not measured are not counted apart: these four are null.
    """

    held_gpu_hours: float = Field(description="Held by gangs.", examples=[128.0])
    useful_gpu_hours: float = Field(
        description="The GPUs computed, as their counters say. Below 0 where lost work is taken out of a short period.",
        examples=[96.0],
    )
    idle_gpu_hours: float = Field(
        description="The gang ran, and the GPUs did not compute.", examples=[20.0]
    )
    lost_gpu_hours: float = Field(description="Work that is done again.", examples=[3.5])
    starting_gpu_hours: float | None = Field(
        description="From the placement of a first attempt until all processes run."
    )
    restart_gpu_hours: float | None = Field(
        description="The same of later attempts, and from the order to stop until nothing is left."
    )
    checkpoint_gpu_hours: float | None = Field(description="Saving before a stop.")
    unmeasured_gpu_hours: float | None = Field(description="Running, without reports of counters.")
    wasted_gpu_hours: float = Field(description="As lost_gpu_hours.", examples=[3.5])
    useful_share: float | None = Field(description="Useful of held, 0 to 1; null for none held.")
    estimated_gpu_hours: float = Field(
        description="Useful and idle ones of shares, whose counters are those of the whole GPU."
    )
    waited_hours: float = Field(description="Sum over jobs.", examples=[12.25])
    held_gpu_hours_of_model: dict[str, float] = Field(
        description='"" is an unknown model.', examples=[{"H100-80GB": 128.0}]
    )
    USD: float = Field(
        description="At the site's prices, else list prices, as far as there are any.",
        examples=[880.64],
    )
    unpriced_gpu_hours: float = Field(description="Held of models without a price.")


class UsageCapacity(OpenModel):
    """GPU-hours that there were, and what those were for that no gang held."""

    capacity_gpu_hours: float
    allocated_gpu_hours: float = Field(description="Held by gangs.")
    allocated_share: float | None = Field(description="Allocated of the capacity, 0 to 1.")
    down_gpu_hours: float = Field(description="On nodes that are not usable, or foreign.")
    claimed_gpu_hours: float = Field(description="For gangs, while others leave.")
    reserved_gpu_hours: float = Field(description="For promised starts.")
    stranded_gpu_hours: float = Field(description="Free, and of no use for any GPU job.")
    free_gpu_hours: float


class UsageRow(UsageAmounts):
    """Those of one user, queue, model, project, device or job; a job comes with user, queue and phase."""

    name: str = Field(examples=["ann"])


class UsageResponse(BaseModel):
    """Rows, the largest holder first, and their sum. since and until are those of whole days of UTC."""

    by: str
    since: float
    until: float
    rows: list[UsageRow]
    left_out: int = Field(description="Rows beyond the limit; the sum has them.")
    sum: UsageAmounts
    capacity: UsageCapacity | None = Field(description="Null where not everything may be seen.")


class GpuUseRow(BaseModel):
    """One job that holds GPUs, and what the counters of these say. Of a shared GPU they are of all who share it."""

    name: str = Field(examples=["train"])
    user: str
    queue: str
    phase: str
    held_gpus: int = Field(description="GPUs of which it holds anything.", examples=[8])
    is_shared: bool = Field(description="Whether it holds parts of GPUs.")
    told_gpus: int = Field(description="GPUs of these that say how busy they are.", examples=[8])
    busy: float | None = Field(
        description="The share of the last moments in which they computed, 0 to 1, on average.",
        examples=[0.93],
    )
    least_busy: float | None = Field(description="Of the one that did least.", examples=[0.4])
    memory_GiB: float | None = Field(description="Taken, altogether.", examples=[512.5])
    power_W: float | None = Field(description="Altogether.", examples=[4800.0])


class GpuUseResponse(BaseModel):
    """GPU utilisation by job: the least busy first, unknown ones last."""

    is_told: bool = Field(description="Whether there is a source: an exporter, or a driver.")
    rows: list[GpuUseRow]


def router(backend: QueryBackend) -> APIRouter:
    """The route of this module."""
    routes = APIRouter(prefix="/v1", tags=["site"])

    @routes.get("/usage", **documented(UsageResponse, "The amounts."), **needs(Need.KNOWN))
    async def usage(
        caller: CurrentCaller,
        by: usage_view.By = "user",
        since: Moment = None,
        until: Moment = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """What was held, for which purpose, in the days of a span of time: by default the last seven.

        By job: what each job that was there in that time has used in its whole life.
        """
        result = await backend.read_forked(
            usage_view.usage, caller, by, since, until, limit, asker=caller.name
        )
        if backend.prices is not None:
            at_prices(result, backend.prices.tariff.prices)
        return json_response(result)

    @routes.get("/usage/gpus", **documented(GpuUseResponse, "The figures."), **needs(Need.KNOWN))
    async def gpus(caller: CurrentCaller) -> Response:
        """How busy the GPUs are that jobs hold now, by their own counters. Exporters are read for it."""
        held = await backend.read(gpu_use_view.held, caller)
        counters = backend.gpu_counters
        is_told = counters.covers(held["nodes"])
        use = await counters.fresh(held["nodes"]) if is_told else {}
        return json_response({"is_told": is_told, "rows": gpu_use_view.measured(held["rows"], use)})

    return routes
