"""How long the simulator takes for a trace, on a cluster like the one it comes from.

The default cluster has 2,496 GPUs in nodes of 8, as near as such nodes come to the 2,490 of Philly: 3 spines of 8
leaves of 13 nodes. A smaller one (`--gpus 512`) makes jobs wait, which is the harder case. Reading the trace and
writing the results count, starting Python does not. Without a trace nothing is measured.

    python benchmarks/philly.py philly_jobs.csv.gz [--jobs 10000] [--gpus 2496] [--profile]
"""

import argparse
import cProfile
import json
import os
import platform
import pstats
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from gantree.formats import read_trace
from gantree.formats.policy.reader import PRESETS
from gantree.model.cluster import Cluster, Node
from gantree.sim.files import write
from gantree.sim.run import simulate
from gantree.topology.hardware.catalog import machine

MACHINE = "dgx-a100"
GPUS_OF_NODE, NODES_OF_LEAF, LEAVES_OF_SPINE = 8, 13, 8
PROFILE_LINES = 30


def cluster_of(gpus: int) -> Cluster:
    """A cluster of about `gpus` GPUs."""
    leaf_of_node = [number // NODES_OF_LEAF for number in range(gpus // GPUS_OF_NODE)]
    return Cluster(
        name=f"philly-{gpus}",
        tiers=("spine", "leaf", "node"),
        machines={MACHINE: machine(MACHINE)},
        nodes=tuple(
            Node(f"n{number}", MACHINE, (f"s{leaf // LEAVES_OF_SPINE}", f"l{leaf}"))
            for number, leaf in enumerate(leaf_of_node)
        ),
    )


def run(trace: Path, jobs: int, gpus: int) -> dict[str, Any]:
    """Simulate the first `jobs` jobs of a trace; the figures, and what came out."""
    cluster = cluster_of(gpus)
    start_s = perf_counter()
    result = simulate(cluster, read_trace(trace), PRESETS["gantree"], limit=jobs)
    with tempfile.TemporaryDirectory() as out:
        write(result, Path(out))
    seconds = perf_counter() - start_s
    summary = result.summary()
    return {
        "jobs": summary["jobs"],
        "seconds": round(seconds, 2),
        "machine": this_machine(),
        "gpus": result.gpus,
        "most_waiting": max(sample.waiting_jobs for sample in result.samples),
        "summary": summary,
    }


def this_machine() -> str:
    """Processor, number of cores and Python version."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main() -> None:
    """Print the figures as JSON; with --profile, where the time went to standard error."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path, nargs="?", help="philly_jobs.csv.gz, or any trace")
    parser.add_argument("--jobs", type=int, default=10_000, help="how many of its jobs")
    parser.add_argument("--gpus", type=int, default=2_496, help="size of the cluster")
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    wanted = parser.parse_args()
    if wanted.trace is None:
        print("not measured: name a trace, such as philly_jobs.csv.gz", file=sys.stderr)
        return
    profile = cProfile.Profile()
    if wanted.profile:
        profile.enable()
    figures = run(wanted.trace, wanted.jobs, wanted.gpus)
    if wanted.profile:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(PROFILE_LINES)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
