"""What the pages show of the replicas of a service beside the view of the API: their states, what they hold."""

from typing import Any

from gantree.core.alternatives import USD_per_hour_of
from gantree.core.explain.explain import why
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.services.replicas import holds_place, jobs_of, live_replicas
from gantree.model.phases import Phase
from gantree.topology.hardware.prices import PriceList

Json = dict[str, Any]


def replica_state(state: JobState) -> str:
    """One word or two for a replica."""
    replica = state.replica
    if replica.draining:
        return "draining"
    if state.phase is not Phase.RUNNING:
        return state.phase.value
    if replica.ready:
        return "ready"
    return "not ready" if replica.was_ready else "starting"


def waiting_sentence(ledger: Ledger, state: JobState, now: float) -> str:
    """Why a replica has no place; "" where it has one."""
    return why(ledger, state.job, now).sentence if state.phase is Phase.PENDING else ""


def held(ledger: Ledger, service: ServiceState, prices: PriceList) -> Json:
    """GPUs that the replicas hold, and what an hour of their places costs; None: a price is not known."""
    states = jobs_of(each for each in live_replicas(ledger, service) if holds_place(each))
    return {
        "held_gpus": sum(each.held_gpus for each in states),
        "USD_per_hour": _USD_per_hour(ledger, states, prices),
    }


def _USD_per_hour(ledger: Ledger, states: list[JobState], prices: PriceList) -> float | None:
    total = 0.0
    for state in states:
        if state.placement is None or ledger.fabric is None:
            continue
        price = USD_per_hour_of(ledger.fabric, state.placement, prices)
        if price is None:
            return None
        total += price
    return total
