"""Applies facts about the end of an attempt or a job: the freed room, and the pending jobs that may use it.

A preemptor counts leaving gangs as gone, with their quota, from the moment they are told to leave. So when one has
left, no plan is possible that was not before, and `Ledger.holders_version` stays. Where all that it held is held for
claimants at once, nobody else fits either, and `free_version` stays; only claimants, and jobs that waited for its
quota, may start (`room_version` grows). So where 17 gangs are stopped for one, waiting jobs are tried again when the
first is told to leave, and not 17 times more.

Not so where queues own cells or nodes are kept as spares: there an end changes more than its own nodes. Nor where a
start is estimated, or a guarantee is claimed: a job within the guarantee that the gang used may then pass that start,
or take over that claim.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.core.ledger.apply.arrays import element_ended
from gantree.core.ledger.apply.foreign_holders import foreign_holders_first
from gantree.core.ledger.apply.members import forget_members
from gantree.core.ledger.apply.preempting_claims import end_count_if_not_for_others
from gantree.core.ledger.apply.services import replica_ended
from gantree.core.ledger.state import CLAIM, NOWHERE, JobState
from gantree.model.facts import AttemptEnded, JobEnded, JobRequeued
from gantree.model.phases import ENDED, FAILURES, Phase, StopCause
from gantree.model.placements import GpuChange, Placement
from gantree.topology.occupancy.node_room import NodeRoom

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def attempt_ended(ledger: Ledger, fact: AttemptEnded) -> None:
    """Nothing of an attempt is left."""
    state = ledger.jobs[fact.job]
    count_run(state, fact.at, fact.gpu_s_lost)
    assert state.placement is not None
    undone = state.placement.changes if fact.gpus_unchanged else ()
    _leaves(ledger, state, state.placement, fact.at, undone)
    state.exit_code = fact.exit_code
    state.gpu_s_lost += fact.gpu_s_lost
    state.running_at, state.slices = None, replace(state.slices, suspended=False)
    state.replica = state.replica.over()
    forget_members(ledger, state)


def count_run(state: JobState, at: float, gpu_s_lost: float) -> None:
    """Count what an attempt that ends was served, and what of its work is kept."""
    ran_s, gpus = state.ran_s(at), state.gpus
    state.attained_gpu_s += ran_s * gpus
    lost_s = gpu_s_lost / gpus if gpus else 0.0
    in_proportion = 1.0 if state.spec.alternatives else (gpus or 1) / (state.spec.gpus or 1)
    state.done_s += max(0.0, ran_s - lost_s) * in_proportion


def _leaves(
    ledger: Ledger,
    state: JobState,
    place: Placement,
    at: float,
    undone: tuple[GpuChange, ...],
) -> None:
    """Its room is free, for those who hold it otherwise and who have claimed it before anybody else."""
    was_to_come = state.leaving and state.moving is None and not ledger.is_entangled
    may_be_claimed = was_to_come and bool(ledger.claims)
    before = _room_on(ledger, place) if may_be_claimed else []
    ledger.rooms().give_back(state.job)
    ledger.rooms().undo(undone)
    ledger.accounts.stop(state, at)
    foreign_holders_first(ledger, place.nodes)
    if may_be_claimed:  # what is reserved some may use, and who was told a start
        ledger.hold(place.nodes, {CLAIM + job for job in ledger.claims})
    after = _room_on(ledger, place) if may_be_claimed else []
    ledger.hold(place.nodes)
    has_more = any(now.has_more_than(then) for now, then in zip(after, before, strict=True))
    to_come = not was_to_come or _may_be_due_now(ledger, state)
    ledger.more_room(is_free=has_more or not may_be_claimed, to_come=to_come)


def _may_be_due_now(ledger: Ledger, gone: JobState) -> bool:
    """Whether who waits may be owed what a gang of its queue used, and so have room that is kept for an estimate, or
    that another one claims as it is owed it.
    """
    accounts, jobs = ledger.accounts, ledger.jobs
    if not accounts.quota.usage.has_idle_guarantee(gone.queue):
        return False
    if any(not reservation.promised for reservation in ledger.reservations.values()):
        return True
    return any(accounts.claims_within_guarantee(jobs[job]) for job in ledger.claims)


def _room_on(ledger: Ledger, place: Placement) -> list[NodeRoom]:
    """What is free on the nodes of a place that may be used."""
    rooms = ledger.rooms()
    return [
        rooms.room_of_node(rooms.fabric.index_of_node[node])
        for node in place.nodes
        if rooms.usable(node)
    ]


def job_requeued(ledger: Ledger, fact: JobRequeued) -> None:
    """A job waits again."""
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.PENDING, fact.at)
    state.placement, state.at_home = None, False
    if fact.cause is StopCause.RESIZED:
        state.resized_at = fact.at
    if fact.cause is StopCause.CHECK_FAILED:
        state.failed_checks += 1
    state.not_before, state.failures = fact.not_before, fact.failures
    end_count_if_not_for_others(state, fact)
    if fact.not_before > fact.at:
        ledger.resting[fact.job] = fact.not_before
    if fact.cause in FAILURES:
        state.last_failure = state.reason or f"{fact.cause} (exit code {state.exit_code})"
    if fact.cause is not StopCause.CHECK_FAILED or not state.reason:  # it names who was at fault
        state.reason = f"requeued: {fact.cause}"


def job_ended(ledger: Ledger, fact: JobEnded) -> None:
    """A job will never run again."""
    assert fact.outcome in ENDED, f"{fact.job}: {fact.outcome} is no end"
    state = ledger.jobs[fact.job]
    ledger.move(state, fact.outcome, fact.at)
    state.ended_at, state.exit_code, state.reason = fact.at, fact.exit_code, fact.reason
    state.equivalence_class, state.position = None, NOWHERE
    ledger.ended.append(state)
    ledger.accounts.run_times.learn(state)
    if state.array:
        element_ended(ledger, state, fact.at)
    if state.spec.service is not None:
        replica_ended(ledger, state)
