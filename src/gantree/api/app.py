"""The application: puts the routers together, says every error as a problem. Routes are in `gantree.api.routes`."""

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Depends, FastAPI

from gantree import __version__
from gantree.api.access import Access
from gantree.api.audit import Audit, AuditWatch
from gantree.api.backend import Backend
from gantree.api.description import described
from gantree.api.error_handlers import say_errors_as_problems
from gantree.api.guard import Guard
from gantree.api.permissions import permitted
from gantree.api.prefix import Prefixed
from gantree.api.request_watch import RequestWatch
from gantree.api.routes import (
    attach,
    events,
    jobs,
    logs,
    nodes,
    policies,
    questions,
    records,
    sessions,
    site,
    tokens,
    usage,
    watching,
)
from gantree.api.routes import (
    audit as audit_routes,
)
from gantree.api.short_way import ShortWay, route_in
from gantree.api.standing_reads import Standing

ROUTERS = (
    jobs.router,
    questions.router,
    logs.router,
    records.router,
    events.router,
    site.router,
    nodes.router,
    policies.router,
    usage.router,
    watching.router,
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
    app.include_router(watching.probes(backend))
    app.include_router(attach.router(backend))
    app.include_router(sessions.doors(backend))
    for page in pages:
        app.include_router(page(backend), include_in_schema=False)
    return app
