"""How full a cluster gets: the openb experiment of FGD (USENIX ATC'23), every list and seed, all policies.

The directory holds the lists as `docs/packing.md` names them. Printed per list: the mean over the seeds of the
allocation at each mark, of the multi-GPU demand placed at 100 %, of the bound, and the seconds of the slowest replay.

    python benchmarks/openb.py DIRECTORY [--lists default,multigpu20] [--seeds 42,43] [--policies FGD,gantree] [--json]
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from gantree.cli.output.printing import columns
from gantree.sim.openb.bound import bound
from gantree.sim.openb.lists import read_nodes, read_ranks, read_workload
from gantree.sim.openb.replay import MARKS_PERCENT, POLICIES, replay

NODES = "openb_node_list_gpu_node.csv"
PODS = "openb_pod_list_{list}.csv.gz"
ORDER = "replay_order_{list}_tune1.3_seeds42-46.csv.gz"
RANKS = "fgd_node_tiebreak_order_seeds42-46.csv.gz"


def run(directory: Path, pods: str, seed: int, policies: list[str]) -> list[dict[str, Any]]:
    """One list and seed under each policy, with the bound."""
    nodes = read_nodes(directory / NODES)
    order = directory / ORDER.format(list=pods)
    workload = read_workload(directory / PODS.format(list=pods), order, seed)
    ranks = read_ranks(directory / RANKS, seed, nodes)
    limit = bound(nodes, workload)
    told = limit and {"percent": limit.percent, "places_first_percent": limit.places_first_percent}
    return [
        {"list": pods, **replay(nodes, workload, ranks, seed, policy).document(), "bound": told}
        for policy in policies
    ]


def row(results: list[dict[str, Any]]) -> list[str]:
    """The means of one list and policy over the seeds."""
    marks = [
        fmean(each["allocated_percent"][str(mark)] for each in results) for mark in MARKS_PERCENT
    ]
    several = fmean(each["multi_gpu_percent"]["100"] for each in results)
    bounds = [each["bound"] for each in results]
    told = "-"
    if None not in bounds:
        firsts = "/".join(
            str(first) for first in sorted({b["places_first_percent"] for b in bounds})
        )
        told = f"{fmean(b['percent'] for b in bounds):.2f} (first {firsts} % placed)"
    slowest_s = max(each["seconds"] for each in results)
    return [
        results[0]["list"],
        results[0]["policy"],
        *(f"{mark:.2f}" for mark in marks),
        f"{several:.2f}",
        told,
        f"{slowest_s:.1f}",
    ]


def main() -> None:
    """Print the table, or each result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, nargs="?", help="where the openb lists are")
    parser.add_argument("--lists", default="default,multigpu20,gpushare40")
    parser.add_argument("--seeds", default="42,43,44,45,46")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--json", action="store_true", help="every result, not the means")
    wanted = parser.parse_args()
    if wanted.directory is None:
        print("not measured: name the directory of the openb lists", file=sys.stderr)
        return
    policies = wanted.policies.split(",")
    results = [
        result
        for pods in wanted.lists.split(",")
        for seed in wanted.seeds.split(",")
        for result in run(wanted.directory, pods, int(seed), policies)
    ]
    if wanted.json:
        print(json.dumps(results, indent=2))
        return
    groups = [
        [each for each in results if (each["list"], each["policy"]) == (pods, policy)]
        for pods in wanted.lists.split(",")
        for policy in policies
    ]
    marks = (f"AT {mark} %" for mark in MARKS_PERCENT)
    print(columns(("LIST", "POLICY", *marks, "MULTI-GPU", "BOUND", "SECONDS"), map(row, groups)))


if __name__ == "__main__":
    main()
