"""The page to submit jobs: a job file in a text field, validated against the cluster while it is typed."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.views import queries
from gantree.control.requests.submission_checks import NO_QUEUE
from gantree.model.access import Power
from gantree.web.pages.frame import page_router, render

EXAMPLE = """\
name: my-training
queue: {queue}
gang:
  - role: worker
    members: 2
    each: {{gpus: 8}}
    run: [python, train.py]
    workdir: /data/my-training
time_limit: 8h
"""


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page."""
    routes = page_router()

    @routes.get("/submit", **needs(Need.SUBMIT))
    async def submit(request: Request, caller: CurrentCaller) -> Response:
        """The page."""
        queue = queue_for(caller, await reads.read(queries.queues, caller))
        return render(request, caller, "submit.html", example=EXAMPLE.format(queue=queue))

    return routes


def queue_for(caller: Caller, rows: list[dict[str, Any]]) -> str:
    """A queue that takes jobs of the caller: that of jobs which name none, else the first of the policy."""
    known = [row["queue"] for row in rows if row["kind"] == "queue" and row.get("in_policy", True)]
    divided = {path.rpartition("/")[0] for path in known}
    taking = [path for path in known if path not in divided and caller.may(Power.SUBMIT, path)]
    return NO_QUEUE if NO_QUEUE in taking or not taking else taking[0]
