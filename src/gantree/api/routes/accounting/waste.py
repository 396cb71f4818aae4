"""The route of waste: jobs, users, queues or projects by what they wasted, with reason and remedy."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.http.responses import documented, json_response
from gantree.api.routes.accounting.usage import Moment
from gantree.api.views.accounting import waste_view
from gantree.topology.hardware.prices import LIST_PRICES


class WasteAmounts(BaseModel):
    """Hours of GPUs (a part of a GPU as that part), what they cost, and what of the hosts was unused."""

    jobs: int = Field(examples=[12])
    held_gpu_hours: float = Field(examples=[128.0])
    useful_gpu_hours: float = Field(examples=[96.0])
    wasted_gpu_hours: float = Field(
        description="Done again, idle, or more than a smaller device would have taken.",
        examples=[20.0],
    )
    wasted_gpu_hours_of_model: dict[str, float] = Field(
        description='"" is an unknown model.', examples=[{"H100-80GB": 20.0}]
    )
    USD: float = Field(description="Of the wasted hours, at the site's prices, else list prices.")
    unpriced_gpu_hours: float = Field(description="Wasted on models without a price.")
    unused_cpu_hours: float = Field(
        description="Asked for and not used, of jobs whose CPUs are measured."
    )
    unused_memory_GiB: float = Field(description="Asked for and never used, likewise.")


class WasteRow(WasteAmounts):
    """One job, user, queue or project; the reason of a sum is that of the worst job of the kind that wasted most."""

    name: str = Field(examples=["train"])
    user: str
    queue: str
    project: str
    running: bool
    kind: str = Field(description="idle, redone, oversized, cpus or memory.", examples=["idle"])
    reason: str = Field(examples=["asks for 8 GPUs, keeps 2 busy on average"])
    remedy: str = Field(examples=["Ask for 2 GPUs, or give work to all of them."])
    worst: str = Field(description="The job of which the reason is; empty in a row of a job.")


class WasteResponse(BaseModel):
    """Rows, the dearest first. The sum is of all jobs that were there since then, also of those that waste little."""

    by: str
    since: float
    until: float
    rows: list[WasteRow]
    left_out: int = Field(description="Rows beyond the limit.")
    sum: WasteAmounts


def router(backend: QueryBackend) -> APIRouter:
    """The route of this module."""
    routes = APIRouter(prefix="/v1", tags=["site"])

    @routes.get("/waste", **documented(WasteResponse, "The rows."), **needs(Need.KNOWN))
    async def waste(
        caller: CurrentCaller,
        by: waste_view.By = "job",
        since: Moment = None,
        until: Moment = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    ) -> Response:
        """What the jobs wasted that were there in the days of a span of time, each in its whole life: by default
        those of a week.

        Exporters are read for how busy the GPUs of running jobs are.
        """
        prices = backend.prices.tariff.prices if backend.prices else LIST_PRICES
        found = await backend.read_forked(
            waste_view.figures, caller, since, until, prices, asker=caller.name
        )
        counters = backend.gpu_counters
        use = await counters.fresh(found.nodes) if counters.covers(found.nodes) else {}
        hosts = await asyncio.to_thread(waste_view.host_use_of, found, backend)
        return json_response(waste_view.answer(found, use, hosts, by, limit, prices))

    return routes
