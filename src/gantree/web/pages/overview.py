"""The start page: utilisation of the cluster, reasons of pending jobs, and the latest decisions."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, needs, redacted_for, sees_queue
from gantree.api.backend import Backend
from gantree.api.server.standby.reads import StandbyBackend
from gantree.control.metrics.figures import Figures, figures_of
from gantree.control.requests.read_view import ReadView
from gantree.web.pages.frame import page_router, render
from gantree.web.pages.timeline.rows import latest

Json = dict[str, Any]
DECISIONS = 25
GATE_WORDS = {
    "LIMIT": "a limit of the queue or of the user",
    "QUOTA": "the queue's quota",
    "SHAPE": "no machine is large enough",
    "ROOM": "too few free resources",
    "CONTIGUITY": "enough free resources, but not in one domain",
    "HARM": "it would have to stop jobs that may not be preempted",
    "RESERVATION": "reservations of other jobs",
    "other": "held, waiting for another job, or backing off after a failure",
    "unasked": "not examined yet",
}


def router(source: Backend | StandbyBackend) -> APIRouter:
    """The route of the page. Only the leader knows at which gates jobs are refused."""
    routes = page_router()

    @routes.get("/", **needs(Need.KNOWN))
    async def overview(request: Request, caller: CurrentCaller) -> Response:
        """The page."""
        context = await source.read(overview_of, caller)
        metrics = await _sampled(source, caller)
        return render(request, caller, "overview.html", **context, **metrics)

    return routes


async def _sampled(source: Backend | StandbyBackend, caller: Caller) -> Json:
    """GPUs by use, queues, and refusals by gate, as they were when they were looked at last."""
    if isinstance(source, StandbyBackend):
        return _figures(await source.read(current_figures), caller, [])
    await source.call_controller(lambda controller: controller.sample_metrics())
    sample = source.controller.metrics.sample
    if sample is None:
        return _figures(None, caller, [])
    gates = [
        {"gate": gate, "words": GATE_WORDS.get(gate, gate), "now": now, "ever": sample.refusals.get(gate, 0)}
        for gate, now in sample.waits.items()
        if now or sample.refusals.get(gate)
    ]  # fmt: skip
    return _figures(sample.figures, caller, gates)


def current_figures(view: ReadView) -> Figures:
    """The figures of now."""
    return figures_of(view.ledger, view.now)


def overview_of(view: ReadView, caller: Caller) -> Json:
    """What is counted at once; the dearer figures are those that the metrics have."""
    ledger = view.ledger
    site = ledger.fabric
    return {
        "site": None if site is None else site.cluster.name,
        "nodes": 0 if site is None else len(site.nodes),
        "out_of_use": len(ledger.unusable),
        "cordoned": len(ledger.site.cordoned),
        "waiting": ledger.waiting_jobs,
        "running": len(ledger.holding),
        "ended": len(ledger.ended),
        "promised": sum(each.promised for each in ledger.reservations.values()),
        "decisions": redacted_for(caller, ledger, latest(view, DECISIONS, caller)),
    }


def _figures(figures: Figures | None, caller: Caller, gates: list[Json]) -> Json:
    if figures is None:
        return {"gpus": {}, "utilisation": None, "queues": [], "gates": gates}
    queues = [
        {"name": name, "waiting": each.waiting, "running": each.running, "gpus": each.gpus, "oldest_s": each.oldest_s}
        for name, each in figures.queues.items()
        if (each.waiting or each.running) and sees_queue(caller, name)
    ]  # fmt: skip
    return {
        "gpus": figures.gpus,
        "utilisation": figures.utilisation,
        "queues": queues,
        "gates": gates,
    }
