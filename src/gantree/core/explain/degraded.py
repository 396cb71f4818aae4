"""Sentences about gangs whose steps take longer where they are, with the sum that decides whether they move."""

from math import inf

from gantree.core.cycle.degradations import Degradation, degradation, without_price
from gantree.core.cycle.leaving_degraded import Balance, balance, why_not_leaving
from gantree.core.events.operator_requests import UNDER_WAY
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.text.words import span

SECONDS_OF_HOUR = 3600.0


def staying_degraded(ledger: Ledger, state: JobState, now: float) -> str:
    """Further sentences on a placed job whose steps take longer where it is, and when it moves; "" for others."""
    if state.placement is None or state.phase not in UNDER_WAY or state.moving is not None:
        return ""
    found = degradation(ledger, state)
    if found is None:
        worn = without_price(ledger, state)
        return (
            worn
            and f" Its links: {worn}; it stays, for its job tells neither `model` nor `traffic`."
        )
    longer = f" Its steps take {found.longer:.2f} times as long as they would"
    slow = f"{longer}: {found.reason}, for {span(now - found.since)}."
    stays = why_not_leaving(ledger, state, now)
    if stays:
        return f"{slow} It stays, for {stays}."
    return slow + _weighed(state, found, balance(ledger, state, found, now), now)


def _weighed(state: JobState, found: Degradation, sums: Balance, now: float) -> str:
    """The sum and what follows from it."""
    loss = f"if that lasts another {span(sums.lasts_s)}, staying loses {_amount(sums.loss_gpu_s)}"
    cost = f"moving costs {_amount(sums.cost_gpu_s)}"
    if sums.pays:
        return f" It moves as soon as a faster place is free: {loss}, {cost}."
    at_checkpoint = f"{_amount(sums.cost_at_checkpoint_gpu_s)} right after a checkpoint"
    later = "" if sums.pays_at == inf else f" in {span(sums.pays_at - now)}"
    if sums.pays_at_checkpoint:
        when = f", or{later}" if later else ""
        return (
            f" It moves at its next checkpoint{when}, if there is a better place: {loss}, {cost}, "
            f"{at_checkpoint}."
        )
    from_s = sums.cost_at_checkpoint_gpu_s / state.gpus / found.lost_share - (now - found.since)
    moves = f"it moves{later}, or at a checkpoint from {span(from_s)} on, unless that ends before"
    if not later:
        moves = "its time is up before that would pay"
    return f" It stays: {loss}, {cost}, {at_checkpoint}; {moves}."


def _amount(gpu_s: float) -> str:
    """GPU-seconds as people say them."""
    hours = gpu_s / SECONDS_OF_HOUR
    if hours >= 1:
        return f"{hours:,.1f} GPU-hours"
    return f"{gpu_s / 60:,.3g} GPU-minutes" if gpu_s >= 60 else f"{gpu_s:,.3g} GPU-seconds"
