"""`gantree ranks`: which rank of a job runs on which GPU, with launcher arguments and NCCL files. Offline.

Without --placement the job is placed first, as `gantree place` does it. How ranks are ordered is
`placement.ranks.rank_order`. With --out the same goes into files (`cli.rank_files`): ranks.json, and for each member
ROLE-NUMBER.env and, where one is right for all of its groups, ROLE-NUMBER.graph.xml for NCCL; for each machine model
MACHINE.topo.xml.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import JsonOption, shallow
from gantree.cli.output.printing import columns, print_json
from gantree.cli.output.refusals import refusal_lines
from gantree.cli.placement.cost import PlacementOption
from gantree.cli.placement.document import read_placements
from gantree.cli.placement.placer import of_size, placed_alone
from gantree.cli.placement.rank_files import write_rank_files
from gantree.formats import read_cluster, read_job
from gantree.formats.refusals import refusal_json
from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Refused
from gantree.placement.ranks.crossings import AxisCrossings
from gantree.placement.ranks.launcher_hints import MemberHint, hints_of
from gantree.placement.ranks.rank_order import RankMap, rank_map
from gantree.text.words import plural, ranges
from gantree.topology.cost.prediction import predict
from gantree.topology.fabric.fabric import Fabric

REFUSED = 3


def ranks(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Cluster file.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help='Job file; "-" is stdin.')],
    placement: PlacementOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Output directory for ranks.json and the files of members."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which GPU each rank of a job gets.

    Exit status: 0 placed, 3 the job cannot be placed, 2 bad input.
    """
    fabric = Fabric.build(read_cluster(read_text(cluster), source_of(cluster)))
    requested = _one_job(job)
    as_placed, placed = _placed(fabric, requested, placement)
    if isinstance(placed, Refused):
        _refuse(requested, placed, as_json)
        raise typer.Exit(REFUSED)
    found = rank_map(fabric, as_placed, placed)
    hints = hints_of(fabric, as_placed, placed, found)
    answer = {"job": requested.name, "placed": True, **ranks_json(found, hints)}
    if out is not None:
        write_rank_files(shallow(out, "--out"), fabric, placed, hints, answer)
    if as_json:
        print_json(answer)
        return
    typer.echo("\n".join(_lines(requested, found, hints)))


def _one_job(name: str) -> Job:
    jobs = read_job(read_text(name), source_of(name))
    if len(jobs) > 1:
        raise BadInput(f"{source_of(name)}: {len(jobs)} jobs; allowed: one")
    return jobs[0]


def _placed(fabric: Fabric, job: Job, file: str | None) -> tuple[Job, Placement | Refused]:
    """Where the job runs, and what it is there: as the file says, or as it would be placed now."""
    if file is None:
        return placed_alone(fabric, job)
    source = source_of(file)
    members = read_placements(read_text(file), source, fabric).get(job.name)
    if members is None:
        raise BadInput(f"{source}: job {job.name} is not in it")
    job = of_size(job, len(members))
    requested = {(role.name, n): role.shape.gpus for role in job.roles for n in range(role.members)}
    there = {(member.role, member.rank): len(member.gpus) for member in members}
    if requested != there:
        raise BadInput(f"{source}: the members of job {job.name} differ from its file")
    by_member: dict[tuple[str, int], MemberPlacement] = {(m.role, m.rank): m for m in members}
    in_order = tuple(by_member[key] for key in requested)
    nodes = [fabric.index_of_node[member.node] for member in in_order]
    domain = fabric.domain(*fabric.narrowest_domain(nodes))
    return job, Placement(in_order, domain, predict(fabric, in_order, job))


def _refuse(job: Job, refused: Refused, as_json: bool) -> None:
    why = refusal_json(refused)
    if as_json:
        print_json({"job": job.name, "placed": False, "why": why})
        return
    typer.echo(f"{job.name}: not placed. {refused.sentence}")
    typer.echo("\n".join(f"  {line}" for line in refusal_lines(why)))


def ranks_json(found: RankMap, hints: tuple[MemberHint, ...]) -> dict[str, Any]:
    """A rank map for programs."""
    return {
        "moved": found.moved,
        "whole_members": found.whole_members,
        "step_s": found.step_s,
        "plain_step_s": found.plain_step_s,
        "assumed": list(found.assumed),
        "crossings": [_crossings_json(each) for each in found.crossings],
        "plain_crossings": [_crossings_json(each) for each in found.plain_crossings],
        "ranks": [
            {
                "rank": placed.rank,
                "role": placed.role,
                "member": placed.member,
                "node": placed.node,
                "gpus": list(placed.gpus),
                "process": placed.process,
            }
            for placed in found.ranks
        ],
        "members": [_member_json(hint) for hint in hints],
    }


def _crossings_json(crossings: AxisCrossings) -> dict[str, Any]:
    return {
        "axis": crossings.axis,
        "groups": crossings.groups,
        "group_size": crossings.group_size,
        "hops": dict(crossings.hops),
    }


def _member_json(hint: MemberHint) -> dict[str, Any]:
    return {
        "role": hint.role,
        "rank": hint.member,
        "node": hint.node,
        "ranks": list(hint.ranks),
        "environment": dict(hint.environment),
        "nccl_graph": hint.graph is not None,
        "no_nccl_graph_because": hint.no_graph_because,
    }


def _lines(job: Job, found: RankMap, hints: tuple[MemberHint, ...]) -> Iterator[str]:
    """The map for people: the members, then what it does for each axis."""
    how = "in topology order"
    if found.moved:
        how = "whole members moved" if found.whole_members else "single ranks moved"
    yield f"{job.name}: {plural(len(found.ranks), 'rank')}, {how}"
    if found.step_s is not None and found.plain_step_s is not None:
        yield f"  step {found.step_s:.4g} s, {found.plain_step_s:.4g} s in topology order"
    yield from (f"  assumed: {sentence}" for sentence in found.assumed)
    for hint in hints:
        yield f"  {hint.role} {hint.member}  {hint.node}  ranks {ranges(hint.ranks)}"
    if found.crossings:
        tiers = [tier for tier, _ in found.crossings[0].hops]
        rows = [
            [each.axis, f"{each.groups} x {each.group_size}", *_before_and_after(each, plain)]
            for each, plain in zip(found.crossings, found.plain_crossings, strict=True)
        ]
        yield "Hops that leave a domain:"
        yield columns(["axis", "groups", *tiers], rows)


def _before_and_after(each: AxisCrossings, plain: AxisCrossings) -> list[str]:
    return [
        str(now) if now == before else f"{now} (was {before})"
        for (_, now), (_, before) in zip(each.hops, plain.hops, strict=True)
    ]
