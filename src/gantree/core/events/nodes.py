"""Handles events about the cluster, its nodes and links: observed, lost, returned, cordoned, unhealthy, labelled.

A node that is *lost* takes what ran there with it. One that is *cordoned* does not: what runs there stays, and nothing
new starts there, not even a gang that stood there before; where it is to be *drained*, `core.cycle.drain` sends them
away. One that is *unwell* is cordoned by whoever watches it, until he says that it is well or an operator uncordons it;
unless its watcher keeps it in use, which is on record too. A gang there that holds a *lost* GPU cannot save: it is
stopped at once, or goes on without the members that hold one, and starts again from its last checkpoint.
"""

from collections.abc import Callable, Sequence
from typing import Any

from gantree.core.events.operator_requests import withdraw
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.lost_gpus import members_on_lost_gpus
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import end_job, stop, unreadable
from gantree.core.lifecycle.replacing import can_live_without, members_at, members_on, miss
from gantree.model.cluster import LinkId
from gantree.model.events import (
    NODE_CONDITIONS,
    ClusterObserved,
    CordonRequested,
    Event,
    HealthObserved,
    LabelRequested,
    LinkHealthObserved,
    LinkRestoreRequested,
    NodeLost,
    NodeReturned,
    OthersHold,
    RepairObserved,
    UncordonRequested,
)
from gantree.model.facts import ClaimDropped, FabricDefined, ReservationDropped, RoomOfOthers
from gantree.model.phases import Phase, StopCause
from gantree.model.repairs import RepairState
from gantree.model.site_facts import (
    LinkHealthNoted,
    NodeCordoned,
    NodeHealthNoted,
    NodeLabelled,
    NodeMarked,
    NodeRepairNoted,
    NodeUncordoned,
)
from gantree.policy.rules import Policy
from gantree.topology.fabric.conditions import has_link

REPAIR = "repair"
"""The source of the report that keeps a node out while it is repaired."""
LEVEL_TRIGGERED = frozenset({NODE_CONDITIONS})
"""Sources that withdraw a fault once it is over. Others, as an exporter with its last XID, go on reporting it."""
LOST_GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL for a gang that holds a lost GPU: its processes have nothing to save."""


def _cluster_observed(builder: DecisionBuilder, event: ClusterObserved, policy: Policy) -> None:
    if builder.ledger.site.described == event.cluster:
        return
    for job in list(builder.ledger.claims):
        builder.record(ClaimDropped(at=builder.now, job=job, reason="the cluster has changed"))
    for job in list(builder.ledger.reservations):
        builder.record(
            ReservationDropped(at=builder.now, job=job, reason="the cluster has changed")
        )
    builder.record(FabricDefined(at=builder.now, cluster=event.cluster))
    for state in builder.ledger.in_arrival_order():
        if state.phase is Phase.PENDING and (problem := unreadable(builder, state.spec)):
            end_job(builder, state, Phase.FAILED, None, f"the cluster has changed: {problem}")


def _node_lost(builder: DecisionBuilder, event: NodeLost, policy: Policy) -> None:
    if event.node in builder.ledger.unusable or not known(builder.ledger, event.node):
        return
    builder.record(NodeMarked(at=builder.now, node=event.node, usable=False, reason=event.reason))
    for state in list(builder.ledger.holding.values()):
        assert state.placement is not None
        there = any(member.node == event.node for member in state.placement.members)
        if there and state.phase is not Phase.STOPPING:
            lost = members_on(state, event.node)
            _lose(builder, state, lost, policy, f"node {event.node} was lost")


def _lose(
    builder: DecisionBuilder, state: JobState, lost: Sequence[int], policy: Policy, reason: str,
    grace_s: float | None = None,
) -> None:  # fmt: skip
    """A gang goes on without these of its members, if it can. grace_s as in `lifecycle.stop`."""
    if all(can_live_without(state, member, StopCause.MEMBER_LOST) for member in lost):
        for member in lost:
            miss(builder, state, member, StopCause.MEMBER_LOST, reason)
    else:
        stop(builder, state, StopCause.MEMBER_LOST, policy, reason, grace_s)


def _node_returned(builder: DecisionBuilder, event: NodeReturned, policy: Policy) -> None:
    if event.node in builder.ledger.unusable and known(builder.ledger, event.node):
        builder.record(NodeMarked(at=builder.now, node=event.node, usable=True))


def known(ledger: Ledger, node: str) -> bool:
    """Whether the cluster has a node of this name."""
    return ledger.fabric is not None and node in ledger.fabric.index_of_node


def _cordon_requested(builder: DecisionBuilder, event: CordonRequested, policy: Policy) -> None:
    """What was promised there is promised no more; to say the same again changes nothing."""
    if not known(builder.ledger, event.node):
        return
    before = builder.ledger.site.asked.get(event.node)
    asked = (event.reason, event.drain, event.deadline_at)
    if before is not None and (before.reason, before.drain, before.deadline_at) == asked:
        return
    for job in _promised_on(builder.ledger, event.node):
        withdraw(builder, job, f"node {event.node} is cordoned")
    builder.record(
        NodeCordoned(
            at=builder.now,
            node=event.node,
            reason=event.reason,
            drain=event.drain,
            deadline_at=event.deadline_at,
        )
    )


def _promised_on(ledger: Ledger, node: str) -> list[str]:
    """Jobs for which room on a node is held."""
    claimed = [job for job, claim in ledger.claims.items() if node in claim.placement.nodes]
    reserved_for = [
        job
        for job, reservation in ledger.reservations.items()
        if node in reservation.placement.nodes
    ]
    return list(dict.fromkeys((*claimed, *reserved_for)))


def _uncordon_requested(builder: DecisionBuilder, event: UncordonRequested, policy: Policy) -> None:
    site = builder.ledger.site
    if event.node in site.asked:
        builder.record(NodeUncordoned(at=builder.now, node=event.node))
    if event.forgives:
        _forgive(builder, event.node)


def _forgive(builder: DecisionBuilder, node: str, all_but: frozenset[str] = frozenset()) -> None:
    """What sources reported of a node counts no longer, until they report something else."""
    for source, illness in list(builder.ledger.site.unwell.get(node, {}).items()):
        if not illness.forgiven and source not in all_but:
            builder.record(
                NodeHealthNoted(
                    at=builder.now,
                    node=node,
                    source=source,
                    reason=illness.reason,
                    forgiven=True,
                )
            )


def _health_observed(builder: DecisionBuilder, event: HealthObserved, policy: Policy) -> None:
    """What was promised on a node that is unwell is promised no more; to say the same again changes nothing."""
    ledger, node = builder.ledger, event.node
    before = ledger.site.unwell.get(node, {}).get(event.source)
    told = ("", "", None) if before is None else (before.reason, before.kept, before.lost_gpus)
    is_forgiven = before is not None and before.forgiven and event.reason == before.reason
    if is_forgiven or (event.reason, event.kept, event.lost_gpus) == told:
        return
    if event.reason and not known(ledger, node):
        return
    for job in _promised_on(ledger, node) if event.reason and not event.kept else ():
        withdraw(builder, job, f"node {node} is unwell")
    builder.record(
        NodeHealthNoted(
            at=builder.now,
            node=node,
            source=event.source,
            reason=event.reason,
            kept=event.kept,
            lost_gpus=event.lost_gpus,
        )
    )
    if event.lost_gpus is not None:
        _leave_lost_gpus(builder, node, event.reason, policy)


def _leave_lost_gpus(builder: DecisionBuilder, node: str, wrong: str, policy: Policy) -> None:
    """Gangs that hold a lost GPU of a node lose the members there; to save would only take time."""
    for state in list(builder.ledger.holding.values()):
        assert state.placement is not None
        places = members_on_lost_gpus(builder.ledger, state.placement)
        if state.phase is Phase.STOPPING or all(each.node != node for each in places):
            continue
        there = {(each.role, each.rank) for each in places if each.node == node}
        lost = members_at(state, there)
        if lost:
            _lose(builder, state, lost, policy, f"node {node}: {wrong}", LOST_GRACE_S)


def _link_health_observed(
    builder: DecisionBuilder, event: LinkHealthObserved, policy: Policy
) -> None:
    """To say the same again changes nothing, nor does a report of what is not there, or of no share."""
    ledger = builder.ledger
    if ledger.fabric is None or not has_link(ledger.fabric, event.link):
        return
    before = ledger.site.links.get(event.link, {}).get(event.source)
    was = (1.0, "", 0.0) if before is None else (before.health, before.reason, before.load)
    says_something = event.health < 1.0 or event.load > 0.0
    reported = (event.health, event.reason, event.load) if says_something else (1.0, "", 0.0)
    if reported == was or not (0.0 <= event.health <= 1.0 and 0.0 <= event.load <= 1.0):
        return
    _note_link(builder, event.link, event.source, *reported)


def _link_restore_requested(
    builder: DecisionBuilder, event: LinkRestoreRequested, policy: Policy
) -> None:
    for source, sign in list(builder.ledger.site.links.get(event.link, {}).items()):
        if not sign.forgiven:
            said = sign.health, sign.reason, sign.load
            _note_link(builder, event.link, source, *said, forgiven=True)


def _note_link(
    builder: DecisionBuilder,
    link: LinkId,
    source: str,
    health: float,
    reason: str,
    load: float,
    *,
    forgiven: bool = False,
) -> None:
    builder.record(
        LinkHealthNoted(
            at=builder.now,
            link=link,
            source=source,
            health=health,
            reason=reason,
            forgiven=forgiven,
            load=load,
        )
    )


def _repair_observed(builder: DecisionBuilder, event: RepairObserved, policy: Policy) -> None:
    """A repair keeps its node out until it succeeds; then the node is used again, unless an operator cordoned it.

    A source may find the node healthy meanwhile, or report the fault as long as it shows: neither counts. Only what a
    level-triggered source still reports after the last step keeps the node out.
    """
    site, node = builder.ledger.site, event.node
    before = site.repairs.get(node)
    told = (event.state, event.sign, event.steps, event.step, event.reason)
    if before is not None and told == (
        before.state, before.sign, before.steps, before.step, before.reason
    ):  # fmt: skip
        return
    builder.record(
        NodeRepairNoted(
            at=builder.now,
            node=node,
            state=event.state,
            sign=event.sign,
            steps=event.steps,
            step=event.step,
            reason=event.reason,
        )
    )
    if event.state is RepairState.RUNNING and (before is None or before.state is not event.state):
        _note_repair(builder, node, event.sign)
    if event.state is RepairState.SUCCEEDED:
        _note_repair(builder, node, "")
        _forgive(builder, node, all_but=LEVEL_TRIGGERED)


def _note_repair(builder: DecisionBuilder, node: str, reason: str) -> None:
    builder.record(NodeHealthNoted(at=builder.now, node=node, source=REPAIR, reason=reason))


def _label_requested(builder: DecisionBuilder, event: LabelRequested, policy: Policy) -> None:
    """What was promised on the node to who asks for labels is promised no more."""
    ledger = builder.ledger
    if ledger.fabric is None or not known(ledger, event.node):
        return
    now = dict(ledger.fabric.nodes[ledger.fabric.index_of_node[event.node]].labels)
    changed = [(key, value) for key, value in event.labels if now.get(key) != value]
    for job in _promised_on(ledger, event.node) if changed else ():
        if any(role.shape.labels for role in ledger.jobs[job].spec.roles):
            withdraw(builder, job, f"the labels of node {event.node} have changed")
    for key, value in changed:
        builder.record(NodeLabelled(at=builder.now, node=event.node, key=key, value=value))


def _others_hold(builder: DecisionBuilder, event: OthersHold, policy: Policy) -> None:
    """Nobody is asked: they hold it already."""
    if builder.ledger.site.others.get(event.holder, ()) != event.members:
        builder.record(RoomOfOthers(at=builder.now, holder=event.holder, members=event.members))


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    ClusterObserved: _cluster_observed,
    NodeLost: _node_lost,
    NodeReturned: _node_returned,
    CordonRequested: _cordon_requested,
    UncordonRequested: _uncordon_requested,
    LabelRequested: _label_requested,
    HealthObserved: _health_observed,
    LinkHealthObserved: _link_health_observed,
    LinkRestoreRequested: _link_restore_requested,
    RepairObserved: _repair_observed,
    OthersHold: _others_hold,
}
