"""The pages of services: the list, and one with its replicas, load, cost, and what changed it.

What is on record comes from the reader; load, latencies and requests in work from the daemon that leads.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, has, needs
from gantree.api.backend import QueryBackend
from gantree.api.views import service_view
from gantree.control.requests.read_view import ReadView
from gantree.model.services import Keeper
from gantree.topology.hardware.prices import LIST_PRICES, PriceList
from gantree.web.pages.frame import page_router, render, standby_of
from gantree.web.pages.services.chart import replicas_chart
from gantree.web.pages.services.cost import add_cost
from gantree.web.pages.services.history import history_of
from gantree.web.pages.services.map import replica_map
from gantree.web.pages.services.replicas import held, replica_state, waiting_sentence

Json = dict[str, Any]
REPLICAS_SHOWN = 200


def router(reads: QueryBackend) -> APIRouter:
    """The routes of the pages. A daemon that stands by shows no buttons."""
    routes = page_router()

    @routes.get("/services", **needs(Need.KNOWN))
    async def services(request: Request, caller: CurrentCaller) -> Response:
        """The list."""
        rows = await reads.read_services(listed, caller, _prices(reads), asker=caller.name)
        await reads.add_load(rows)
        add_cost(rows)
        return render(request, caller, "services.html", rows=rows, priced_by=_priced_by(reads))

    @routes.get("/services/{name}", **needs(Need.SEE))
    async def service(request: Request, name: str, caller: CurrentCaller) -> Response:
        """One service."""
        context = await reads.read_services(shown, name, caller, _prices(reads), asker=caller.name)
        row = context["row"]
        await reads.add_load([row])
        add_cost([row])
        for may in ("may_scale", "may_end"):
            context[may] &= standby_of(request) is None
        return render(request, caller, "service.html", priced_by=_priced_by(reads), **context)

    return routes


def _prices(reads: QueryBackend) -> PriceList:
    return reads.prices.tariff.prices if reads.prices else LIST_PRICES


def _priced_by(reads: QueryBackend) -> str:
    return "the site's prices" if reads.prices else "list prices"


def listed(view: ReadView, caller: Caller, prices: PriceList) -> list[Json]:
    """The live services that a caller may see, by name."""
    ledger = view.ledger
    rows = service_view.services(view, caller)
    rows = [{**row, **held(ledger, ledger.services[row["service"]], prices)} for row in rows]
    return sorted(rows, key=lambda row: str(row["service"]))


def shown(view: ReadView, name: str, caller: Caller, prices: PriceList) -> Json:
    """All of a service that its page shows and that is on record. Raises NotFound."""
    ledger = view.ledger
    row = service_view.service(view, caller, name)
    state = ledger.services[row["service"]]
    row |= held(ledger, state, prices)
    for each in row["replicas"]:
        job = ledger.jobs[each["replica"]]
        each["state"] = replica_state(job)
        each["held_gpus"] = job.held_gpus if each["nodes"] else 0
        each["reason"] = waiting_sentence(ledger, job, view.now) or each["reason"]
    history = history_of(view, state)
    replica = state.spec.replica
    is_here = state.is_live and not state.is_ending
    may_change = is_here and has(caller, Need.CHANGE, replica.user, replica.queue)
    return {
        "row": row,
        "replicas": row["replicas"][:REPLICAS_SHOWN],
        "more_replicas": max(0, len(row["replicas"]) - REPLICAS_SHOWN),
        "map": replica_map(ledger, state),
        "chart": replicas_chart(history, view.now),
        "events": history.rows,
        "may_scale": may_change and state.keeper is not Keeper.PODS,
        "may_end": may_change and state.keeper is Keeper.GANTREE,
    }
