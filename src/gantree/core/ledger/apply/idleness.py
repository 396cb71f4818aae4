"""Applies facts about gangs that are idle: since when, warned, reclaimed; and about the lease of a job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.core.ledger.usage import note_use
from gantree.model.facts import GpuUseNoted
from gantree.model.idle_facts import GangIdlenessNoted, GangIdleWarned, GangReclaimed, JobExtended

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def gang_idleness_noted(ledger: Ledger, fact: GangIdlenessNoted) -> None:
    """A gang has become idle, or is not any more."""
    state = ledger.jobs[fact.job]
    over = state.idle.over()
    state.idle = over if fact.since is None else replace(over, since=fact.since, seen_at=fact.at)
    ledger.accounts.note_idle(state, fact.at)


def gpu_use_noted(ledger: Ledger, fact: GpuUseNoted) -> None:
    """Counters told what gangs did: those that are idle were measured until then."""
    note_use(ledger, fact)
    for used in fact.gangs:
        state = ledger.jobs.get(used.job)
        if state is not None and state.idle.since is not None:
            state.idle = replace(state.idle, seen_at=max(state.idle.seen_at, fact.until))


def gang_idle_warned(ledger: Ledger, fact: GangIdleWarned) -> None:
    """A gang was warned that it is idle."""
    state = ledger.jobs[fact.job]
    state.idle = replace(
        state.idle,
        warned_at=fact.at,
        reclaim_at=fact.reclaim_at,
        action=fact.action,
        warnings=state.idle.warnings + 1,
    )


def gang_reclaimed(ledger: Ledger, fact: GangReclaimed) -> None:
    """What an idle gang holds is taken back."""
    state = ledger.jobs[fact.job]
    state.idle = replace(state.idle, reclaims=state.idle.reclaims + 1)


def job_extended(ledger: Ledger, fact: JobExtended) -> None:
    """A job has a lease until a moment, or for ever; it is warned anew before that ends."""
    state = ledger.jobs[fact.job]
    state.idle = replace(
        state.idle,
        extended_until=fact.until,
        exempt=fact.until is None,
        warned_at=None,
        reclaim_at=None,
        action="",
    )
