"""Routes of services: list, get, scale, cancel. They are submitted with jobs (`routes.jobs`)."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from gantree.api.access.access import CurrentCaller
from gantree.api.access.audit import note_what
from gantree.api.access.permissions import Need, needs, service_for
from gantree.api.backend import Backend, QueryBackend
from gantree.api.http.request_body import WITHOUT_FIELDS, Body
from gantree.api.http.response_models.services import (
    ServiceCommandResponse,
    ServiceResponse,
    ServicesResponse,
)
from gantree.api.http.responses import documented, json_response
from gantree.api.views import service_view
from gantree.control.engine.controller import Controller
from gantree.control.services.of_cluster import service_commands, services_ledger
from gantree.formats.job.service_form import MAX_REPLICAS
from gantree.model.errors import Conflict

Json = dict[str, Any]


class ServiceScaleRequest(Body):
    """How many replicas are to run, within the bounds of the service."""

    replicas: int = Field(strict=True, ge=0, le=MAX_REPLICAS, examples=[3])


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/services", tags=["services"])
    _add_reads(routes, backend)
    _add_commands(routes, backend)
    return routes


def reads(backend: QueryBackend) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1/services", tags=["services"])
    _add_reads(routes, backend)
    return routes


def _add_reads(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get(
        "", **documented(ServicesResponse, "The services that are live."), **needs(Need.KNOWN)
    )
    async def services(caller: CurrentCaller) -> Response:
        """The live services in order of arrival."""
        rows = await backend.read_services(service_view.services, caller, asker=caller.name)
        await backend.add_load(rows)
        return json_response({"services": rows})

    @routes.get("/{service}", **documented(ServiceResponse, "The service."), **needs(Need.SEE))
    async def service(service: str, caller: CurrentCaller) -> Response:
        """One service, live or not, with its replicas and its last scalings."""
        row = await backend.read_services(service_view.service, caller, service, asker=caller.name)
        await backend.add_load([row])
        return json_response(row)


def _add_commands(routes: APIRouter, backend: Backend) -> None:
    asked_for = documented(ServiceCommandResponse, "It was asked for.", 202)

    @routes.post("/{service}/scale", **asked_for, **needs(Need.CHANGE))
    async def scale(
        service: str, body: ServiceScaleRequest, caller: CurrentCaller, request: Request
    ) -> Response:
        """Have another number of replicas run. With targets the autoscaler goes on from there. 409 if it ends."""
        note_what(request.scope, f"service {service} replicas {body.replicas}")

        def given(controller: Controller) -> str:
            service_for(services_ledger(controller), caller, service, Need.CHANGE)
            return service_commands(controller).scale(service, body.replicas, caller.name)

        return await _asked(backend, await backend.call_controller(given))

    @routes.post(
        "/{service}/cancel", **asked_for, **needs(Need.CHANGE), dependencies=WITHOUT_FIELDS
    )
    async def cancel(
        service: str,
        caller: CurrentCaller,
        assignment: Annotated[
            str | None, Query(description="Of a federation: only if it still came by this one.")
        ] = None,
    ) -> Response:
        """End a service: its replicas finish their requests, then it is gone. 409 if it has ended."""

        def given(controller: Controller) -> str:
            state = service_for(services_ledger(controller), caller, service, Need.CHANGE)
            came_by = state.spec.replica.assignment
            if assignment is not None and came_by != assignment:
                raise Conflict(f"{service} came by assignment {came_by or 'none'}")
            return service_commands(controller).cancel(service)

        return await _asked(backend, await backend.call_controller(given))


async def _asked(backend: Backend, service: str) -> Response:
    """Answer that something was asked for, once it was decided about."""
    await backend.loop.advance(backend.controller)
    return json_response({"service": service}, 202)
