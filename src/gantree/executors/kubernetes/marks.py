"""What gantree writes onto the pods that it binds, in the same request as the binding, and reads back after a restart.

So the API server itself says which attempt of which job a pod is a member of, and what the member was given.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gantree.model.orders import MemberLaunch, StartGang

JOB, ATTEMPT = "gantree.io/job", "gantree.io/attempt"
MEMBER, MEMBERS = "gantree.io/member", "gantree.io/members"
RANK, WORLD_SIZE = "gantree.io/rank", "gantree.io/world-size"
ROLE, GPUS, NICS, DOMAIN = (
    "gantree.io/role",
    "gantree.io/gpus",
    "gantree.io/nics",
    "gantree.io/domain",
)
FIRST_NODE = "gantree.io/master-node"


@dataclass(frozen=True, slots=True)
class Mark:
    """A pod as a member: of which attempt, its number among so many members, its first rank."""

    job: str
    attempt: int
    member: int
    members: int
    rank: int
    role: str


def marks_of(order: StartGang, launch: MemberLaunch) -> dict[str, str]:
    """The annotations of the pod of one member."""
    first = min(order.members, key=lambda each: each.node_rank)
    told = {
        JOB: order.job,
        ATTEMPT: str(order.attempt),
        MEMBER: str(launch.node_rank),
        MEMBERS: str(len(order.members)),
        RANK: str(launch.first_rank),
        WORLD_SIZE: str(order.world_size),
        ROLE: launch.role,
        FIRST_NODE: first.node,
    }
    if launch.gpus:
        told[GPUS] = ",".join(map(str, launch.gpus))
    if launch.nics:
        told[NICS] = ",".join(launch.nics)
    if order.domain is not None:
        told[DOMAIN] = f"{order.domain.tier}:{order.domain.name}"
    return told


def mark_of(annotations: Mapping[str, str]) -> Mark | None:
    """What a pod was bound as; None for one that gantree did not bind, or whose marks somebody has spoilt."""
    try:
        return Mark(
            annotations[JOB],
            int(annotations[ATTEMPT]),
            int(annotations[MEMBER]),
            int(annotations[MEMBERS]),
            int(annotations[RANK]),
            annotations.get(ROLE, "worker"),
        )
    except (KeyError, ValueError):
        return None
