"""The page to hand in jobs at: a job file in a text field, held against the cluster as it is typed."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.api.access import WhoAsks
from gantree.api.backend import Reads
from gantree.api.permissions import Need, needs
from gantree.web.pages.frame import page_router, render

EXAMPLE = """\
name: my-training
queue: default
gang:
  - role: worker
    members: 2
    each: {gpus: 8}
    run: [python, train.py]
    workdir: /data/my-training
time_limit: 8h
"""


def router(reads: Reads) -> APIRouter:
    """The route of the page."""
    routes = page_router()

    @routes.get("/submit", **needs(Need.SUBMIT))
    async def submit(request: Request, caller: WhoAsks) -> Response:
        """The page."""
        return render(request, caller, "submit.html", example=EXAMPLE)

    return routes
