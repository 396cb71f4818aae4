"""Jobs and the cluster as plain JSON values. Functions of a ledger only; no HTTP here."""

from typing import Any

from pydantic_core import to_jsonable_python

from gantree.api.views.start_view import start_json
from gantree.core.explain.explanation import Explanation
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.idleness import reclaimed_at
from gantree.core.reservations.start_estimates import known_start
from gantree.formats.refusals import refusal_json
from gantree.journal.contract import RecordedFact
from gantree.model.arrays import in_words
from gantree.model.phases import ENDED, HOLDING, Phase
from gantree.model.placements import Domain
from gantree.topology.occupancy.site import cut_as_now

Json = dict[str, Any]


def plain(value: object) -> Any:
    """Dataclasses, enums, tuples and mappings as JSON values."""
    return to_jsonable_python(value, inf_nan_mode="strings")


def job_row(ledger: Ledger, state: JobState) -> Json:
    """One job in a list: all that a table shows. Times in seconds since 1970."""
    start = known_start(ledger, state) if state.phase is Phase.PENDING else None
    return {
        "job": state.job,
        "name": state.spec.name,
        "phase": state.phase.value,
        "queue": state.spec.queue,
        "user": state.spec.user,
        "priority": state.priority,
        "gpus": state.spec.gpus,
        "members": state.spec.members,
        "members_now": _members_now(state),
        "gpus_now": None if _members_now(state) is None else state.held_gpus,
        "processes": state.spec.processes,
        "attempt": state.attempt,
        "domain": None if state.placement is None else domain_json(state.placement.domain),
        "submitted_at": state.submitted_at,
        "started_at": state.started_at,
        "ended_at": state.ended_at,
        "held": state.held,
        "suspended": state.suspended and state.phase in HOLDING,
        "exit_code": state.exit_code,
        "reason": state.reason,
        "checkpoint_step": state.checkpoint_step,
        "preemptions": state.preemptions,
        "failures": state.failures,
        "last_failure": state.last_failure,
        "starts_at": None if start is None else start.starts_at,
        "promised": start is not None and start.promised,
        "predicted_step_s": None if state.placement is None else state.placement.predicted.step_s,
        "progress": None,
        "check": None,
        "stragglers": [],
        "idle": _idle(ledger, state),
        "array": state.array or None,
        "elements": None,
    }


def array_row(ledger: Ledger, array: ArrayState) -> Json:
    """An array in a list: what its elements have in common, and how many there are in each phase."""
    counts = array.counts(ledger.jobs)
    priority = ledger.policy.priority_of(array.spec.priority)
    return {
        **job_row(ledger, array.unsplit_element(0, priority)),
        "job": array.array,
        "name": array.spec.name,
        "phase": array.phase(counts).value,
        "attempt": None,
        "held": array.held,
        "ended_at": array.ended_at,
        "reason": array.reason,
        "array": None,
        "elements": {
            "indices": in_words(array.spec.array),
            "count": array.size,
            "phases": {phase: count for phase, count in counts.items() if count},
            "stands_for": in_words(ledger.alike_spans(array)),
        },
    }


def _idle(ledger: Ledger, state: JobState) -> Json | None:
    """Since when its GPUs have not computed and what comes of it, and its lease; None where there is neither."""
    idle = state.idle
    is_idle = idle.since is not None and state.phase is Phase.RUNNING
    if not (is_idle or idle.exempt or idle.extended_until) or state.phase in ENDED:
        return None
    return {
        "since": idle.since if is_idle else None,
        "warned_at": idle.warned_at,
        "reclaim_at": reclaimed_at(state, ledger.policy),
        "action": idle.action or None,
        "extended_until": idle.extended_until,
        "exempt": idle.exempt,
    }


def _members_now(state: JobState) -> int | None:
    """Members that hold a place now: an elastic gang may have other than its file says."""
    if state.placement is None or state.phase not in HOLDING:
        return None
    return len(state.placement.members)


def rejected_row(job: str, reason: str) -> Json:
    """A job that was taken and could not be queued; of it only the reason is kept."""
    gone = dict.fromkeys(
        ("queue", "user", "priority", "gpus", "members", "processes", "attempt", "domain", "submitted_at",
         "started_at", "ended_at", "exit_code", "checkpoint_step", "members_now",
         "gpus_now", "starts_at", "predicted_step_s", "progress", "check", "array", "elements")
    )  # fmt: skip
    known = {"job": job, "name": job, "phase": Phase.FAILED.value, "reason": f"rejected: {reason}"}
    never = {
        "held": False,
        "suspended": False,
        "preemptions": 0,
        "failures": 0,
        "last_failure": "",
        "promised": False,
        "stragglers": [],
        "idle": None,
    }
    return {**gone, **known, **never}


def job_detail(ledger: Ledger, job: str) -> Json:
    """One job or array with its specification, and the job with its place."""
    if job in ledger.arrays:
        array = ledger.arrays[job]
        return {**array_row(ledger, array), "spec": plain(array.spec), "placement": None}
    state = ledger.find(job)
    if state is None:
        return {**rejected_row(job, ledger.rejected[job]), "spec": None, "placement": None}
    return {
        **job_row(ledger, state),
        "spec": plain(state.spec),
        "placement": plain(state.placement),
        "not_before": state.not_before,
        "preempted_by": state.preempted_by,
    }


def domain_json(domain: Domain) -> Json:
    return {"tier": domain.tier, "name": domain.name}


def explanation(explained: Explanation) -> Json:
    """The answer to why."""
    return {
        "job": explained.job,
        "phase": explained.phase.value,
        "sentence": explained.sentence,
        "refused": None if explained.refused is None else refusal_json(explained.refused),
        "ahead": list(explained.ahead),
        "ahead_count": explained.ahead_count,
        "start": None if explained.start is None else start_json(explained.start),
        "in_the_way": [{"job": job, "because": because} for job, because in explained.in_the_way],
    }


def cluster(ledger: Ledger) -> Json:
    """The site, its GPUs cut as they are now; who holds each GPU whole (null: nobody); all that each holder has.

    Last the nodes that may not be used.
    """
    if ledger.occupancy is None:
        return {"cluster": None, "owners": {}, "held": {}, "unusable": {}}
    site = cut_as_now(ledger.occupancy)
    holders: dict[str, list[str | None]] = {
        node.name: [None] * site.machines[node.machine].gpus for node in site.nodes
    }
    for owner, members in ledger.occupancy.owners.items():
        for member in members:
            for gpu in member.gpus:
                holders[member.node][gpu] = owner
    held = plain(ledger.occupancy.owners)
    unusable = dict(ledger.unusable)
    return {"cluster": plain(site), "owners": holders, "held": held, "unusable": unusable}


def fact(recorded: RecordedFact) -> Json:
    """One line of the timeline."""
    data = plain(recorded.fact)
    kind = type(recorded.fact).__name__
    return {"seq": recorded.seq, "fact": kind, "at": data.pop("at"), "data": data}
