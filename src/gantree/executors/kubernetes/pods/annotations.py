"""Annotations that gantree writes on pods with the binding, and reads back after a restart.

So the API server itself says which attempt of which job a pod is a member of, and what the member was given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gantree.model.orders import MemberLaunch, StartGang

JOB, ATTEMPT = "gantree.io/job", "gantree.io/attempt"
MEMBER, MEMBERS = "gantree.io/member", "gantree.io/members"
LIFE = "gantree.io/life"
"""How often the member was replaced; a pod without it was there from the start."""
RANK, WORLD_SIZE = "gantree.io/rank", "gantree.io/world-size"
ROLE, GPUS, NICS, DOMAIN = (
    "gantree.io/role",
    "gantree.io/gpus",
    "gantree.io/nics",
    "gantree.io/domain",
)
FIRST_NODE = "gantree.io/master-node"
NEIGHBOURS = "gantree.io/neighbours"
"""Of a gang of several: the nodes of the member before it and of the one after it, where rings and pipelines send."""

REPORT_URL, REPORT_TOKEN = "gantree.io/report-url", "gantree.io/report-token"
"""Where the ranks of the pod report progress and own times, and the token that lets them do that alone."""
PARALLELISM = "gantree.io/parallelism"
"""Written by users: tensor=8,data=4,pipeline=2 in the order in which ranks count, the fastest axis first."""


@dataclass(frozen=True, slots=True)
class MemberAnnotation:
    """A pod as a member: of which attempt, its number among so many members, its first rank, its life."""

    job: str
    attempt: int
    member: int
    members: int
    rank: int
    role: str
    life: int = 0


def start_annotations(order: StartGang) -> Iterator[tuple[MemberLaunch, dict[str, str]]]:
    """The members of a gang by their numbers, each with the annotations of its pod."""
    members = sorted(order.members, key=lambda each: each.node_rank)
    of_all = {
        JOB: order.job,
        ATTEMPT: str(order.attempt),
        MEMBERS: str(len(members)),
        WORLD_SIZE: str(order.world_size),
        FIRST_NODE: members[0].node,
    }
    if order.domain is not None:
        of_all[DOMAIN] = f"{order.domain.tier}:{order.domain.name}"
    for number, launch in enumerate(members):
        told = {
            **of_all,
            MEMBER: str(launch.node_rank),
            RANK: str(launch.first_rank),
            ROLE: launch.role,
        }
        if len(members) > 1:
            after = members[(number + 1) % len(members)]
            told[NEIGHBOURS] = f"{members[number - 1].node},{after.node}"
        if launch.gpus:
            told[GPUS] = ",".join(map(str, launch.gpus))
        if launch.nics:
            told[NICS] = ",".join(launch.nics)
        yield launch, told


def member_annotation(annotations: Mapping[str, str]) -> MemberAnnotation | None:
    """What a pod was bound as; None for one that gantree did not bind, or with invalid annotations."""
    try:
        return MemberAnnotation(
            annotations[JOB],
            int(annotations[ATTEMPT]),
            int(annotations[MEMBER]),
            int(annotations[MEMBERS]),
            int(annotations[RANK]),
            annotations.get(ROLE, "worker"),
            int(annotations.get(LIFE, "0")),
        )
    except (KeyError, ValueError):
        return None
