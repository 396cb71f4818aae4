"""All kinds of facts by name, and how facts of older versions are read."""

from collections.abc import Callable
from typing import Any

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
from gantree.model.idle_facts import GangIdlenessNoted, GangIdleWarned, GangReclaimed, JobExtended
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
from gantree.model.site_facts import (
    LinkHealthNoted,
    NodeCordoned,
    NodeHealthNoted,
    NodeLabelled,
    NodeMarked,
    NodeRepairNoted,
    NodeUncordoned,
)

FACTS: dict[str, type[Fact]] = {
    kind.__name__: kind
    for kind in (
        FabricDefined, JobAccepted, JobRejected, GangPlaced, GangRunning, RoomClaimed, ClaimDropped, GangPreempted,
        CheckpointRequested, CheckpointRecorded, StopDecided, AttemptEnded, JobRequeued, JobEnded, NodeMarked,
        GangMoving, GangAtHome, JobHeld, JobReleased, PriorityChanged, ReservationMade, ReservationDropped,
        CellBound, CellReleased, GangSuspended, GangResumed,
        JobReprioritised, JobScaled, JobBarred, NodeCordoned, NodeUncordoned, NodeLabelled, PolicyAdopted, GangWarned,
        JobsForgotten, RoomOfOthers, NodeHealthNoted, LinkHealthNoted, GpuUseNoted, NodeRepairNoted,
        ArrayAccepted, ArrayHeld, ArrayReleased, ArrayReprioritised, ArrayEnded,
        MemberMissed, MemberReplaced, MemberBack, RankSlownessNoted, BudgetNoted,
        GangIdlenessNoted, GangIdleWarned, GangReclaimed, JobExtended, GuaranteeKept,
        ServiceAccepted, ServiceRejected, ServiceUpdated, ServiceScaled, ServiceEnding, ServiceEnded,
        ReplicaReadinessNoted, ReplicaDraining,
    )
}  # fmt: skip


def _without_cut_short(data: dict[str, Any]) -> dict[str, Any]:
    """Version 1 counted the attempts of the job that preemption cut short, for a back-off of preempted jobs."""
    return {name: value for name, value in data.items() if not name.startswith("cut_short")}


UPCASTERS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {
    ("JobRequeued", 1): _without_cut_short,
}
"""(kind, old version) -> function from plain data of that version to plain data of the next."""
