"""The application: assembles the routers, returns errors as problem documents. Routes are in `gantree.api.routes`."""

import sys
from collections.abc import Callable, Sequence

from fastapi import APIRouter, Depends, FastAPI

from gantree import __version__
from gantree.api.access.access import Access
from gantree.api.access.audit import Audit, AuditMiddleware
from gantree.api.access.permissions import permitted
from gantree.api.backend import Backend
from gantree.api.http.openapi import described
from gantree.api.http.path_prefix import PathPrefixMiddleware
from gantree.api.http.security_middleware import SecurityMiddleware
from gantree.api.observability.request_telemetry import RequestTelemetry
from gantree.api.routes import audit as audit_routes
from gantree.api.routes import (
    curves,
    events,
    exec_sessions,
    explanations,
    federation,
    jobs,
    links,
    logs,
    nodes,
    policies,
    probes,
    records,
    sessions,
    site,
    tokens,
)
from gantree.api.routes.accounting import book, history, usage, waste
from gantree.api.routes.services import routing, services
from gantree.api.server.error_handlers import add_error_handlers
from gantree.api.server.pod_paths import CHECKS, REPORTS, PodPaths
from gantree.api.server.standby.reads import StandbyBackend
from gantree.api.server.submit_fast_path import SubmitFastPath, route_in

# FastAPI asks of each type whether it is one of pydantic 1: none here is, and the import takes a quarter of a second.
sys.modules.setdefault("pydantic.v1", None)  # type: ignore[arg-type]  # the documented way to have no such module

ROUTERS = (
    jobs.router,
    explanations.router,
    logs.router,
    records.router,
    curves.router,
    events.router,
    site.router,
    nodes.router,
    links.router,
    federation.router,
    policies.router,
    usage.router,
    waste.router,
    book.router,
    history.router,
    probes.router,
    sessions.router,
    tokens.router,
    audit_routes.router,
    services.router,
    routing.router,
)


Pages = Sequence[Callable[[Backend | StandbyBackend], APIRouter]]
"""Makers of routers that are no part of the API: web pages. A daemon that stands by has them too, to look at."""


def build_app(
    backend: Backend,
    access: Access,
    pages: Pages = (),
    root_path: str = "",
    audit: Audit | None = None,
) -> FastAPI:
    """The application around one running control loop; access authenticates callers, audit records their changes.

    root_path is the prefix that a proxy serves it under; it answers with the prefix and without.
    """
    app = FastAPI(
        title="gantree",
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # RequestWatch has them
    )
    add_error_handlers(app)
    controller = backend.controller
    routers = [router(backend) for router in ROUTERS]
    submit = route_in(routers, "POST", "/v1/jobs")
    app.add_middleware(SubmitFastPath, route=submit, model=jobs.SubmissionRequest)
    if audit is not None:
        app.add_middleware(AuditMiddleware, audit=audit)
    app.add_middleware(
        PodPaths,
        takes={REPORTS: backend.take_report, CHECKS: backend.take_check},
        access=access,
    )
    app.add_middleware(
        RequestTelemetry, metrics=controller.metrics, tracer=controller.causes.tracer
    )
    app.add_middleware(SecurityMiddleware)
    app.add_middleware(PathPrefixMiddleware, root_path=root_path)
    app.state.access, app.state.audit = access, audit
    app.openapi = lambda: described(app)  # type: ignore[method-assign]  # as FastAPI's documentation has it
    for router in routers:
        app.include_router(router, dependencies=[Depends(permitted)])
    app.include_router(probes.probes(backend))
    app.include_router(exec_sessions.router(backend))
    app.include_router(sessions.login_router(backend))
    for page in pages:
        app.include_router(page(backend), include_in_schema=False)
    return app
