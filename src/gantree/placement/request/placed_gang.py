"""A placed gang that is resized in place: shared input of growing and shrinking, and the numbering of members.

Gangs of one role only, and no slices of tori, which are atomic. How members are added is in `placement.resize.grown`,
which ones leave in `placement.resize.shrunk`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import Job
from gantree.model.placements import GpuChange, MemberPlacement, Placement
from gantree.placement.request.preferred_topology import requests_by_strictness
from gantree.placement.request.sizes import resized
from gantree.placement.request.topology_request import RoleRequest, TopologyRequest
from gantree.text.words import plural
from gantree.topology.cost.cost import predict
from gantree.topology.fabric.fabric import Fabric

OfNode = Mapping[int, Sequence[MemberPlacement]]
"""Members by node, by index."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacedGang:
    """A gang and its placement: its members by node, in rank order; members_in[tier][domain], where there are some."""

    fabric: Fabric
    job: Job
    placement: Placement
    of_node: OfNode
    members_in: tuple[Mapping[int, int], ...]

    @classmethod
    def of(cls, fabric: Fabric, job: Job, placement: Placement) -> Self:
        """Raises Unsupported for a gang of several roles and for a slice of a torus."""
        if len(job.roles) != 1:
            raise Unsupported(
                f"job {job.name}: a gang of {len(job.roles)} roles cannot be resized by this version; "
                f"place it anew, or make the elastic role a job of its own"
            )
        if job.topology.box is not None:
            raise Unsupported(
                f"job {job.name}: topology.box: a slice of a torus has one size while it is held; place it anew"
            )
        of_node: dict[int, list[MemberPlacement]] = {}
        for member in sorted(placement.members, key=lambda member: member.rank):
            of_node.setdefault(fabric.index_of_node[member.node], []).append(member)
        members_in: list[dict[int, int]] = []
        for domain_of_node in fabric.domain_of_node:
            counts: dict[int, int] = {}
            for node, members in of_node.items():
                domain = int(domain_of_node[node])
                counts[domain] = counts.get(domain, 0) + len(members)
            members_in.append(counts)
        return cls(fabric, job, placement, of_node, tuple(members_in))

    @property
    def size(self) -> int:
        """Members that it has."""
        return len(self.placement.members)

    def resized_job(self, members: int) -> Job:
        """The job of another size. Raises BadInput for sizes that it may not have."""
        elastic, name = self.job.elastic, self.job.name
        if elastic is not None and not elastic.min <= members <= elastic.max:
            allowed = f"{elastic.min} to {elastic.max}, as elastic says"
            raise BadInput(f"job {name}: {plural(members, 'member')}; allowed: {allowed}")
        return resized(self.job, members)

    def requests_at(self, asked: Job) -> Iterator[TopologyRequest]:
        """Requests of the job at another size that hold for the gang as it is placed, the strictest first.

        Raises BadInput if the requirements can never hold at that size.
        """
        *stricter, plain = requests_by_strictness(self.fabric, asked)
        if plain.contradiction:
            raise BadInput(
                f"job {asked.name}: {plural(asked.members, 'member')}: {plain.contradiction}"
            )
        yield from (request for request in (*stricter, plain) if self._keeps(request))

    def _keeps(self, request: TopologyRequest) -> bool:
        role = request.roles[0]
        if len(self.members_in[whole_at(request)]) > 1:
            return False
        return not any(
            count % multiple or count > most
            for counts, multiple, most in zip(
                self.members_in, role.multiple_in_domain, role.most_in_domain, strict=True
            )
            for count in counts.values()
        )

    def with_members(
        self, asked: Job, of_node: OfNode, changes: tuple[GpuChange, ...] = (), fetch_s: float = 0.0
    ) -> Placement:
        """The gang with these members, numbered anew in topology order."""
        fabric, nodes = self.fabric, sorted(of_node)
        in_order = [member for node in nodes for member in of_node[node]]
        members = tuple(replace(member, rank=rank) for rank, member in enumerate(in_order))
        domain = fabric.domain(*fabric.narrowest_domain(nodes))
        return Placement(members, domain, predict(fabric, members, asked), changes, fetch_s)


def whole_at(request: TopologyRequest) -> int:
    """The tier of which one domain must hold the only role, 0 for none."""
    return max(request.whole_at, request.roles[0].whole_at)


def units_of(role: RoleRequest) -> tuple[int, tuple[int, ...]]:
    """(members that only come together on a node, by tier what their number in a domain is divisible by)."""
    unit = role.multiple_in_domain[-1]
    return unit, tuple(multiple // unit for multiple in role.multiple_in_domain)


def kept_ranks(before: Placement, after: Placement) -> dict[int, int]:
    """Old rank -> new rank of the members of a resized gang that stayed; who left is not in it."""
    new_ranks: dict[MemberPlacement, list[int]] = {}
    for member in after.members:
        new_ranks.setdefault(_place(member), []).append(member.rank)
    kept = {}
    for member in _by_rank(before.members):
        ranks = new_ranks.get(_place(member))
        if ranks:
            kept[member.rank] = ranks.pop(0)
    return kept


def _by_rank(members: Iterable[MemberPlacement]) -> list[MemberPlacement]:
    return sorted(members, key=lambda member: member.rank)


def _place(member: MemberPlacement) -> MemberPlacement:
    """What tells a member from others but for its number."""
    share = member.share and replace(member.share, alone=False)
    return replace(member, rank=0, share=share)
