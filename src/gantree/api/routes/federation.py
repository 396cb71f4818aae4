"""The route by which the front of a federation holds a lease on its jobs here."""

from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend
from gantree.api.http.request_body import Body
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import documented, json_response
from gantree.control.engine.controller import Controller
from gantree.control.federation.leased_jobs import rows_of_federation
from gantree.model.errors import Unsupported
from gantree.model.federation import Renewal, Stamp
from gantree.text.words import NAME_PATTERN


class StampBody(Body):
    """A stamp of this cluster's clock, from the answer before."""

    boot: Annotated[str, Field(max_length=64)]
    at_s: float


class RenewalRequest(Body):
    """The lease that is to hold for lease_s seconds from a stamp on. Without a stamp nothing is renewed."""

    federation: Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", examples=["europe"])]
    number: Annotated[int, Field(ge=1)]
    lease_s: Annotated[float, Field(gt=0, le=86400.0)]
    stamp: StampBody | None = None


class StampResponse(BaseModel):
    """A moment on the clock of this boot."""

    boot: str
    at_s: float


class LeasedJobRow(OpenModel):
    """A job or a service of the federation that has not ended."""

    job: str
    assignment: str = Field(examples=["europe/llama-7b/2"])
    phase: str
    attempt: int
    held: bool
    service: bool


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
            return {**answer, "jobs": rows_of_federation(controller.ledger, body.federation)}

        return json_response(await backend.call_controller(renewed))

    return routes
