"""The page of one job: state and reason, placement rank by rank, decisions, output, cost.

What a button does is the API's own route, sent by the browser; here is only what is shown.
"""

import asyncio
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gantree.api.access.access import Caller, CurrentCaller
from gantree.api.access.permissions import Need, has, job_for, needs, redacted_for
from gantree.api.access.visibility import detail_visible_to
from gantree.api.backend import QueryBackend
from gantree.api.views import job_view
from gantree.api.views.start_view import when_json
from gantree.control.requests.read_view import ReadView
from gantree.control.requests.submissions import submitted_event_id
from gantree.core.alternatives import USD_per_hour_of
from gantree.core.explain.explain import why
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.events import JobSubmitted
from gantree.model.phases import ENDED, HOLDING, Phase
from gantree.text.preemption_blockers import PREEMPTION_BLOCKERS
from gantree.topology.hardware.prices import LIST_PRICES, PriceList
from gantree.web.pages.frame import page_router, render, standby_of
from gantree.web.pages.jobs.curve_chart import Chart, charts
from gantree.web.pages.jobs.gang_placement import gang_placement
from gantree.web.pages.timeline.rows import JobTimelines, facts_of_job

Json = dict[str, Any]
HOUR_S = 3600.0
ATTEMPTS_DRAWN = 20
SHOWN_OF_SPEC = ("priority", "topology", "time_limit_s", "service")
BUTTONS = ("cancel", "hold", "release", "suspend", "priority", "scale", "extend")


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page. A daemon that stands by shows no buttons."""
    routes = page_router()
    histories = JobTimelines(
        lambda job, after: reads.read_adaptive(facts_of_job, job, after, asker="")
    )

    @routes.get("/jobs/{word}", **needs(Need.SEE))
    async def job(request: Request, word: str, caller: CurrentCaller) -> Response:
        """The page."""
        prices = reads.prices.tariff.prices if reads.prices else LIST_PRICES
        forgotten, context = await reads.read_adaptive(
            found, word, caller, prices, asker=caller.name
        )
        context["priced_by"] = "the site's prices" if reads.prices else "list prices"
        rows = await histories.of(word if forgotten else context["row"]["job"])
        all_told = caller.sees_all
        context["timeline"] = rows if all_told else await reads.read(timeline_of, rows, caller)
        if forgotten:
            return render(request, caller, "history.html", job=word, about=forgotten, **context)
        await reads.add_progress([context["row"]], ended=True)
        context["charts"] = await asyncio.to_thread(_charts, reads, context)
        if standby_of(request) is not None:
            context["may"] |= dict.fromkeys(BUTTONS, False)
        return render(
            request, caller, "job.html", preemption_blockers=PREEMPTION_BLOCKERS, **context
        )

    return routes


def _charts(reads: QueryBackend, context: Json) -> list[Chart]:
    """What the job reported over its last attempts, for who may read its output."""
    job, last = context["row"]["job"], context["row"]["attempt"] or 0
    if not context["may"]["read"]:
        return []
    attempts = range(max(1, last - ATTEMPTS_DRAWN + 1), last + 1)
    return charts([(attempt, reads.curve(job, attempt)) for attempt in attempts])


def found(view: ReadView, word: str, caller: Caller, prices: PriceList) -> tuple[Json | None, Json]:
    """What is known of a job that is history by now, else None and all that the ledger knows. Raises NotFound."""
    forgotten = forgotten_of(view, word, caller)
    return forgotten, {} if forgotten else job_of(view, word, caller, prices)


def forgotten_of(view: ReadView, word: str, caller: Caller) -> Json | None:
    """What is known of a job that is history by now; None where nothing is, or the caller may not see it.

    ended is its row of the history; None for one that was rejected, of which there is only what was handed in.
    """
    if word in view.ledger.newest_of_name or not view.is_history(word):
        return None
    recorded = view.journal.history.ended_job(word)
    if recorded is not None:
        ended = recorded.ended
        if not has(caller, Need.SEE, ended.user, ended.queue):
            return None
        about = {"queue": ended.queue, "user": ended.user, "gpus": ended.gpus}
        return {**about, "at": ended.submitted_at, "ended": asdict(ended)}
    event = view.journal.event(submitted_event_id(word))
    if not isinstance(event, JobSubmitted):
        return None
    spec = event.spec
    if not has(caller, Need.SEE, spec.user, spec.queue):
        return None
    return {
        "queue": spec.queue,
        "user": spec.user,
        "gpus": spec.gpus,
        "at": event.observed_at,
        "ended": None,
    }


def job_of(view: ReadView, word: str, caller: Caller, prices: PriceList = LIST_PRICES) -> Json:
    """All of it that the ledger knows. Raises NotFound."""
    ledger, now = view.ledger, view.now
    job = job_for(view, caller, word, Need.SEE)
    state, array = ledger.find(job), ledger.arrays.get(job)
    context: Json = {
        "row": _shown(detail_visible_to(caller, ledger, job_view.job_detail(ledger, job))),
        "why": redacted_for(caller, ledger, job_view.explanation(why(ledger, job, now))),
    }
    if state is None:
        may = dict.fromkeys(("read", *BUTTONS), False)
        if array is not None and not array.is_over:
            may |= _may_of_array(array, caller)
        choices = _choices(ledger) if may["priority"] else None
        return {**context, "when": None, "may": may, "place": None, "use": None, "choices": choices}
    start = when_json(ledger, job, now) if state.phase is Phase.PENDING else None
    return {
        **context,
        "when": redacted_for(caller, ledger, start),
        "may": _may(state, caller),
        "place": gang_placement(ledger, state),
        "use": _use(ledger, state, now, prices),
        "choices": None if state.phase in ENDED else _choices(ledger),
    }


def _shown(detail: Json) -> Json:
    """A job's detail with no more of its specification than the page shows: no command, no environment, no secret."""
    spec = detail["spec"]
    return {**detail, "spec": spec and {name: spec[name] for name in SHOWN_OF_SPEC}}


def timeline_of(view: ReadView, rows: list[Json], caller: Caller) -> list[Json]:
    """Facts without the names of jobs that the caller may not see."""
    context: list[Json] = redacted_for(caller, view.ledger, rows)
    return context


def _may(state: JobState, caller: Caller) -> Json:
    """Which buttons make sense now, and to this caller."""
    whose = state.spec.user, state.spec.queue
    lives = state.phase not in ENDED and has(caller, Need.CHANGE, *whose)
    return {
        "read": has(caller, Need.READ, *whose),
        "cancel": lives,
        "hold": lives and state.phase is Phase.PENDING and not state.held,
        "release": lives and state.held,
        "suspend": lives and state.phase in HOLDING and not state.held,
        "priority": lives,
        "scale": lives and state.spec.elastic is not None,
        "extend": lives and state.idle.since is not None and state.phase is Phase.RUNNING,
    }


def _may_of_array(array: ArrayState, caller: Caller) -> Json:
    """Which buttons of an array make sense now, and to this caller."""
    changes = has(caller, Need.CHANGE, array.spec.user, array.spec.queue)
    return {
        "cancel": changes,
        "hold": changes and array.may_split,
        "release": changes and array.held,
        "suspend": changes and bool(array.alive) and not array.held,
        "priority": changes,
    }


def _use(ledger: Ledger, state: JobState, now: float, prices: PriceList) -> Json:
    """GPU-hours served so far over all attempts, and what these cost on demand where it is."""
    served_gpu_s = state.attained_gpu_s
    if state.phase in HOLDING:
        served_gpu_s += state.ran_s(now) * state.gpus
    hours, USD = served_gpu_s / HOUR_S, None
    if state.placement is not None and ledger.fabric is not None and state.gpus:
        an_hour = USD_per_hour_of(ledger.fabric, state.placement, prices)
        USD = None if an_hour is None else hours * an_hour / state.gpus
    return {"gpu_hours": hours, "cost_USD": USD, "lost_gpu_s": state.gpu_s_lost}


def _choices(ledger: Ledger) -> Json:
    """What a form may offer: the tiers, widest first, the GPU models of the site, and the classes of the policy."""
    fabric = ledger.fabric
    models = [] if fabric is None else [each.gpu for each in fabric.cluster.machines.values()]
    return {
        "tiers": [] if fabric is None else list(fabric.tiers[1:]),
        "gpus": sorted({model for model in models if model}),
        "priorities": list(ledger.policy.priorities),
    }
