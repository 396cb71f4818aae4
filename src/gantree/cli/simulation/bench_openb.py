"""`gantree bench openb`: how full a cluster gets, by the published FGD experiment on the openb lists."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.cli.options import JsonOption
from gantree.cli.output.printing import columns, print_json
from gantree.cli.output.progress import progress
from gantree.model.errors import BadInput, NotFound
from gantree.sim.openb.bound import bound
from gantree.sim.openb.lists import read_nodes, read_ranks, read_workload
from gantree.sim.openb.replay import POLICIES, policy_named, replay


def openb(
    nodes: Annotated[Path, typer.Option(metavar="CSV", help="Node list.")],
    pods: Annotated[Path, typer.Option(metavar="CSV", help="Pod list.")],
    order: Annotated[Path, typer.Option(metavar="CSV", help="Arrival order of the pods.")],
    tiebreak: Annotated[
        Path, typer.Option(metavar="CSV", help="Node ranks that break ties between equal scores.")
    ],
    seed: Annotated[
        int, typer.Option(min=0, help="Seed: rows of the order and tie-break lists.")
    ] = 42,
    policy: Annotated[
        str, typer.Option(help=f"Placement policy: {', '.join(POLICIES)}.")
    ] = "gantree",
    as_json: JsonOption = False,
) -> None:
    """Measure the GPU allocation as pods fill a cluster (Alibaba openb, the procedure of FGD).

    Files may be gzipped. The demand of the policies FGD and gantree is how often each class is in the pod list.
    """
    try:
        name = policy_named(policy)
        cluster = read_nodes(nodes)
        workload = read_workload(pods, order, seed)
        rank = read_ranks(tiebreak, seed, cluster)
    except NotFound as error:
        raise BadInput(str(error)) from None
    with progress(name) as advance:
        figures = replay(cluster, workload, rank, seed, name, advance).document()
    limit = bound(cluster, workload)
    figures["bound"] = limit and {
        "percent": round(limit.percent, 4),
        "places_first_percent": limit.places_first_percent,
    }
    if as_json:
        print_json(figures)
    else:
        typer.echo(_text(figures))


def _text(figures: dict[str, Any]) -> str:
    several = figures["multi_gpu_percent"]
    rows = [
        (f"{mark} %", _percent(allocated), _percent(several[mark]))
        for mark, allocated in figures["allocated_percent"].items()
    ]
    until, limit = figures["all_placed_until_percent"], figures["bound"]
    placed = "every pod with a GPU was placed"
    if until is not None:
        placed += f" until {until:.2f} % had arrived"
    return "\n".join(
        [
            f"{figures['policy']}, seed {figures['seed']}: {figures['pods']} pods, "
            f"{figures['dropped']} dropped, {figures['seconds']:g} s",
            columns(("ARRIVED", "ALLOCATED", "OF MULTI-GPU DEMAND"), rows),
            placed,
            "no bound: not even the first pods can all be placed"
            if limit is None
            else f"bound: {limit['percent']:.2f} % for policies that place all of the first "
            f"{limit['places_first_percent']} %",
        ]
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"
