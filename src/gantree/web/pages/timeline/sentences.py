"""Facts as sentences of a timeline. A fact without a sentence is an error."""

from collections.abc import Callable, Sequence
from typing import Any

from gantree.model.arrays import size_of
from gantree.model.budget_facts import BudgetNoted
from gantree.model.facts import (
    ArrayAccepted,
    ArrayEnded,
    ArrayHeld,
    ArrayReleased,
    ArrayReprioritised,
    AttemptEnded,
    CellBound,
    CellReleased,
    CheckpointRecorded,
    CheckpointRequested,
    ClaimDropped,
    FabricDefined,
    Fact,
    GangAtHome,
    GangMoving,
    GangPlaced,
    GangPreempted,
    GangResumed,
    GangRunning,
    GangSuspended,
    GangWarned,
    GpuUseNoted,
    GuaranteeKept,
    JobAccepted,
    JobBarred,
    JobEnded,
    JobHeld,
    JobRejected,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    JobScaled,
    JobsForgotten,
    MemberBack,
    MemberMissed,
    MemberReplaced,
    PolicyAdopted,
    PriorityChanged,
    RankSlownessNoted,
    ReservationDropped,
    ReservationMade,
    RoomClaimed,
    RoomOfOthers,
    StopDecided,
)
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.idle_facts import GangIdlenessNoted, GangIdleWarned, GangReclaimed, JobExtended
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.model.service_facts import (
    ReplicaDraining,
    ReplicaReadinessNoted,
    ServiceAccepted,
    ServiceEnded,
    ServiceEnding,
    ServiceRejected,
    ServiceScaled,
    ServiceUpdated,
)
from gantree.model.services import ANOTHER_CLIENT
from gantree.model.site_facts import (
    LinkHealthNoted,
    NodeCordoned,
    NodeHealthNoted,
    NodeLabelled,
    NodeMarked,
    NodeRepairNoted,
    NodeUncordoned,
)
from gantree.policy.budgets import noted_in_words
from gantree.policy.quota.admission import much
from gantree.text.words import plural
from gantree.web.pages.formatting import span

NAMED = 3
"""So many other jobs are named in one sentence."""


def words(fact: Fact) -> str:
    """One sentence on a fact, without the job that it is about."""
    return _WORDS[type(fact)](fact)


def job_of_fact(fact: Fact) -> str | None:
    """The job or array that a fact is about; None where it is about neither."""
    job: str | None = getattr(fact, "job", None) or getattr(fact, "array", None)
    return job


def _names(jobs: tuple[str, ...]) -> str:
    more = len(jobs) - NAMED
    return ", ".join(jobs[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _place(placement: Placement) -> str:
    gpus = sum(len(each.gpus) + len(each.parts) for each in placement.members)
    domain = f"{placement.domain.tier} {placement.domain.name}".strip()
    return f"{plural(gpus, 'GPU')} on {plural(len(placement.nodes), 'node')} of {domain}"


def _accepted(fact: JobAccepted) -> str:
    asks = f"{plural(fact.spec.members, 'member')}, {plural(fact.spec.gpus, 'GPU')}"
    return f"Submitted to {fact.spec.queue} with priority {fact.priority}: {asks}."


def _placed(fact: GangPlaced) -> str:
    home = ", in a cell of its queue" if fact.at_home else ""
    if fact.found:
        return f"Attempt {fact.attempt} was found running and adopted: {_place(fact.placement)}."
    return f"Attempt {fact.attempt} is placed on {_place(fact.placement)}{home}."


def _claimed(fact: RoomClaimed) -> str:
    after = f" while {_names(fact.victims)} stop there" if fact.victims else ""
    return f"Claims {_place(fact.placement)}{after}."


def _reserved(fact: ReservationMade) -> str:
    start = "Promised to start" if fact.promised else "Probably starts"
    after = f", after the end of {_names(fact.waits_for)}" if fact.waits_for else ""
    slips = f"; delayed {plural(fact.slips, 'time')} so far" if fact.slips else ""
    return f"{start} in {span(max(0.0, fact.starts_at - fact.at))} on {_place(fact.placement)}{after}{slips}."


def _moving(fact: GangMoving) -> str:
    sake = f" for {fact.by}" if fact.by else f" off {fact.flees}" if fact.flees else ""
    return f"Attempt {fact.attempt} moves ({fact.cause}){sake} to {_place(fact.placement)}."


def _saving(fact: CheckpointRequested) -> str:
    left = span(max(0.0, fact.deadline_at - fact.at))
    return f"Attempt {fact.attempt} must save a checkpoint within {left} ({fact.cause})."


def _hours(gangs: Sequence[MeasuredUse], what: str) -> str:
    """GPU-hours that gangs computed, or held without computing."""
    return f"{sum(getattr(used, f'{what}_gpu_s') for used in gangs) / 3600:,.1f} GPU-hours"


def _amounts(amounts: Sequence[tuple[str, float]]) -> str:
    """Amounts of resources: "8 GPUs, 64 CPUs"."""
    return ", ".join(much(resource, amount) for resource, amount in amounts)


def _warned(fact: GangWarned) -> str:
    left = span(max(0.0, fact.ends_at - fact.at))
    return f"Attempt {fact.attempt} gets {fact.signal}: its time limit ends in {left}."


def _idleness(fact: GangIdlenessNoted) -> str:
    if fact.since is None:
        return f"Attempt {fact.attempt} does not count as idle any more: {fact.reason}."
    return f"The GPUs of attempt {fact.attempt} have not computed for {span(fact.at - fact.since)}."


def _idle_warned(fact: GangIdleWarned) -> str:
    comes = (
        ""
        if fact.reclaim_at is None
        else f"; in {span(fact.reclaim_at - fact.at)} it is reclaimed ({fact.action})"
    )
    return f"Attempt {fact.attempt} is warned that it is idle{comes}."


def _extended(fact: JobExtended) -> str:
    if fact.until is None:
        return "An operator exempted it from being reclaimed as idle."
    return f"Its lease is extended: it is not reclaimed as idle for {span(max(0.0, fact.until - fact.at))}."


def _stopping(fact: StopDecided) -> str:
    reason = f": {fact.reason}" if fact.reason else ""
    return f"Attempt {fact.attempt} must stop within {span(fact.grace_s)} ({fact.cause}){reason}."


def _attempt_ended(fact: AttemptEnded) -> str:
    lost = f"; {span(fact.gpu_s_lost)} of GPU time lost" if fact.gpu_s_lost else ""
    return f"Attempt {fact.attempt} ended with exit code {fact.exit_code}{lost}."


def _requeued(fact: JobRequeued) -> str:
    rest = fact.not_before - fact.at
    later = f", with a backoff of {span(rest)}" if rest > 0 else ""
    failures = f"; failure {fact.failures}" if fact.failures else ""
    return f"Requeued ({fact.cause}){later}{failures}."


def _ended(fact: JobEnded) -> str:
    code = "" if fact.exit_code is None else f" with exit code {fact.exit_code}"
    reason = "" if fact.outcome is Phase.SUCCEEDED or not fact.reason else f": {fact.reason}"
    return f"Ended: {fact.outcome}{code}{reason}."


def _cordoned(fact: NodeCordoned) -> str:
    what = "is draining" if fact.drain else "is cordoned"
    return f"Node {fact.node} {what}{f': {fact.reason}' if fact.reason else ''}."


def _health(fact: NodeHealthNoted) -> str:
    if not fact.reason:
        return f"Node {fact.node} is healthy, as {fact.source} reports."
    stays = " but stays in use" if fact.forgiven or fact.kept else ""
    why = f" Kept in use: {fact.kept}." if fact.kept else ""
    return f"Node {fact.node} is unhealthy{stays}: {fact.reason}, as {fact.source} reports.{why}"


def _link_health(fact: LinkHealthNoted) -> str:
    if fact.health == 1.0 and fact.load == 0.0:
        return f"Link {fact.link} is whole, as {fact.source} reports."
    if fact.health == 1.0:
        what = "counts as idle; it is" if fact.forgiven else "is"
        return f"Link {fact.link} {what} {fact.load:.0%} busy, as {fact.source} reports."
    what = "counts as whole; it carries" if fact.forgiven else "carries"
    why = f" ({fact.reason})" if fact.reason else ""
    return f"Link {fact.link} {what} {fact.health:.0%} of its rate{why}, as {fact.source} reports."


def _slowness(fact: RankSlownessNoted) -> str:
    if fact.slowdown == 1.0:
        return f"Rank {fact.rank} on {fact.node} is as fast as its peers again."
    return (
        f"Rank {fact.rank} on {fact.node} makes each step take {fact.slowdown:.2f} times as long."
    )


def _repair(fact: NodeRepairNoted) -> str:
    step = f"{fact.steps[fact.step]}, {fact.step + 1} of {len(fact.steps)}" if fact.steps else ""
    why = f": {fact.reason}" if fact.reason else ""
    return f"The repair of node {fact.node} ({fact.sign}) {fact.state}, step {step}{why}."


def _missed(fact: MemberMissed) -> str:
    left = span(max(0.0, fact.deadline_at - fact.at))
    return f"Member {fact.member} is lost ({fact.reason}); the other members wait at most {left} for a replacement."


def _marked(fact: NodeMarked) -> str:
    what = "is usable again" if fact.usable else "is unusable"
    return f"Node {fact.node} {what}{f': {fact.reason}' if fact.reason else ''}."


def _others(fact: RoomOfOthers) -> str:
    nodes = ", ".join(member.node for member in fact.members)
    what = f"has resources on {nodes}" if nodes else "has ended"
    return f"{fact.holder}, which gantree did not start, {what}."


def _labelled(fact: NodeLabelled) -> str:
    what = (
        f"lost the label {fact.key}"
        if fact.value is None
        else f"has the label {fact.key}={fact.value}"
    )
    return f"Node {fact.node} {what}."


def _scaled(fact: ServiceScaled) -> str:
    who = "The autoscaler" if fact.automatic else "A user"
    if fact.reason == ANOTHER_CLIENT:
        who, why = "Another client of the API server", ""
    else:
        why = f": {fact.reason}" if fact.reason else ""
    return f"{who} scaled service {fact.service} from {fact.before} to {plural(fact.replicas, 'replica')}{why}."


def _readiness(fact: ReplicaReadinessNoted) -> str:
    why = f": {fact.reason}" if fact.reason else ""
    return f"Attempt {fact.attempt} is {'ready' if fact.ready else 'not ready'} for requests{why}."


def _draining(fact: ReplicaDraining) -> str:
    left = span(max(0.0, fact.ends_at - fact.at))
    return f"It gets no new requests and ends within {left}: {fact.reason}."


def _adopted(fact: PolicyAdopted) -> str:
    by = f", from {fact.by}" if fact.by else ""
    return f"Version {fact.number} of the policy is in force{by}."


_WORDS: dict[type[Fact], Callable[[Any], str]] = {
    FabricDefined: lambda fact: f"The cluster has {plural(len(fact.cluster.nodes), 'node')} now.",
    JobAccepted: _accepted,
    JobRejected: lambda fact: f"Rejected: {fact.reason}.",
    ArrayAccepted: lambda fact: (
        f"Array {fact.array} of {plural(size_of(fact.spec.array), 'job')} is submitted to {fact.spec.queue}."
    ),
    ArrayHeld: lambda fact: f"The jobs of array {fact.array} that wait are held by a user.",
    ArrayReleased: lambda fact: f"The jobs of array {fact.array} are released.",
    ArrayReprioritised: lambda fact: (
        f"A user set the priority of array {fact.array} to {fact.asked}."
    ),
    ArrayEnded: lambda fact: (
        f"The jobs of array {fact.array} that waited have {fact.outcome}: {fact.reason}."
    ),
    GangPlaced: _placed,
    GangRunning: lambda fact: f"All processes of attempt {fact.attempt} run.",
    RoomClaimed: _claimed,
    ClaimDropped: lambda fact: f"Its claim is dropped: {fact.reason}.",
    GangPreempted: lambda fact: (
        f"Attempt {fact.attempt} is preempted for {fact.by} ({fact.cause})."
    ),
    GangMoving: _moving,
    GangAtHome: lambda fact: (
        f"Attempt {fact.attempt} is now in a cell of its queue, without moving."
    ),
    JobHeld: lambda fact: f"Held: {fact.reason}." if fact.reason else "Held by a user.",
    JobReleased: lambda fact: "Released.",
    PriorityChanged: lambda fact: f"Its priority is {fact.priority} now.",
    JobReprioritised: lambda fact: f"A user set its priority to {fact.asked} ({fact.priority}).",
    JobBarred: lambda fact: f"Its allowed nodes have changed: {fact.reason or 'all nodes'}.",
    JobScaled: lambda fact: f"Scaled to {plural(fact.members, 'member')}.",
    ReservationMade: _reserved,
    ReservationDropped: lambda fact: f"Its reservation is dropped: {fact.reason}.",
    CellBound: lambda fact: f"A {fact.tier} cell of {fact.queue} is bound to {fact.domain}.",
    CellReleased: lambda fact: f"A {fact.tier} cell of {fact.queue} is not bound.",
    GangSuspended: lambda fact: (
        f"The time slice of attempt {fact.attempt} on a shared GPU has ended."
    ),
    GangWarned: _warned,
    GangIdlenessNoted: _idleness,
    GangIdleWarned: _idle_warned,
    GangReclaimed: lambda fact: (
        f"Attempt {fact.attempt}, idle for {span(fact.at - fact.since)}, is reclaimed ({fact.action})."
    ),
    JobExtended: _extended,
    GpuUseNoted: lambda fact: (
        f"Counters of GPUs: {_hours(fact.gangs, 'useful')} useful, {_hours(fact.gangs, 'idle')} idle of "
        f"{plural(len(fact.gangs), 'gang')}."
    ),
    JobsForgotten: lambda fact: (
        f"{plural(len(fact.jobs) + len(fact.rejected), 'job')} that ended or were rejected long ago are forgotten."
    ),
    GangResumed: lambda fact: f"The time slice of attempt {fact.attempt} on a shared GPU begins.",
    CheckpointRequested: _saving,
    CheckpointRecorded: lambda fact: f"A checkpoint of step {fact.step} is durable.",
    StopDecided: _stopping,
    AttemptEnded: _attempt_ended,
    JobRequeued: _requeued,
    JobEnded: _ended,
    NodeMarked: _marked,
    MemberMissed: _missed,
    RankSlownessNoted: _slowness,
    BudgetNoted: noted_in_words,
    GuaranteeKept: lambda fact: (
        f"Queue {fact.queue} keeps {_amounts(fact.keeps)} of its guarantee, by what it used of late; it lends the rest."
    ),
    MemberReplaced: lambda fact: f"Member {fact.member} restarts on {fact.place.node}.",
    MemberBack: lambda fact: f"Member {fact.member} runs again.",
    NodeCordoned: _cordoned,
    NodeHealthNoted: _health,
    LinkHealthNoted: _link_health,
    NodeRepairNoted: _repair,
    NodeUncordoned: lambda fact: f"Node {fact.node} is schedulable again.",
    NodeLabelled: _labelled,
    ServiceAccepted: lambda fact: (
        f"Service {fact.service} is submitted to {fact.spec.replica.queue}, with {plural(fact.replicas, 'replica')}."
    ),
    ServiceRejected: lambda fact: f"Service {fact.service} is rejected: {fact.reason}.",
    ServiceUpdated: lambda fact: (
        f"Service {fact.service} has a new description (revision {fact.revision})."
    ),
    ServiceScaled: _scaled,
    ServiceEnding: lambda fact: f"Service {fact.service} ends: {fact.reason}.",
    ServiceEnded: lambda fact: f"Service {fact.service} has ended: {fact.reason}.",
    ReplicaReadinessNoted: _readiness,
    ReplicaDraining: _draining,
    RoomOfOthers: _others,
    PolicyAdopted: _adopted,
}
KINDS = frozenset(_WORDS)
"""Facts that have words."""
