"""`gantree cost`: what a job's traffic costs on a cluster, by group of its parallelism. Offline; starts nothing.

Without --placement the job is placed first, as `gantree place` does it. How prices are made is `topology.cost.cost`.
"""

from dataclasses import replace
from typing import Annotated, Any

import typer

from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import JsonOption, ListPricesOption
from gantree.cli.output.errors import warn
from gantree.cli.output.prices import prices_json, unknown_gpu_warnings
from gantree.cli.output.printing import print_json
from gantree.cli.output.refusals import refusal_lines
from gantree.cli.placement.cost_lines import cost_lines
from gantree.cli.placement.document import read_placements
from gantree.cli.placement.placer import of_size, placed_alone
from gantree.formats import read_calibration, read_cluster, read_job, read_prices
from gantree.formats.job.form import bytes_of
from gantree.formats.refusals import refusal_json
from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Refused
from gantree.text.words import plural
from gantree.topology.cost.collectives import ADMITTED
from gantree.topology.cost.cost import (
    FlowCost,
    Price,
    Pricer,
    Ranks,
    Step,
    predict,
    price_basis,
    ranks_of,
    step_time,
)
from gantree.topology.fabric.calibration import Calibration
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import LIST_PRICES

REFUSED = 3
YARDSTICK = "1GiB"
MOST_NAMED = 5

PlacementOption = Annotated[
    str | None,
    typer.Option(
        "--placement", metavar="FILE", help='Output of gantree place --json; "-" is stdin.'
    ),
]
LinksOption = Annotated[
    str | None,
    typer.Option("--links", metavar="FILE", help="Calibration file of gantree topo measure."),
]
CollectiveOption = Annotated[
    str,
    typer.Option(
        "--collective", metavar="NAME", help=f"Collective over all GPUs: {', '.join(ADMITTED)}."
    ),
]
BytesOption = Annotated[
    str,
    typer.Option(
        "--bytes", metavar="SIZE", help="Size of the collective as in nccl-tests, such as 512MiB."
    ),
]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        "--algorithm", metavar="NAME", help="ring, tree, in-switch, collnet. [default: the fastest]"
    ),
]


def cost(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Cluster file.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help='Job file; "-" is stdin.')],
    placement: PlacementOption = None,
    links: LinksOption = None,
    collective: CollectiveOption = "all_reduce",
    size: BytesOption = YARDSTICK,
    algorithm: AlgorithmOption = None,
    prices: ListPricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the communication of a job costs on a cluster.

    Exit status: 0 priced, 3 the job cannot be placed, 2 bad input.
    """
    fabric = Fabric.build(read_cluster(read_text(cluster), source_of(cluster)))
    requested, array = _only_job(job)
    measured = read_calibration(read_text(links), source_of(links)) if links else None
    known = read_prices(read_text(prices), source_of(prices)) if prices else LIST_PRICES
    size_bytes = bytes_of(size, "--bytes")
    as_placed, members = _members(fabric, requested, placement)
    if isinstance(members, Refused):
        _refuse(requested, members, as_json)
        raise typer.Exit(REFUSED)
    conditions = Conditions(fabric)
    pricer = Pricer(fabric, measured, conditions)
    ranks = ranks_of(fabric, members)
    price = pricer.price(collective, size_bytes, ranks, algorithm)
    step = _step(pricer, as_placed, ranks, source_of(job))
    basis = price_basis(pricer, conditions, ranks)
    own_gpus = {machine.gpu for machine in fabric.machines}
    warnings = [*array, *unknown_gpu_warnings(known, own_gpus), *basis.warnings]
    answer = {
        "job": requested.name,
        "placed": True,
        "gpus": len(ranks),
        "nodes": len({member.node for member in members}),
        "domain": _domain(fabric, members),
        "crossings": dict(predict(fabric, members).crossings),
        "collective": {"name": collective, "bytes": size_bytes, **_price_json(price)},
        "step": _step_json(step) if step else None,
        "measured": _measured_json(measured, pricer),
        "prices": prices_json(known, fabric, members, step.step_s if step else None),
        "assumed": list(basis.assumed),
        "warnings": warnings,
    }
    if as_json:
        print_json(answer)
        return
    for warning in warnings:
        warn(warning)
    typer.echo("\n".join(cost_lines(answer, price, step)))


def _only_job(name: str) -> tuple[Job, list[str]]:
    """The job to price, and what to say of it: of an array the first, for all its jobs are equal."""
    jobs = read_job(read_text(name), source_of(name))
    first = jobs[0]
    if all(_alike(first, job) for job in jobs):
        note = f"the cost is that of {first.name}, the first of an array of {len(jobs)} equal jobs"
        return first, [note] if len(jobs) > 1 else []
    names = ", ".join(job.name for job in jobs[:MOST_NAMED]) + (
        ", ..." if len(jobs) > MOST_NAMED else ""
    )
    raise BadInput(
        f"{source_of(name)}: {len(jobs)} jobs ({names}); allowed: one job or one array; put the job into a "
        f"separate file"
    )


def _alike(first: Job, job: Job) -> bool:
    """Whether two jobs are of one array: they differ in nothing but index and name."""
    same = replace(job, name=first.name, array_index=first.array_index)
    return job is first or (
        first.array_index is not None and job.array_index is not None and same == first
    )


def _members(
    fabric: Fabric, job: Job, placement: str | None
) -> tuple[Job, tuple[MemberPlacement, ...] | Refused]:
    """Where the job runs, and what it is there: as the file says, or as it would be placed now."""
    if placement is None:
        as_placed, verdict = placed_alone(fabric, job)
        return as_placed, verdict.members if isinstance(verdict, Placement) else verdict
    source = source_of(placement)
    placed = read_placements(read_text(placement), source, fabric)
    if job.name not in placed:
        there = ", ".join(placed) or "none"
        raise BadInput(f"{source}: job {job.name} is not in it; jobs in it: {there}")
    members = placed[job.name]
    job = of_size(job, len(members))
    gpus = sum(len(member.gpus) for member in members)
    if gpus != job.gpus:
        raise BadInput(
            f"{source}: job {job.name} has {plural(gpus, 'GPU')} there, but its file requests {job.gpus}"
        )
    return job, members


def _step(pricer: Pricer, job: Job, ranks: Ranks, source: str) -> Step | None:
    """The step, with the job's file in front of what is wrong."""
    try:
        return step_time(pricer, job, ranks)
    except BadInput as error:
        raise BadInput(f"{source}: {error}") from None


def _refuse(job: Job, refused: Refused, as_json: bool) -> None:
    why = refusal_json(refused)
    if as_json:
        print_json({"job": job.name, "placed": False, "why": why})
        return
    typer.echo(f"{job.name}: not placed. {refused.sentence}")
    typer.echo("\n".join(f"  {line}" for line in refusal_lines(why)))


# ----- for programs


def _domain(fabric: Fabric, members: tuple[MemberPlacement, ...]) -> dict[str, str]:
    nodes = [fabric.index_of_node[member.node] for member in members]
    domain = fabric.domain(*fabric.narrowest_domain(nodes))
    return {"tier": domain.tier, "name": domain.name}


def _price_json(price: Price) -> dict[str, Any]:
    return {
        "seconds": price.seconds,
        "busbw_GBps": price.busbw_GBps,
        "algorithm": price.algorithm,
        "bound_by": price.limit,
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "step_s": step.step_s,
        "compute_s": step.compute_s,
        "bubble_s": step.bubble_s,
        "comm_s": step.comm_s,
        "exposed_s": step.exposed_s,
        "flows": [_flow_json(flow) for flow in step.flows],
        "assumed": list(step.assumed),
    }


def _flow_json(flow: FlowCost) -> dict[str, Any]:
    return {
        "axis": flow.axis,
        "collective": flow.collective,
        "groups": flow.groups,
        "group_size": flow.group_size,
        "within": flow.within,
        "domains": dict(flow.domains[1:]),
        "bytes": flow.size_bytes,
        "calls": flow.calls,
        **_price_json(flow.price),
        "seconds": flow.seconds,
        "exposed_s": flow.exposed_s,
    }


def _measured_json(calibration: Calibration | None, pricer: Pricer) -> dict[str, Any] | None:
    if calibration is None:
        return None
    return {
        "backend": calibration.backend,
        "host": calibration.host,
        "date": calibration.date,
        "links": list(calibration.links),
        "of_no_link_here": sorted(set(calibration.links) - pricer.traffic_index.links),
    }
