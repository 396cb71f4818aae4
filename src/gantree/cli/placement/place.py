"""`gantree place`: where jobs would be placed. Offline: it reads files and starts nothing.

Jobs are placed in the order of the command line and hold their place for the ones after them. With --policy the
cluster must hold what it guarantees, their priority classes must be ones of it, and what it prefers of places counts;
the order stays that of the command line.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from gantree.cli.input.files import read_text, source_of
from gantree.cli.input.policies import policy_on
from gantree.cli.options import JsonOption, PolicyOption
from gantree.cli.output.printing import print_json
from gantree.cli.output.progress import progress
from gantree.cli.output.refusals import refusal_lines
from gantree.cli.placement.document import placement_json
from gantree.cli.placement.lines import placement_lines
from gantree.cli.placement.placer import Placer
from gantree.cli.placement.ranks import ranks_json
from gantree.control.requests.submission_checks import about
from gantree.formats import read_cluster, read_job
from gantree.formats.refusals import refusal_json
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.ranks.launcher_hints import MemberHint, hints_of
from gantree.placement.ranks.rank_order import RankMap, rank_map
from gantree.text.words import ranges
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

SOME_REFUSED = 3

RanksOption = Annotated[bool, typer.Option("--ranks", help="Print which rank runs on which GPU.")]


class Answer(NamedTuple):
    """The answer for one job, with its ranks and hints for each member if requested and placed."""

    job: Job
    verdict: Placement | Refused
    ranks: tuple[RankMap, tuple[MemberHint, ...]] | None


def place(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Cluster file.")],
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help='Job files; "-" is stdin.')],
    policy: PolicyOption = None,
    ranks: RanksOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show where jobs would be placed on a cluster.

    Exit status: 0 all placed, 3 some refused, 2 bad input.
    """
    fabric = Fabric.build(read_cluster(read_text(cluster), source_of(cluster)))
    sourced_jobs = [
        (source_of(file), job)
        for file in jobs
        for job in read_job(read_text(file), source_of(file))
    ]
    chosen = policy_on(policy, fabric)
    if policy is not None:
        for source, job in sourced_jobs:
            with about(f"{source}: job {job.name}"):
                chosen.priority_of(job.priority)
    answers = _place_in_order(fabric, [job for _, job in sourced_jobs], Placer(chosen), ranks)
    if as_json:
        print_json({"placements": [_json(answer) for answer in answers]})
    else:
        for answer in answers:
            typer.echo("\n".join(_lines(answer)))
    if any(isinstance(answer.verdict, Refused) for answer in answers):
        raise typer.Exit(SOME_REFUSED)


def _place_in_order(
    fabric: Fabric, jobs: Sequence[Job], placer: Placer, with_ranks: bool
) -> list[Answer]:
    occupancy = Occupancy(fabric)
    answers: list[Answer] = []
    with progress("Placing") as advance:
        for number, job in enumerate(jobs):
            advance(number, len(jobs))
            placed, verdict = placer.place(occupancy, job)
            ranks = None
            if isinstance(verdict, Placement):
                occupancy.take(f"{number}:{job.name}", verdict.members)  # names may repeat
                ranks = _ranks(fabric, placed, verdict) if with_ranks else None
            answers.append(Answer(job, verdict, ranks))
    return answers


def _ranks(
    fabric: Fabric, job: Job, placement: Placement
) -> tuple[RankMap, tuple[MemberHint, ...]]:
    ranks = rank_map(fabric, job, placement)
    return ranks, hints_of(fabric, job, placement, ranks)


def _json(answer: Answer) -> dict[str, Any]:
    job, verdict, ranks = answer
    if isinstance(verdict, Refused):
        return {"job": job.name, "placed": False, "why": refusal_json(verdict)}
    return placement_json(job, verdict) | ({"ranks": ranks_json(*ranks)} if ranks else {})


def _lines(answer: Answer) -> Iterator[str]:
    job, verdict, ranks = answer
    if isinstance(verdict, Placement):
        hints = ranks[1] if ranks else ()
        of_member = {(hint.role, hint.member): ranges(hint.ranks) for hint in hints}
        yield from placement_lines(job, verdict, of_member)
        return
    yield f"{job.name}: not placed. {verdict.sentence}"
    yield from (f"  {line}" for line in refusal_lines(refusal_json(verdict)))
