"""`gantree defragment`: moves of running gangs that would let a pending one start; made only with --apply."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import JobArgument, client, job_named
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.errors import FAILURE
from gantree.cli.output.printing import print_json, span
from gantree.model.errors import BadInput
from gantree.text.words import plural


def defragment(
    job: JobArgument,
    apply: Annotated[bool, typer.Option("--apply", help="Make the moves.")] = False,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST",
            help="With --apply: only if the moves are still those of the plan with this digest.",
        ),
    ] = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan moves of running gangs so that a job can start.

    Exit status: 0 there is a plan, 1 there is none.
    """
    daemon = client(state)
    if plan is not None and not (apply and plan):
        raise BadInput("--plan: allowed: the digest of a printed plan, together with --apply")
    answer = daemon.defragment(job_named(daemon, job), apply=apply, plan=plan or "")
    if as_json:
        print_json({**answer, "applied": apply})
    else:
        typer.echo("\n".join(_lines(answer, apply)))
    if answer["plan"] is None:
        raise typer.Exit(FAILURE)


def _lines(answer: dict[str, Any], apply: bool) -> Iterator[str]:
    plan = answer["plan"]
    if plan is None:
        yield answer["reason"]
        return
    moves = plan["moves"]
    yield f"{answer['job']} could start on {_where(plan['place'])} after {plural(len(moves), 'move')}:"
    for each in moves:
        lost = _gpu_hours(each["cost_gpu_s"])
        yield f"  {each['job']}: {_where(each['source'])} -> {_where(each['target'])}, loses {lost}"
    gain = f"gains {_gpu_hours(plan['gain_gpu_s'])}, costs {_gpu_hours(plan['cost_gpu_s'])}"
    yield f"  {gain}{'; the cheapest plan' if plan['proven'] else ''}"
    command = f"gantree defragment {answer['job']} --apply --plan {plan['digest']}"
    yield (
        "  the moves have begun"
        if apply
        else f"  nothing was changed; to make these moves: {command}"
    )


def _where(place: dict[str, Any]) -> str:
    domain = place["domain"]
    nodes = place["nodes"]
    where = f"{domain['tier']} {domain['name']}".strip()
    return where if len(nodes) > 4 else f"{', '.join(nodes)} ({where})"


def _gpu_hours(gpu_s: float) -> str:
    return f"{gpu_s / 3600:.3g} GPU-hours" if gpu_s >= 360 else f"{span(gpu_s)} of one GPU"
