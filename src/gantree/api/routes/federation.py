"""The routes of the front of a federation: the lease on its jobs here, and those that the cluster keeps itself."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend
from gantree.api.http.request_body import WITHOUT_FIELDS, Body
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import documented, json_response
from gantree.control.engine.controller import Controller
from gantree.control.federation.leased_jobs import rows_of_federation
from gantree.executors.federated_jobs import FederatedJobs, federated_jobs_of
from gantree.model.errors import NotFound, Unsupported
from gantree.model.federation import Renewal, Stamp
from gantree.text.words import NAME_PATTERN

T = TypeVar("T")
Kind = Literal["gangjobs", "gangservices"]


class StampBody(Body):
    """A stamp of this cluster's clock, from the answer before."""

    boot: Annotated[str, Field(max_length=64)]
    at_s: float


class RenewalRequest(Body):
    """The lease that is to hold for lease_s seconds from a stamp on. Without a stamp nothing is renewed."""

    federation: Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", examples=["europe"])]
    number: Annotated[int, Field(strict=True, ge=1)]
    lease_s: Annotated[float, Field(strict=True, gt=0, le=86400.0)]
    stamp: StampBody | None = None


class StampResponse(BaseModel):
    """A moment on the clock of this boot."""

    boot: str
    at_s: float


class LeasedJobRow(OpenModel):
    """A job or a service of the federation that has not ended."""

    job: str = Field(description="Of a GangJob or GangService: NAMESPACE/NAME.")
    assignment: str = Field(examples=["europe/llama-7b/2"])
    phase: str
    attempt: int
    held: bool
    service: bool


class GangJobResponse(LeasedJobRow):
    """A GangJob or GangService of a federation, ended or not."""

    reason: str
    in_ledger: str | None = Field(description="The id of its job, once it has one.")


class GangJobCommandResponse(OpenModel):
    """What was asked for."""

    job: str


class LeaseResponse(OpenModel):
    """The lease as this cluster holds it. number is the highest that it has seen."""

    federation: str
    number: int
    granted: bool = Field(description="The renewal counts, and the lease holds.")
    remaining_s: float
    stamp: StampResponse = Field(description="To be sent with the next renewal.")
    enforced_by: str = Field(description="`members` or `daemon`: who ends jobs with the lease.")
    jobs: list[LeasedJobRow]


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/federation", tags=["federation"])

    @routes.post(
        "/lease",
        **documented(LeaseResponse, "The lease, and the jobs that are bound to it."),
        **needs(Need.OPERATE),
    )
    async def renew(body: RenewalRequest) -> Response:
        """Renew the lease of a federation on its jobs here. 409 for a lease that is over, and another federation's."""
        stamp = None if body.stamp is None else Stamp(**body.stamp.model_dump())
        asked = Renewal(body.federation, body.number, body.lease_s, stamp)

        def renewed(controller: Controller) -> dict[str, object]:
            if controller.leased_jobs is None:
                raise Unsupported("this daemon can be in no federation")
            answer = controller.leased_jobs.renew(asked)
            kept = federated_jobs_of(controller.cluster)
            if kept is None:
                rows = rows_of_federation(controller.ledger, body.federation)
            else:
                rows = kept.rows(body.federation)
            return {**answer, "jobs": rows}

        return json_response(await backend.call_controller(renewed))

    _add_gangjobs(routes, backend)
    return routes


def _add_gangjobs(routes: APIRouter, backend: Backend) -> None:
    @routes.get(
        "/{kind}/{namespace}/{name}",
        **documented(GangJobResponse, "The object, as the API server has it."),
        **needs(Need.OPERATE),
    )
    async def read(kind: Kind, namespace: str, name: str) -> Response:
        """A GangJob or GangService that a federation handed in. 404 where there is none."""
        word, is_service = f"{namespace}/{name}", kind == "gangservices"
        row = await _of_cluster(backend, lambda jobs: jobs.row(word, is_service=is_service))
        return json_response(row)

    @routes.post(
        "/{kind}/{namespace}/{name}/cancel",
        **documented(GangJobCommandResponse, "It is being deleted.", 202),
        **needs(Need.OPERATE),
        dependencies=WITHOUT_FIELDS,
    )
    async def cancel(
        kind: Kind,
        namespace: str,
        name: str,
        assignment: Annotated[
            str | None, Query(description="Only if it still came by this one.")
        ] = None,
    ) -> Response:
        """Delete what a federation handed in; it is there until its pods are gone. 409 if it has ended."""
        word, is_service = f"{namespace}/{name}", kind == "gangservices"
        await _of_cluster(
            backend, lambda jobs: jobs.cancel(word, is_service=is_service, assignment=assignment)
        )
        return json_response({"job": word}, 202)


async def _of_cluster(backend: Backend, ask: Callable[[FederatedJobs], "Future[T]"]) -> T:
    """What the cluster answers that keeps such jobs. Raises NotFound where it keeps none."""
    kept = await backend.call_controller(lambda controller: federated_jobs_of(controller.cluster))
    if kept is None:
        raise NotFound("GangJobs and GangServices are on Kubernetes alone")
    return await asyncio.wrap_future(ask(kept))
