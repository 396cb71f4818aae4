"""The application: puts the routers together, says every error as a problem. Routes are in `gantree.api.routes`."""

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Depends, FastAPI

from gantree import __version__
from gantree.api.access.access import Access
from gantree.api.access.audit import Audit, AuditWatch
from gantree.api.access.permissions import permitted
from gantree.api.backend import Backend
from gantree.api.http.openapi import described
from gantree.api.http.path_prefix import Prefixed
from gantree.api.http.request_guard import Guard
from gantree.api.observability.request_telemetry import RequestWatch
from gantree.api.routes import (
    audit as audit_routes,
)
from gantree.api.routes import (
    events,
    exec_sessions,
    explanations,
    jobs,
    logs,
    nodes,
    policies,
    probes,
    records,
    sessions,
    site,
    tokens,
    usage,
)
from gantree.api.server.error_handlers import say_errors_as_problems
from gantree.api.server.standby_reads import Standing
from gantree.api.server.submit_fast_path import ShortWay, route_in

ROUTERS = (
    jobs.router,
    explanations.router,
    logs.router,
    records.router,
    events.router,
    site.router,
    nodes.router,
    policies.router,
    usage.router,
    probes.router,
    sessions.router,
    tokens.router,
    audit_routes.router,
)


Pages = Sequence[Callable[[Backend | Standing], APIRouter]]
"""Makers of routers that are no part of the API: web pages. A daemon that stands by has them too, to look at."""


def build_app(
    backend: Backend,
    access: Access,
    pages: Pages = (),
    root_path: str = "",
    audit: Audit | None = None,
) -> FastAPI:
    """The application around one running control loop; access decides who its callers are, audit keeps what they did.

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
    say_errors_as_problems(app)
    controller = backend.controller
    routers = [router(backend) for router in ROUTERS]
    submit = route_in(routers, "POST", "/v1/jobs")
    app.add_middleware(ShortWay, route=submit, model=jobs.Submission)
    if audit is not None:
        app.add_middleware(AuditWatch, audit=audit)
    app.add_middleware(RequestWatch, metrics=controller.metrics, tracer=controller.causes.tracer)
    app.add_middleware(Guard)
    app.add_middleware(Prefixed, root_path=root_path)
    app.state.access, app.state.audit = access, audit
    app.openapi = lambda: described(app)  # type: ignore[method-assign]  # as FastAPI's documentation has it
    for router in routers:
        app.include_router(router, dependencies=[Depends(permitted)])
    app.include_router(probes.probes(backend))
    app.include_router(exec_sessions.router(backend))
    app.include_router(sessions.doors(backend))
    for page in pages:
        app.include_router(page(backend), include_in_schema=False)
    return app
