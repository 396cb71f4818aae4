"""Replaces one member of a running gang while the others keep running, if the job supports that.

A gang starts whole or not at all, and as a rule it ends when one of its members does. A job may say that its members
find each other again (`Restarts.replace_s`: torchrun's elastic agents, for one). Then

    a member is lost              the others stay where they are and keep their room (`MemberMissed`)
    there is a place for it       it is told to start there (`MemberReplaced`, the order `ReplaceMember`)
    it runs again                 the gang is whole (`MemberBack`)
    the deadline has come before  the whole gang is stopped, and starts anew as ever

The deadline is set by the first loss and not moved by further ones: no gang is partial for longer. A member that ends
with an error counts as a failure of the job, one that is lost does not, as with restarts of all
(`core.lifecycle.lifecycle`).

The first member is never replaced: the others know where it was, and meet there. Neither is one of a gang that was
asked to save, is suspended, moves, or is at home in cells of its queue. What stays behind of an earlier life of a
member is told by sources late: each life has a number, and words about another one than the last are passed over.

Nobody is preempted for a replacement; what is free, nodes that are held back as spares included, it gets before
everybody who waits. What was found to have no place is asked again when room or nodes have changed.
"""

from collections.abc import Collection

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import Gap, JobState
from gantree.core.lifecycle.launch import replace_order, start_order
from gantree.core.queue.job_variants import running_variant
from gantree.model.events import MemberStarted
from gantree.model.facts import MemberBack, MemberMissed, MemberReplaced
from gantree.model.orders import MemberLaunch
from gantree.model.phases import Phase, StopCause
from gantree.model.placements import MemberPlacement
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.placement.resize.replaced import domain_of, replaced, with_member
from gantree.policy.rules import Policy


def replace_missing(builder: DecisionBuilder, preferences: PlacementPreferences) -> None:
    """Replace the missing members for which there is a place."""
    for state in list(builder.ledger.gapped.values()):
        for gap in state.missing if state.phase is Phase.RUNNING else ():
            if not gap.placed:
                _replace(builder, state, gap, preferences)


def _replace(
    builder: DecisionBuilder, state: JobState, gap: Gap, preferences: PlacementPreferences
) -> None:
    ledger = builder.ledger
    place = _place_for(ledger, state, gap, preferences)
    if place is None:
        return
    assert ledger.fabric is not None and state.placement is not None
    builder.record(
        MemberReplaced(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            member=gap.member,
            life=state.life_of(gap.member) + 1,
            place=place,
            domain=domain_of(ledger.fabric, state.placement, place),
        )
    )
    builder.order(replace_order(state, gap.member))


def _place_for(
    ledger: Ledger, state: JobState, gap: Gap, preferences: PlacementPreferences
) -> MemberPlacement | None:
    """Where a missing member goes; only where the gang then counts for as much in its queue as before."""
    assert state.placement is not None
    launch = launch_of(state, gap.member)
    before = next(
        each
        for each in state.placement.members
        if (each.role, each.rank) == (launch.role, launch.rank)
    )
    place = replaced(ledger.rooms(), state.job, running_variant(ledger, state), before, preferences)
    if place is None:
        return None
    held = ledger.accounts.amounts.held
    is_as_much = held(with_member(state.placement, place)) == held(state.placement)
    return place if is_as_much else None


def launch_of(state: JobState, member: int) -> MemberLaunch:
    """How a member, by its number in the gang, is started where it is now."""
    return next(each for each in start_order(state).members if each.node_rank == member)


def member_of_rank(state: JobState, rank: int) -> int | None:
    """The number in the gang of the member that has a global rank."""
    launches = start_order(state).members
    return next((each.node_rank for each in launches if rank in each.rank_of_process), None)


def members_on(state: JobState, node: str) -> list[int]:
    """The members that are on a node, and are not missing there already."""
    there = {(each.role, each.rank) for each in start_order(state).members if each.node == node}
    return members_at(state, there)


def members_at(state: JobState, places: Collection[tuple[str, int]]) -> list[int]:
    """The numbers in the gang of these members, each (role, number in the role), that are not missing already."""
    gaps = {gap.member for gap in state.missing if not gap.placed}
    launches = start_order(state).members
    return [
        each.node_rank
        for each in launches
        if (each.role, each.rank) in places and each.node_rank not in gaps
    ]


def can_live_without(state: JobState, member: int | None, cause: StopCause) -> bool:
    """Whether the others of a gang may stay while this one is replaced."""
    restarts = state.spec.restarts
    if restarts.replace_s is None or not member:
        return False
    if state.phase is not Phase.RUNNING or state.suspended or state.at_home:
        return False
    is_failure = cause is StopCause.RANK_FAILED
    return state.moving is None and not (is_failure and state.failures >= restarts.limit)


def miss(
    builder: DecisionBuilder, state: JobState, member: int, cause: StopCause, reason: str
) -> None:
    """A member is lost, and the others stay."""
    gap, replace_s = state.gap(member), state.spec.restarts.replace_s
    assert replace_s is not None, f"{state.job} cannot live without one of its members"
    if gap is not None and not gap.placed:
        return
    first_at = min((each.deadline_at for each in state.missing), default=builder.now + replace_s)
    builder.record(
        MemberMissed(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            member=member,
            deadline_at=first_at,
            reason=reason,
            blamed=cause is StopCause.RANK_FAILED,
        )
    )


def member_started(builder: DecisionBuilder, event: MemberStarted, policy: Policy) -> None:
    """A member that was missing runs again, if it is its last life that does."""
    state = builder.ledger.jobs.get(event.job)
    if state is None or state.attempt != event.attempt:
        return
    gap = state.gap(event.member)
    if gap is not None and gap.placed and event.life == state.life_of(event.member):
        builder.record(
            MemberBack(at=builder.now, job=state.job, attempt=state.attempt, member=event.member)
        )


def missing_in_words(state: JobState) -> str:
    """A further sentence on a gang of which members are missing; "" for others."""
    if not state.missing or state.phase is not Phase.RUNNING:
        return ""
    told = "; ".join(
        f"member {gap.member} ({gap.reason}) {'starts anew' if gap.placed else 'has no place yet'}"
        for gap in state.missing
    )
    return f" Being replaced: {told}; where that takes too long all start anew."
