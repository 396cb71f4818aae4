"""Decides which rank of a placed gang runs on which GPU, so that the traffic of its groups crosses fast links.

By default ranks follow the topology order of members. That is mostly right for jobs whose fastest axis is tensor. It is
wrong where a framework numbers ranks otherwise, where sizes do not divide (15 nodes in one leaf and 17 in the next), or
where pipelines, not replicas, should stay in a leaf. The best order depends on the traffic, so the cheapest candidate
(`topology.cost.step_orders`) is chosen:

1. topology order itself, which wins ties: no map costs more than it, unless the job weighs groups;
2. for up to six members, every order of whole members (members that are equal to traffic count as one);
3. the layouts of `layouts`, of whole members and, where every process has a GPU of its own, of single ranks;
4. exchanges of two members, from the best of these on, while one helps. They are tried only where the best order is
   much worse along some axis than another one is, and as many as `order_search` allows;
5. where the job weighs groups by the domains that they span (`topology.near`), the candidates of `near_groups`. Then
   only orders of the least such cost are priced, and none is exchanged.

The shortest step wins; of equal steps (the slowest group of each axis decides), the one with fewer slow groups. Whole
members in order are preferred to single ranks of equal price, because launchers such as torchrun number ranks so. A job
that declares neither its model nor its traffic is priced by YARDSTICK, and no step time is reported for it.

Members, GPUs and NICs never move here, and ranks stay within their role. `topology.graph.nccl_hint` makes the NCCL
graph file of a member.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import AxisTraffic, Job, Traffic
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.ranks.crossings import AxisCrossings, crossings_of
from gantree.placement.ranks.gang_gpus import GangGpus
from gantree.placement.ranks.near_groups import GroupSpread
from gantree.placement.ranks.order_search import RankSearch
from gantree.topology.cost.pricing import Pricer, pricer_of
from gantree.topology.cost.step_orders import StepOfOrders
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.graph.nccl_hint import fits_all_groups
from gantree.topology.traffic.signature import Kept
from gantree.topology.traffic.traffic import EXPERT_DATA, ParallelismDegrees

YARDSTICK = Traffic(
    axes=(
        AxisTraffic("tensor", 64e9, 512),
        AxisTraffic("context", 16e9, 256),
        AxisTraffic("expert", 16e9, 128),
        AxisTraffic("data", 8e9, 32),
        AxisTraffic("pipeline", 1e9, 32),
    )
)
"""The assumed traffic of a job that declares none: ratios of the axes as in a dense model of about ten billion
parameters. It orders the axes; step times are not derived from it."""


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """Where one rank runs: process `process` of member `member` of a role.

    gpus are those of the process, in link order; of its whole member where the two do not divide; () without any.
    """

    rank: int
    role: str
    member: int
    node: str
    gpus: tuple[int, ...]
    process: int


@dataclass(frozen=True, slots=True)
class RankMap:
    """Every rank of a gang and where it runs, by rank.

    moved: it differs from topology order. whole_members: each member's ranks are consecutive and in process order, so
    renumbering members is sufficient. step_s is the predicted step with it, plain_step_s in topology order, in seconds;
    None where the job does not declare its traffic. crossings and plain_crossings likewise. assumed lists, for people,
    the assumptions made in place of the job's own figures. graph_files_fit: one NCCL graph file a member suits all its
    groups (`nccl_hint`).
    """

    ranks: tuple[RankPlacement, ...]
    moved: bool
    whole_members: bool
    step_s: float | None
    plain_step_s: float | None
    crossings: tuple[AxisCrossings, ...]
    plain_crossings: tuple[AxisCrossings, ...]
    assumed: tuple[str, ...] = ()
    graph_files_fit: bool = False

    def of_member(self, role: str, member: int) -> tuple[int, ...]:
        """The ranks of a member, by process."""
        own = [placed for placed in self.ranks if (placed.role, placed.member) == (role, member)]
        return tuple(placed.rank for placed in sorted(own, key=lambda placed: placed.process))


def rank_map(fabric: Fabric, job: Job, placement: Placement) -> RankMap:
    """Return the rank map. Members of the placement are in rank order; each of its roles is one of the job.

    Raises BadInput where the job weighs groups of an axis, or domains of a tier, that does not exist.
    """
    members = placement.members
    decided = _decided(fabric, job, members)
    ranks = _ranks_of_processes(job, members, decided.position_of_rank)
    return RankMap(
        ranks=tuple(sorted(_rank_placements(members, ranks), key=lambda placed: placed.rank)),
        moved=list(decided.position_of_rank) != sorted(decided.position_of_rank),
        whole_members=all(
            of_member == list(range(of_member[0], of_member[0] + len(of_member)))
            for of_member in ranks
            if of_member
        ),
        step_s=decided.step_s,
        plain_step_s=decided.plain_step_s,
        crossings=decided.crossings,
        plain_crossings=decided.plain_crossings,
        assumed=decided.assumed,
        graph_files_fit=decided.graph_files_fit,
    )


# ----- deciding


@dataclass(frozen=True, slots=True)
class _Decided:
    """position_of_rank[rank] among the GPUs alone, and its figures; valid for all placements of the same shape."""

    position_of_rank: tuple[int, ...]
    step_s: float | None = None
    plain_step_s: float | None = None
    crossings: tuple[AxisCrossings, ...] = ()
    plain_crossings: tuple[AxisCrossings, ...] = ()
    assumed: tuple[str, ...] = ()
    graph_files_fit: bool = False


def _decided(fabric: Fabric, job: Job, members: Sequence[MemberPlacement]) -> _Decided:
    nodes = [fabric.index_of_node[member.node] for member in members]
    held = tuple((member.role, member.gpus) for member in members)
    roles = tuple((role.name, role.processes) for role in job.roles)
    sends = (job.parallelism, job.ranks_as_written, job.trains, job.traffic, job.overlap)
    shape = pricer_of(fabric).shapes.shape(nodes)
    key: Hashable = (held, roles, shape, sends, job.communicates, job.topology.near)
    kept = _kept_of(fabric)
    decided = kept.answers.get(key)
    if decided is None:
        decided = _decide(fabric, job, members)
        kept.keep(key, decided, len(decided.position_of_rank))
    return decided


@lru_cache(maxsize=8)
def _kept_of(fabric: Fabric) -> Kept[_Decided]:
    """Maps on a fabric, beside its pricer."""
    return Kept()


def _decide(fabric: Fabric, job: Job, members: Sequence[MemberPlacement]) -> _Decided:
    gpus = sum(len(member.gpus) for member in members)
    as_placed = tuple(range(gpus))
    if gpus < 2 or not job.communicates:
        return _Decided(as_placed)
    gang_gpus = GangGpus.of(fabric, job, members)
    steps, told, assumed = _priced_by(pricer_of(fabric), job, gang_gpus)
    if steps is None:
        return _Decided(as_placed, assumed=assumed)
    group_spread = GroupSpread.of(fabric, job, steps.degrees, gang_gpus.domains(fabric)[:-1])
    search = RankSearch(fabric, gang_gpus, steps, group_spread)
    best = search.best()
    plain = np.arange(gpus, dtype=np.int64)
    groups = {axis: each for axis, each in steps.groups.items() if _has_own(axis, steps.degrees)}
    return _Decided(
        position_of_rank=tuple(best.tolist()),
        step_s=search.best_step_s if told else None,
        plain_step_s=search.plain_step_s if told else None,
        crossings=crossings_of(fabric, gang_gpus, groups, best),
        plain_crossings=crossings_of(fabric, gang_gpus, groups, plain),
        assumed=assumed,
        graph_files_fit=fits_all_groups(gang_gpus.node[best], gang_gpus.member[best], groups),
    )


def _has_own(axis: str, degrees: ParallelismDegrees) -> bool:
    """Whether an axis has groups of its own: without experts, those of their replicas are the data groups."""
    return axis != EXPERT_DATA or degrees.expert > 1


def _priced_by(
    pricer: Pricer, job: Job, gang_gpus: GangGpus
) -> tuple[StepOfOrders | None, bool, tuple[str, ...]]:
    """Return (the pricer of orders, whether it uses the job's own traffic, assumptions); None where axes do not fit."""
    if job.trains is not None or job.traffic is not None:
        try:
            return StepOfOrders(pricer, job, gang_gpus.pairs), True, ()
        except BadInput as error:
            assumed = (f"traffic of a usual model, for the job's own has no price: {error}",)
    else:
        assumed = ("traffic of a usual model (the job tells neither model nor traffic)",)
    silent = replace(job, trains=None, traffic=YARDSTICK)
    try:
        return StepOfOrders(pricer, silent, gang_gpus.pairs), False, assumed
    except BadInput as error:
        return None, False, (f"topology order: {error}",)


# ----- what comes of it


def _ranks_of_processes(
    job: Job, members: Sequence[MemberPlacement], position_of_rank: Sequence[int]
) -> list[list[int]]:
    """Ranks of each member's processes. Ranks of GPUs are those of their processes as the gang counts them."""
    processes = {role.name: role.processes for role in job.roles}
    counts = [processes[member.role] for member in members]
    first_rank = [0, *accumulate(counts)]
    owner = [
        (number, place) for number, held in enumerate(members) for place in range(len(held.gpus))
    ]
    rank_at_position = {position: rank for rank, position in enumerate(position_of_rank)}
    found: list[list[int]] = []
    position = 0
    for number, (member, count) in enumerate(zip(members, counts, strict=True)):
        held = range(position, position + len(member.gpus))
        position = held.stop
        owners = [owner[rank_at_position[each]] for each in held]
        if owners and len(owners) == count:
            found.append([first_rank[other] + place for other, place in owners])
        else:
            first = first_rank[owners[0][0] if owners else number]
            found.append(list(range(first, first + count)))
    return found


def _rank_placements(
    members: Sequence[MemberPlacement], ranks: Sequence[Sequence[int]]
) -> Iterator[RankPlacement]:
    for member, of_member in zip(members, ranks, strict=True):
        for process, rank in enumerate(of_member):
            gpus = _gpus_of_process(member, process, len(of_member))
            yield RankPlacement(rank, member.role, member.rank, member.node, gpus, process)


def _gpus_of_process(member: MemberPlacement, process: int, processes: int) -> tuple[int, ...]:
    gpus = member.gpus or member.parts
    if len(gpus) % processes:
        return gpus
    each = len(gpus) // processes
    return gpus[process * each : (process + 1) * each]
