"""Explains services: how many replicas are wanted and why, what they do, and what the next one waits for."""

from collections.abc import Callable

from gantree.core.explain.explanation import Explanation
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.services.models import sentences, taken_models
from gantree.core.services.replicas import (
    is_ending,
    live_replicas,
    name_of,
    runs_description,
    takes_requests,
)
from gantree.model.phases import Phase
from gantree.model.services import Keeper
from gantree.text.words import plural

DOES = {
    "ready": ("is ready", "are ready"),
    "not ready": ("runs and is not ready", "run and are not ready"),
    "starting": ("starts", "start"),
    "waiting": ("waits", "wait"),
    "ending": ("drains or stops", "drain or stop"),
}
"""What a replica, or several, do, by condition, in the order in which they are told."""


def service_explanation(
    ledger: Ledger, service: ServiceState, of_replica: Callable[[str], Explanation]
) -> Explanation:
    """The state of a service in words; of_replica explains a replica."""
    if not service.is_live:
        return Explanation(service.service, Phase.CANCELLED, f"Ended: {service.reason}.")
    replicas = live_replicas(ledger, service)
    conditions = [condition(state) for state in replicas]
    sentence = f"{_wants(service)}: {_counted(conditions)}."
    sentence += _update(service, replicas) + _first_not_ready(replicas)
    if service.reason and not service.is_ending:
        sentence += f" {service.reason.removesuffix('.')}."
    first = next(
        (s for s, does in zip(replicas, conditions, strict=True) if does == "waiting"), None
    )
    if first is not None:
        sentence += f" {name_of(first)}: {of_replica(first.job).sentence}"
    for shared in sentences(taken_models(ledger, service.spec)):
        sentence += f" Requests{shared.removeprefix('requests')}."
    if service.service in ledger.rejected_services:
        because = ledger.rejected_services[service.service]
        sentence += f" Its last description was rejected: {because}."
    return Explanation(service.service, _phase(service, conditions), sentence)


def condition(state: JobState) -> str:
    """What a replica that has not ended does: one of DOES."""
    if is_ending(state):
        return "ending"
    if takes_requests(state):
        return "ready"
    of_phase = {Phase.PENDING: "waiting", Phase.STARTING: "starting", Phase.RUNNING: "not ready"}
    return of_phase.get(state.phase, "ending")


def replica_in_words(state: JobState) -> str:
    """A further sentence for a replica that holds a place; "" for other jobs."""
    replica = state.spec.service
    if replica is None or state.phase is not Phase.RUNNING:
        return ""
    name = f" Replica {replica.number} of {replica.service}, revision {replica.revision}"
    if state.replica.draining:
        return f"{name}, gets no new requests and ends: {state.replica.drain_reason}."
    if state.replica.ready:
        return f"{name}, is ready for requests."
    why = state.replica.reason or "its port has not answered yet"
    return f"{name}, is not ready for requests: {why}."


def _wants(service: ServiceState) -> str:
    if service.is_ending:
        return f"{service.service} ends ({service.reason})"
    if service.keeper is Keeper.PODS:
        return f"{service.service} has {plural(len(service.replicas), 'pod')} of other controllers"
    if service.scaled_at is None:
        why = "as described"
    else:
        why = "autoscaler" if service.scaled_automatically else "set by a user"
        why += f": {service.scaled_for}" if service.scaled_for else ""
    return f"{service.service} wants {plural(service.wanted, 'replica')} ({why})"


def _counted(conditions: list[str]) -> str:
    counts = {name: conditions.count(name) for name in DOES}
    counted = [f"{count} {DOES[name][count > 1]}" for name, count in counts.items() if count]
    return ", ".join(counted) or "there is none"


def _update(service: ServiceState, replicas: list[JobState]) -> str:
    """How far an update is; "" where none is under way."""
    staying = [state for state in replicas if not is_ending(state)]
    new = [state for state in staying if runs_description(service, state)]
    if len(new) == len(staying):
        return ""
    running = sum(state.phase is Phase.RUNNING for state in new)
    return f" Update to revision {service.revision}: {running} of {service.wanted} run it."


def _first_not_ready(replicas: list[JobState]) -> str:
    """Why the first replica that runs and is not ready is not; "" where all are, or nothing is known."""
    waiting = (state for state in replicas if condition(state) == "not ready")
    first = next((state for state in waiting if state.replica.reason), None)
    return "" if first is None else f" {name_of(first)} is not ready: {first.replica.reason}."


def _phase(service: ServiceState, conditions: list[str]) -> Phase:
    """The phase of a service, in the words for jobs."""
    if service.is_ending:
        return Phase.STOPPING
    return Phase.RUNNING if "ready" in conditions or not service.wanted else Phase.STARTING
