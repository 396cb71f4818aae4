"""The application: puts the routers together, says every error as a problem. Routes are in `gantree.api.routes`."""

from fastapi import Depends, FastAPI

from gantree import __version__
from gantree.api.access import Access, caller_of
from gantree.api.backend import Backend
from gantree.api.description import described
from gantree.api.error_handlers import say_errors_as_problems
from gantree.api.guard import Guard
from gantree.api.request_watch import RequestWatch
from gantree.api.routes import (
    events,
    jobs,
    logs,
    nodes,
    policies,
    questions,
    records,
    site,
    watching,
)

ROUTERS = (
    jobs.router,
    questions.router,
    logs.router,
    records.router,
    events.router,
    site.router,
    nodes.router,
    policies.router,
    watching.router,
)


def build_app(backend: Backend, access: Access) -> FastAPI:
    """The application around one running control loop; access decides who its callers are."""
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
    app.add_middleware(RequestWatch, metrics=controller.metrics, tracer=controller.causes.tracer)
    app.add_middleware(Guard)
    app.state.access = access
    app.openapi = lambda: described(app)  # type: ignore[method-assign]  # as FastAPI's documentation has it
    for router in ROUTERS:
        app.include_router(router(backend), dependencies=[Depends(caller_of)])
    app.include_router(watching.probes(backend))
    return app
