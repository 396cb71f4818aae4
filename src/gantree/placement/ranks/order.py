"""Which rank of a placed gang runs on which GPU: heavy groups inside NVLink, neighbours near, rings out of few domains.

The search places members in topology order, and ranks would follow them. For ranks that count tensor groups fastest
that is mostly right; it is wrong where a framework counts otherwise, where sizes do not divide (15 nodes in one leaf
and 17 in the next), or where pipelines, not replicas, should stay in a leaf. What is right depends on the traffic, so
the price decides (`topology.cost.step_orders`), between:

1. topology order itself, which wins ties: no map is dearer than it, unless the job weighs groups;
2. for up to six members, every order of whole members (those that look alike to traffic count as one);
3. the layouts of `rank_layouts`, of whole members and, where every process has a GPU of its own, of single ranks;
4. exchanges of two members, from the best of these on, while one helps. They are tried only where the best order is
   much worse along some axis than another one is, and as many as `rank_search` allows;
5. where the job weighs groups by the domains that they reach (`topology.near`), the chapters of `groups`. There only
   orders of the least such cost are priced, and none is exchanged.

The shortest step wins; of equal steps, which the slowest group of each axis decides, that with fewer slow groups. Whole
members in order are preferred to single ranks of equal price: launchers such as torchrun count so. A job that tells
neither its model nor its traffic is priced by YARDSTICK, and its steps stay untold.

Nothing here moves a member, its GPUs or its NICs. Ranks stay within their role. What NCCL makes of it on a node is
`topology.graph.nccl_hint`.
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
from gantree.placement.ranks.groups import Reach
from gantree.placement.ranks.search import RankSearch
from gantree.placement.ranks.seats import Seats
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
"""What a job that tells nothing is taken to send: each axis so much more than the next as in a dense model of about
ten billion parameters (an assumption; it orders axes and promises no seconds)."""


@dataclass(frozen=True, slots=True)
class RankSeat:
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
    giving members other numbers is all there is to do. step_s is the predicted step with it, plain_step_s in topology
    order; None where the job does not tell its traffic. crossings and plain_crossings likewise. assumed says in words
    what the job did not tell. graph_files_fit: one NCCL graph file a member suits all its groups (`nccl_hint`).
    """

    ranks: tuple[RankSeat, ...]
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
        own = [seat for seat in self.ranks if (seat.role, seat.member) == (role, member)]
        return tuple(seat.rank for seat in sorted(own, key=lambda seat: seat.process))


def rank_map(fabric: Fabric, job: Job, placement: Placement) -> RankMap:
    """Decide which rank runs where. members stand in rank order; each role of the placement is one of the job.

    Raises BadInput where the job weighs groups of an axis, or by domains of a tier, that is not there.
    """
    members = placement.members
    decided = _decided(fabric, job, members)
    ranks = _ranks_of_processes(job, members, decided.seat_of_rank)
    return RankMap(
        ranks=tuple(sorted(_seated(members, ranks), key=lambda seat: seat.rank)),
        moved=list(decided.seat_of_rank) != sorted(decided.seat_of_rank),
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
    """seat_of_rank[rank] among the GPUs alone, and what goes with it: what can be kept for places that look alike."""

    seat_of_rank: tuple[int, ...]
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
        kept.keep(key, decided, len(decided.seat_of_rank))
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
    seats = Seats.of(fabric, job, members)
    steps, told, assumed = _priced_by(pricer_of(fabric), job, seats)
    if steps is None:
        return _Decided(as_placed, assumed=assumed)
    reach = Reach.of(fabric, job, steps.degrees, seats.domains(fabric)[:-1])
    search = RankSearch(fabric, seats, steps, reach)
    best = search.best()
    plain = np.arange(gpus, dtype=np.int64)
    groups = {axis: each for axis, each in steps.groups.items() if _has_own(axis, steps.degrees)}
    return _Decided(
        seat_of_rank=tuple(best.tolist()),
        step_s=search.best_step_s if told else None,
        plain_step_s=search.plain_step_s if told else None,
        crossings=crossings_of(fabric, seats, groups, best),
        plain_crossings=crossings_of(fabric, seats, groups, plain),
        assumed=assumed,
        graph_files_fit=fits_all_groups(seats.node[best], seats.member[best], groups),
    )


def _has_own(axis: str, degrees: ParallelismDegrees) -> bool:
    """Whether an axis has groups of its own: without experts, those of their replicas are the data groups."""
    return axis != EXPERT_DATA or degrees.expert > 1


def _priced_by(
    pricer: Pricer, job: Job, seats: Seats
) -> tuple[StepOfOrders | None, bool, tuple[str, ...]]:
    """(what prices orders, whether by what the job tells, what is assumed); None where its axes do not fit the GPUs."""
    if job.trains is not None or job.traffic is not None:
        try:
            return StepOfOrders(pricer, job, seats.pairs), True, ()
        except BadInput as error:
            assumed = (f"traffic of a usual model, for the job's own has no price: {error}",)
    else:
        assumed = ("traffic of a usual model (the job tells neither model nor traffic)",)
    silent = replace(job, trains=None, traffic=YARDSTICK)
    try:
        return StepOfOrders(pricer, silent, seats.pairs), False, assumed
    except BadInput as error:
        return None, False, (f"topology order: {error}",)


# ----- what comes of it


def _ranks_of_processes(
    job: Job, members: Sequence[MemberPlacement], seat_of_rank: Sequence[int]
) -> list[list[int]]:
    """Ranks of each member's processes. Ranks of GPUs are those of their processes as the gang counts them."""
    processes = {role.name: role.processes for role in job.roles}
    counts = [processes[member.role] for member in members]
    first_rank = [0, *accumulate(counts)]
    owner = [
        (number, place) for number, held in enumerate(members) for place in range(len(held.gpus))
    ]
    rank_at_seat = {seat: rank for rank, seat in enumerate(seat_of_rank)}
    found: list[list[int]] = []
    seat = 0
    for number, (member, count) in enumerate(zip(members, counts, strict=True)):
        held = range(seat, seat + len(member.gpus))
        seat = held.stop
        owners = [owner[rank_at_seat[each]] for each in held]
        if owners and len(owners) == count:
            found.append([first_rank[other] + place for other, place in owners])
        else:
            first = first_rank[owners[0][0] if owners else number]
            found.append(list(range(first, first + count)))
    return found


def _seated(
    members: Sequence[MemberPlacement], ranks: Sequence[Sequence[int]]
) -> Iterator[RankSeat]:
    for member, of_member in zip(members, ranks, strict=True):
        for process, rank in enumerate(of_member):
            gpus = _gpus_of_process(member, process, len(of_member))
            yield RankSeat(rank, member.role, member.rank, member.node, gpus, process)


def _gpus_of_process(member: MemberPlacement, process: int, processes: int) -> tuple[int, ...]:
    gpus = member.gpus or member.parts
    if len(gpus) % processes:
        return gpus
    each = len(gpus) // processes
    return gpus[process * each : (process + 1) * each]
