"""`gantree place`: where would these jobs go? Offline: files in, an answer out, nothing is started.

Jobs are placed in the order of the command line and hold their place for the ones after them. With --policy
their priority classes must be ones of it; the order stays that of the command line.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from gantree.cli.options import JsonOption, PolicyOption, new_app
from gantree.cli.policies import policy_of
from gantree.cli.printing import plural, print_json, ranges
from gantree.cli.progress import progress
from gantree.cli.reading import read_text, source_of
from gantree.cli.verdicts import refusal_lines
from gantree.formats import read_cluster, read_job
from gantree.formats.refusals import refusal_json
from gantree.model.cluster import Cluster
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Refused
from gantree.placement.search import place as search
from gantree.topology.fabric import Fabric
from gantree.topology.occupancy import Occupancy

app = new_app()

SOME_REFUSED = 3
Verdict = Placement | Refused


@app.command()
def place(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Cluster file.")],
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help='Job files; "-" is stdin.')],
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where jobs would go on a cluster; start nothing.

    Exit status: 0 all placed, 3 some refused, 2 bad input.
    """
    site = read_cluster(read_text(cluster), source_of(cluster))
    asked = [job for file in jobs for job in read_job(read_text(file), source_of(file))]
    if policy is not None:
        chosen = policy_of(policy)
        for job in asked:
            chosen.priority_of(job.priority)
    verdicts = _place_in_order(site, asked)
    if as_json:
        print_json({"placements": [_answer(*each) for each in zip(asked, verdicts, strict=True)]})
    else:
        for job, verdict in zip(asked, verdicts, strict=True):
            typer.echo("\n".join(_lines(job, verdict)))
    if any(isinstance(verdict, Refused) for verdict in verdicts):
        raise typer.Exit(SOME_REFUSED)


def _place_in_order(site: Cluster, jobs: Sequence[Job]) -> list[Verdict]:
    occupancy = Occupancy(Fabric.build(site))
    verdicts: list[Verdict] = []
    with progress("Placing") as advance:
        for number, job in enumerate(jobs):
            advance(number, len(jobs))
            verdict = search(occupancy, job)
            verdicts.append(verdict)
            if isinstance(verdict, Placement):
                occupancy.take(f"{number}:{job.name}", verdict.members)  # names may repeat
    return verdicts


def _answer(job: Job, verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, Refused):
        return {"job": job.name, "placed": False, "why": refusal_json(verdict)}
    predicted = verdict.predicted
    return {
        "job": job.name,
        "placed": True,
        "members": [_member(member) for member in verdict.members],
        "domain": {"tier": verdict.domain.tier, "name": verdict.domain.name},
        "predicted": {
            "step_s": predicted.step_s,
            "comm_s": predicted.comm_s,
            "crossings": dict(predicted.crossings),
        },
    }


def _member(member: MemberPlacement) -> dict[str, Any]:
    """mig and share are empty: members with a part of a GPU are not placed yet (`placement` says so)."""
    return {
        "role": member.role,
        "rank": member.rank,
        "node": member.node,
        "gpus": list(member.gpus),
        "nics": list(member.nics),
        "mig": [],
        "share": {},
    }


def _lines(job: Job, verdict: Verdict) -> Iterator[str]:
    if isinstance(verdict, Refused):
        yield f"{job.name}: not placed. {verdict.sentence}"
        yield from (f"  {line}" for line in refusal_lines(refusal_json(verdict)))
        return
    nodes = len({member.node for member in verdict.members})
    where = f"{verdict.domain.tier} {verdict.domain.name}".rstrip()
    on = where if nodes == 1 else f"{plural(nodes, 'node')} of {where}"
    yield f"{job.name}: {plural(job.gpus, 'GPU')} on {on}"
    for member in verdict.members:
        held = f"gpus {ranges(member.gpus)}" if member.gpus else "no GPU"
        nics = f"  nics {','.join(member.nics)}" if member.nics else ""
        yield f"  {member.role} {member.rank}  {member.node}  {held}{nics}"
