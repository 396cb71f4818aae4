"""Applies facts about single members of a running gang: lost, placed again, running again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.core.ledger.apply.foreign_holders import foreign_holders_first
from gantree.core.ledger.apply.held_room import take_place
from gantree.core.ledger.job_parts import SlowRank
from gantree.core.ledger.site import WORSE_BY
from gantree.core.ledger.state import Gap, JobState
from gantree.model.facts import MemberBack, MemberMissed, MemberReplaced, RankSlownessNoted
from gantree.placement.resize.replaced import with_member

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def member_missed(ledger: Ledger, fact: MemberMissed) -> None:
    """A gang goes on without one of its members for a while; its place stays its own, and it is not idle."""
    state = ledger.jobs[fact.job]
    state.idle = state.idle.over()
    ledger.accounts.note_idle(state, fact.at)
    _with_gap(ledger, state, Gap(fact.member, fact.deadline_at, fact.reason))
    if fact.blamed:
        state.failures += 1


def member_replaced(ledger: Ledger, fact: MemberReplaced) -> None:
    """A member that is missing has another place, or its old one again; what it held before is free."""
    state = ledger.jobs[fact.job]
    before = state.placement
    assert before is not None, f"{fact.job} holds no place"
    after = replace(with_member(before, fact.place), domain=fact.domain)
    ledger.rooms().give_back(fact.job)
    take_place(ledger, fact.job, after)
    state.placement = after
    state.lives = (*(each for each in state.lives if each[0] != fact.member), (fact.member, fact.life))  # fmt: skip
    gap = state.gap(fact.member)
    assert gap is not None, f"member {fact.member} of {fact.job} is not missing"
    _with_gap(ledger, state, replace(gap, placed=True))
    left = before.nodes.keys() - after.nodes.keys()
    foreign_holders_first(ledger, before.nodes)
    ledger.hold(before.nodes)
    ledger.placings += 1
    if left:
        ledger.more_room()


def member_back(ledger: Ledger, fact: MemberBack) -> None:
    """A member runs again in its new place."""
    state = ledger.jobs[fact.job]
    state.missing = tuple(gap for gap in state.missing if gap.member != fact.member)
    if not state.missing:
        ledger.gapped.pop(fact.job, None)


def rank_slowness_noted(ledger: Ledger, fact: RankSlownessNoted) -> None:
    """A rank slows its gang by another factor; one that gets clearly worse is a new fault."""
    state = ledger.jobs[fact.job]
    before = next((each for each in state.slow if each.rank == fact.rank), None)
    state.slow = tuple(each for each in state.slow if each is not before)
    if fact.slowdown > 1.0:
        since = fact.at if before is None else _since(before, fact)
        state.slow = (*state.slow, SlowRank(fact.rank, fact.node, fact.slowdown, since))
    if state.slow:
        ledger.slowed[fact.job] = state
    else:
        ledger.slowed.pop(fact.job, None)


def _since(before: SlowRank, fact: RankSlownessNoted) -> float:
    """Since when a rank is as slow as is said now, where it is."""
    is_new = before.node != fact.node or fact.slowdown >= before.slowdown + WORSE_BY
    return fact.at if is_new else before.since


def forget_members(ledger: Ledger, state: JobState) -> None:
    """An attempt is over, and with it who of it was missing, or slow."""
    state.missing, state.lives, state.slow = (), (), ()
    ledger.gapped.pop(state.job, None)
    ledger.slowed.pop(state.job, None)


def _with_gap(ledger: Ledger, state: JobState, gap: Gap) -> None:
    others = tuple(each for each in state.missing if each.member != gap.member)
    state.missing = (*others, gap)
    ledger.gapped[state.job] = state
