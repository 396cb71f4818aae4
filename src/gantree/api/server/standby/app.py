"""The application of a standby: health, metrics, the leader's name, reads and pages; other requests are refused."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gantree import __version__
from gantree.api.access.access import Access
from gantree.api.access.audit import Audit, AuditMiddleware
from gantree.api.access.permissions import Need, needs, permitted
from gantree.api.http.path_prefix import PathPrefixMiddleware
from gantree.api.http.security_middleware import SecurityMiddleware
from gantree.api.observability.request_telemetry import METHODS, RequestTelemetry
from gantree.api.server.app import Pages
from gantree.api.server.error_handlers import add_error_handlers
from gantree.api.server.pod_paths import CHECKS, REPORTS, PodPaths
from gantree.api.server.standby.reads import AgeMiddleware, StandbyBackend, routers
from gantree.control.engine.leadership import Leadership
from gantree.control.metrics.metrics import Metrics

Json = dict[str, Any]
UNAVAILABLE = 503


def build_standby_app(
    leadership: Leadership,
    access: Access,
    metrics: Metrics,
    audit: Audit,
    standby: StandbyBackend,
    is_folded: Callable[[], bool],
    pages: Pages = (),
    root_path: str = "",
) -> FastAPI:
    """The application of a standby: standby answers reads; the rest is refused, with the leader's name and URL.

    is_warm: whether the journal has been folded already, so that this daemon could lead soon.
    """
    app = FastAPI(
        title="gantree",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # RequestTelemetry has them
    )
    add_error_handlers(app)
    app.add_middleware(AuditMiddleware, audit=audit)
    refuse = partial(_not_taken, leadership)
    app.add_middleware(PodPaths, takes={REPORTS: refuse, CHECKS: refuse}, access=access)
    app.add_middleware(RequestTelemetry, metrics=metrics)
    app.add_middleware(SecurityMiddleware)
    app.add_middleware(PathPrefixMiddleware, root_path=root_path)
    app.state.access, app.state.leadership = access, leadership
    app.add_middleware(AgeMiddleware)
    app.include_router(_probes(leadership, is_folded))
    for router in routers(standby):
        app.include_router(router, dependencies=[Depends(permitted)])
    for page in pages:
        app.include_router(page(standby), include_in_schema=False)
    app.include_router(_known_here(leadership, metrics), dependencies=[Depends(permitted)])
    return app


def _not_taken(leadership: Leadership, token: str, body: bytes) -> Json:
    """What pods post is for the leader, which knows the pods. Raises NotLeading."""
    raise leadership.not_leading()


def _probes(leadership: Leadership, is_folded: Callable[[], bool]) -> APIRouter:
    """Routes that need no permission."""
    routes = APIRouter()

    @routes.get("/healthz")
    async def healthz() -> Json:
        return {"alive": True}

    @routes.get("/readyz")
    async def readyz() -> JSONResponse:
        known = leadership.other
        told = {
            "ready": False,
            "recovered": False,
            "role": "standby",
            "leader": known and known.name,
            "leader_url": known and known.url,
            "epoch": known and known.epoch,
            "warm": is_folded(),
        }
        return JSONResponse(told, UNAVAILABLE)

    return routes


def _known_here(leadership: Leadership, metrics: Metrics) -> APIRouter:
    routes = APIRouter()

    @routes.get("/metrics", **needs(Need.SEE_ALL))
    async def metrics_() -> Response:
        text = await asyncio.to_thread(generate_latest, metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    @routes.api_route("/{path:path}", methods=sorted(METHODS), **needs(Need.KNOWN))
    async def for_the_leader(path: str) -> Response:
        raise leadership.not_leading()

    return routes
