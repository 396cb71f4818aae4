"""Facts as sentences: what a timeline says of each. One place for the words; a fact without a sentence is an error."""

from collections.abc import Callable
from typing import Any

from gantree.model.facts import (
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
    NodeCordoned,
    NodeHealthNoted,
    NodeLabelled,
    NodeMarked,
    NodeUncordoned,
    PolicyAdopted,
    PriorityChanged,
    ReservationDropped,
    ReservationMade,
    RoomClaimed,
    RoomOfOthers,
    StopDecided,
)
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.text.words import plural
from gantree.web.pages.formatting import span

NAMED = 3
"""So many other jobs are named in one sentence."""


def words(fact: Fact) -> str:
    """One sentence on a fact, without the job that it is about."""
    return _WORDS[type(fact)](fact)


def job_of_fact(fact: Fact) -> str | None:
    """The job that a fact is about; None where it is about no job."""
    return getattr(fact, "job", None)


def _names(jobs: tuple[str, ...]) -> str:
    more = len(jobs) - NAMED
    return ", ".join(jobs[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _place(placement: Placement) -> str:
    gpus = sum(len(each.gpus) + len(each.parts) for each in placement.members)
    domain = f"{placement.domain.tier} {placement.domain.name}".strip()
    return f"{plural(gpus, 'GPU')} on {plural(len(placement.nodes), 'node')} of {domain}"


def _accepted(fact: JobAccepted) -> str:
    asks = f"{plural(fact.spec.members, 'member')}, {plural(fact.spec.gpus, 'GPU')}"
    return f"Handed in to {fact.spec.queue} with priority {fact.priority}: {asks}."


def _placed(fact: GangPlaced) -> str:
    home = ", in a cell of its queue" if fact.at_home else ""
    if fact.found:
        return (
            f"Attempt {fact.attempt} was found running, and taken over: {_place(fact.placement)}."
        )
    return f"Attempt {fact.attempt} got {_place(fact.placement)}{home}."


def _claimed(fact: RoomClaimed) -> str:
    after = f" while {_names(fact.victims)} leave it" if fact.victims else ""
    return f"{_place(fact.placement)} is held for it{after}."


def _reserved(fact: ReservationMade) -> str:
    told = "Promised a start" if fact.promised else "Probably starts"
    after = f", after the end of {_names(fact.waits_for)}" if fact.waits_for else ""
    slips = f"; put off {plural(fact.slips, 'time')} so far" if fact.slips else ""
    return f"{told} in {span(max(0.0, fact.starts_at - fact.at))} on {_place(fact.placement)}{after}{slips}."


def _moving(fact: GangMoving) -> str:
    sake = f" for the sake of {fact.by}" if fact.by else f" from {fact.flees}" if fact.flees else ""
    return (
        f"Attempt {fact.attempt} goes on elsewhere ({fact.cause}){sake}: {_place(fact.placement)}."
    )


def _saving(fact: CheckpointRequested) -> str:
    left = span(max(0.0, fact.deadline_at - fact.at))
    return f"Attempt {fact.attempt} was asked to save within {left} ({fact.cause})."


def _warned(fact: GangWarned) -> str:
    left = span(max(0.0, fact.ends_at - fact.at))
    return f"Attempt {fact.attempt} gets {fact.signal}: its time limit ends in {left}."


def _stopping(fact: StopDecided) -> str:
    reason = f": {fact.reason}" if fact.reason else ""
    return f"Attempt {fact.attempt} is told to stop within {span(fact.grace_s)} ({fact.cause}){reason}."


def _attempt_ended(fact: AttemptEnded) -> str:
    lost = f"; {span(fact.gpu_s_lost)} of GPU time are lost" if fact.gpu_s_lost else ""
    return f"Attempt {fact.attempt} ended with exit code {fact.exit_code}{lost}."


def _requeued(fact: JobRequeued) -> str:
    rest = fact.not_before - fact.at
    later = f", not to start for {span(rest)}" if rest > 0 else ""
    failures = f"; failure {fact.failures}" if fact.failures else ""
    return f"Waits again ({fact.cause}){later}{failures}."


def _ended(fact: JobEnded) -> str:
    code = "" if fact.exit_code is None else f" with exit code {fact.exit_code}"
    reason = "" if fact.outcome is Phase.SUCCEEDED or not fact.reason else f": {fact.reason}"
    return f"Ended: {fact.outcome}{code}{reason}."


def _cordoned(fact: NodeCordoned) -> str:
    what = "is being drained" if fact.drain else "is cordoned"
    return f"Node {fact.node} {what}{f': {fact.reason}' if fact.reason else ''}."


def _health(fact: NodeHealthNoted) -> str:
    if not fact.reason:
        return f"Node {fact.node} is well, says {fact.source}."
    what = "is used although it is unwell" if fact.forgiven else "is unwell"
    return f"Node {fact.node} {what}: {fact.reason}, says {fact.source}."


def _missed(fact: MemberMissed) -> str:
    left = span(max(0.0, fact.deadline_at - fact.at))
    return f"Member {fact.member} is lost ({fact.reason}); the others stay while it is replaced, for {left} at most."


def _marked(fact: NodeMarked) -> str:
    what = "may be used again" if fact.usable else "may not be used"
    return f"Node {fact.node} {what}{f': {fact.reason}' if fact.reason else ''}."


def _others(fact: RoomOfOthers) -> str:
    nodes = ", ".join(member.node for member in fact.members)
    what = f"holds room on {nodes}" if nodes else "is gone"
    return f"{fact.holder}, which gantree did not start, {what}."


def _labelled(fact: NodeLabelled) -> str:
    what = (
        f"lost its label {fact.key}"
        if fact.value is None
        else f"is labelled {fact.key}={fact.value}"
    )
    return f"Node {fact.node} {what}."


def _adopted(fact: PolicyAdopted) -> str:
    by = f", from {fact.by}" if fact.by else ""
    return f"Version {fact.number} of the policy rules{by}."


_WORDS: dict[type[Fact], Callable[[Any], str]] = {
    FabricDefined: lambda fact: f"The cluster is {plural(len(fact.cluster.nodes), 'node')} now.",
    JobAccepted: _accepted,
    JobRejected: lambda fact: f"Rejected: {fact.reason}.",
    GangPlaced: _placed,
    GangRunning: lambda fact: f"All processes of attempt {fact.attempt} run.",
    RoomClaimed: _claimed,
    ClaimDropped: lambda fact: f"The room that was held for it is given up: {fact.reason}.",
    GangPreempted: lambda fact: f"Attempt {fact.attempt} leaves for {fact.by} ({fact.cause}).",
    GangMoving: _moving,
    GangAtHome: lambda fact: f"Attempt {fact.attempt} is in a cell of its queue where it stands.",
    JobHeld: lambda fact: "Held by hand.",
    JobReleased: lambda fact: "Released.",
    PriorityChanged: lambda fact: f"Its priority is {fact.priority} now.",
    JobReprioritised: lambda fact: f"Given the priority {fact.asked} by hand ({fact.priority}).",
    JobBarred: lambda fact: f"Where it may be has changed: {fact.reason or 'anywhere now'}.",
    JobScaled: lambda fact: f"To have {plural(fact.members, 'member')} from now on.",
    ReservationMade: _reserved,
    ReservationDropped: lambda fact: f"The start that it was told does not stand: {fact.reason}.",
    CellBound: lambda fact: f"A {fact.tier} cell of {fact.queue} is at {fact.domain}.",
    CellReleased: lambda fact: f"A {fact.tier} cell of {fact.queue} is nowhere.",
    GangSuspended: lambda fact: f"The turn of attempt {fact.attempt} on a shared GPU is over.",
    GangWarned: _warned,
    JobsForgotten: lambda fact: (
        f"{plural(len(fact.jobs) + len(fact.rejected), 'job')} that ended or were rejected long ago are history."
    ),
    GangResumed: lambda fact: f"The turn of attempt {fact.attempt} on a shared GPU has come.",
    CheckpointRequested: _saving,
    CheckpointRecorded: lambda fact: f"A checkpoint of step {fact.step} is durable.",
    StopDecided: _stopping,
    AttemptEnded: _attempt_ended,
    JobRequeued: _requeued,
    JobEnded: _ended,
    NodeMarked: _marked,
    MemberMissed: _missed,
    MemberReplaced: lambda fact: f"Member {fact.member} starts anew on {fact.place.node}.",
    MemberBack: lambda fact: f"Member {fact.member} runs again.",
    NodeCordoned: _cordoned,
    NodeHealthNoted: _health,
    NodeUncordoned: lambda fact: f"Node {fact.node} may be used again.",
    NodeLabelled: _labelled,
    RoomOfOthers: _others,
    PolicyAdopted: _adopted,
}
KINDS = frozenset(_WORDS)
"""Facts that have words."""
