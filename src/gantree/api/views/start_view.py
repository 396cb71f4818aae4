"""Reserved and estimated starts as plain JSON values, and what would happen to them otherwise. No HTTP here."""

from math import isfinite
from typing import Any

from gantree.core.alternatives import Alternative, is_beyond_forecast
from gantree.core.cycle.moves import Defragmentation
from gantree.core.explain.explain import when, why
from gantree.core.ledger.ledger import Ledger
from gantree.core.reservations.reservations import job_of, running
from gantree.core.reservations.start_estimates import Start
from gantree.formats.refusals import refusal_json
from gantree.model.phases import Phase
from gantree.model.placements import Placement

Json = dict[str, Any]


def start_json(start: Start) -> Json:
    """Return a reservation as JSON; starts_at in seconds since 1970."""
    return {
        "starts_at": start.starts_at,
        "promised": start.promised,
        "reserved": start.reserved,
        "slips": start.slips,
        "domain": start.domain,
        "waits_for": list(start.waits_for),
    }


def when_json(ledger: Ledger, job: str, now: float) -> Json:
    """Return when a job starts, and what that depends on; start is null if unknown, or if the job is not pending.

    Raises NotFound for a job that was never handed in.
    """
    explained = why(ledger, job, now)
    waits = explained.phase is Phase.PENDING
    start = when(ledger, job, now) if waits else None
    if start is not None and not start.reserved and is_beyond_forecast(explained.refused):
        start = None
    state = ledger.find(job)
    return {
        "job": job,
        "phase": explained.phase.value,
        "asked_at": now,
        "started_at": None if state is None else state.started_at,
        "start": None if start is None else start_json(start),
        "hangs_on": [] if start is None else _ends(ledger, start, now),
        "why": explained.sentence,
    }


def _ends(ledger: Ledger, start: Start, now: float) -> list[Json]:
    """The ends that a start waits for, as it counts on them: a promise on enforced ones, others on probable ones.

    null where nobody knows.
    """
    everyone = list(running(ledger, now, limits_only=start.promised))
    ends = {job_of(one.owner): one for one in reversed(everyone)}  # what runs before what is held
    found = []
    for job in start.waits_for:
        state, one = ledger.jobs.get(job), ends.get(job)
        known = one is not None and isfinite(one.ends_at)
        found.append(
            {
                "job": job,
                "phase": None if state is None else state.phase.value,
                "ends_at": one.ends_at if one is not None and known else None,
                "enforced": known and one is not None and one.enforced,
                "time_limit_s": None if state is None else state.spec.time_limit_s,
            }
        )
    return found


def alternative_json(alternative: Alternative) -> Json:
    """One alternative; what is not known is null."""
    start, refused = alternative.start, alternative.refused
    return {
        "change": dict(alternative.change),
        "now": alternative.now,
        "start": None if start is None else start_json(start),
        "sentence": alternative.sentence,
        "refused": None if refused is None else refusal_json(refused),
        "place": None if alternative.placement is None else place_json(alternative.placement),
        "stopped": [{"job": each.job, "how": each.how} for each in alternative.stopped],
        "step_s": alternative.step_s,
        "step_ratio": alternative.step_ratio,
        "comm_s": alternative.comm_s,
        "comm_ratio": alternative.comm_ratio,
        "run_s": alternative.run_s,
        "cut": alternative.cut,
        "gpu_hours": alternative.gpu_hours,
        "cost_USD": alternative.cost_USD,
    }


def place_json(placement: Placement) -> Json:
    """A place in short: its domain, members, GPUs and nodes."""
    domain = placement.domain
    return {
        "domain": {"tier": domain.tier, "name": domain.name},
        "members": len(placement.members),
        "gpus": sum(len(member.gpus) for member in placement.members),
        "nodes": list(placement.nodes),
    }


def defragmentation_json(job: str, plan: Defragmentation | None, reason: str) -> Json:
    """Return the moves that let a job start; plan is null, with a reason, if there are none."""
    if plan is None:
        return {"job": job, "plan": None, "reason": reason}
    moves = [
        {
            "job": each.job,
            "gpus": each.gpus,
            "source": place_json(each.source),
            "target": place_json(each.target),
            "cost_gpu_s": each.cost_gpu_s,
        }
        for each in plan.moves
    ]
    told = {
        "digest": plan.digest,
        "place": place_json(plan.placement),
        "moves": moves,
        "cost_gpu_s": plan.cost_gpu_s,
        "gain_gpu_s": plan.gain_gpu_s,
        "proven": plan.proven,
    }
    return {"job": job, "plan": told, "reason": ""}
