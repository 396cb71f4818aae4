"""The page to submit jobs: fields that write a job file, the file itself, and what would become of it."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.views import queries
from gantree.control.requests.read_view import ReadView
from gantree.control.requests.submission_checks import NO_QUEUE
from gantree.model.access import Power
from gantree.web.pages.frame import page_router, render

EXAMPLE = """\
name: my-training
queue: {queue}
gang:
  - role: worker
    members: 1
    each: {{gpus: {gpus}}}
    run: [python, train.py]
    workdir: /tmp
time_limit: 8h
"""
MOST_GPUS = 8


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page."""
    routes = page_router()

    @routes.get("/submit", **needs(Need.SUBMIT))
    async def submit(request: Request, caller: CurrentCaller) -> Response:
        """The page."""
        queues = await reads.read(queries.queues, caller)
        queue, site = queue_for(caller, queues), await reads.read(site_choices)
        known = sorted({queue, *taking_queues(caller, queues)})
        example = EXAMPLE.format(queue=queue, gpus=site["gpus_of_member"])
        return render(
            request, caller, "submit.html", example=example, queue=queue, queues=known, site=site
        )

    return routes


def site_choices(view: ReadView) -> dict[str, Any]:
    """The GPU models and priority classes to choose from, and GPUs for a first job, which the largest node has."""
    ledger = view.ledger
    machines = [] if ledger.fabric is None else list(ledger.fabric.cluster.machines.values())
    most = max([machine.gpus for machine in machines], default=MOST_GPUS)
    return {
        "models": sorted({machine.gpu for machine in machines if machine.gpu}),
        "priorities": list(ledger.policy.priorities),
        "gpus_of_member": min(MOST_GPUS, most),
    }


def taking_queues(caller: Caller, rows: list[dict[str, Any]]) -> list[str]:
    """The queues of the policy without queues of their own that the caller may submit to."""
    known = [row["queue"] for row in rows if row["kind"] == "queue" and row.get("in_policy", True)]
    divided = {path.rpartition("/")[0] for path in known}
    return [path for path in known if path not in divided and caller.may(Power.SUBMIT, path)]


def queue_for(caller: Caller, rows: list[dict[str, Any]]) -> str:
    """A queue that takes jobs of the caller: that of jobs which name none, else the first of the policy."""
    taking = taking_queues(caller, rows)
    return NO_QUEUE if NO_QUEUE in taking or not taking else taking[0]
