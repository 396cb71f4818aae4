"""Philly's 82,247 jobs on sub-fabrics of Lingjun, under every preset: who waits how long, and what it costs.

    python benchmarks/philly_lingjun.py TRACE TOPO [--loads load70 load90 load105] [--presets NAME ...] [--jobs N]
                                        [--unknown] [--promise] [--profile] [--json FILE]

TRACE is philly_jobs.csv.gz, TOPO topo.csv.gz of Lingjun. Every queue (virtual cluster) is guaranteed its share of all
GPU-hours; the preset `cells` gets the same in whole nodes first, then GPUs. Users know how long their jobs run, unless
`--unknown`. Stops and starts take no time; a job that is stopped begins again from nothing, for the trace tells of no
checkpoints. Jobs run at the same speed wherever they are placed. `--promise` runs each queue alone on a private cluster
of its cells, and counts the jobs that started later in the shared one than alone plus the grace (with the preset
`cells`). `--profile` says where the time of the first run goes.
"""

import argparse
import cProfile
import json
import pstats
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from gantree.cli.output.printing import columns
from gantree.formats import read_trace
from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.sim.bench.stopwatch import Stopwatch
from gantree.sim.cluster import Overheads
from gantree.sim.lingjun.alone import held_against
from gantree.sim.lingjun.figures import HEAD, line, of_queues
from gantree.sim.lingjun.philly import (
    gang_of,
    gpu_s_of_queue,
    known_gang_of,
    shared_out,
    with_queues,
)
from gantree.sim.lingjun.subfabric import GPUS_OF_HOST, HOSTS_OF_LOAD, first_hosts, read_fabric
from gantree.sim.run import Simulation

PROFILE_LINES = 35
CELLS = "cells"
TOLD_EVERY = 2000


def run(
    cluster: Cluster, trace: Sequence[TraceJob], load: str, preset: str, wanted: argparse.Namespace
) -> dict[str, Any]:
    """One preset at one load: figures, per queue too, and how long the core took."""
    gpus = len(cluster.nodes) * GPUS_OF_HOST
    owed = shared_out(gpus, gpu_s_of_queue(trace))
    policy = with_queues(PRESETS[preset], owed, as_cells=preset == CELLS)
    jobs = gang_of if wanted.unknown else known_gang_of
    start_s = perf_counter()
    simulation = Simulation(cluster, trace, policy, Overheads(), jobs)
    watch = Stopwatch(simulation.scheduler)
    steps = 0
    while simulation.step():
        steps += 1
        if steps % TOLD_EVERY == 0:
            ended = simulation.record.ended
            print(f"\r{load} {preset}: {ended}/{len(trace)}", end="", file=sys.stderr)
    result = simulation.result()
    seconds = perf_counter() - start_s
    print(f"\r{load} {preset}: {seconds:.0f} s, {steps} moments", file=sys.stderr)
    figures = {
        "load": load,
        "preset": preset,
        "gpus": gpus,
        "seconds": round(seconds, 1),
        "core": watch.figures(),
        "summary": result.summary(),
        "queues": of_queues(result),
    }
    if wanted.promise and preset == CELLS:
        figures["promise"] = [
            asdict(
                held_against(result.jobs, trace, PRESETS[CELLS], queue, owed[queue], policy.grace_s)
            )
            for queue in owed
        ]
    return figures


def table(found: Sequence[dict[str, Any]]) -> str:
    """All runs, a line each."""
    return columns(
        HEAD,
        [
            line(each["load"], each["preset"], each["summary"], each["core"]["mean_ms"])
            for each in found
        ],
    )


def main() -> None:
    """Print the table; write the figures after every run."""
    wanted = arguments()
    if wanted.trace is None or wanted.topo is None:
        print("not measured: name the trace and the topology", file=sys.stderr)
        return
    trace = read_trace(wanted.trace)[: wanted.jobs]
    fabric = read_fabric(wanted.topo)
    profile = cProfile.Profile()
    if wanted.profile:
        profile.enable()
    found = []
    for load in wanted.loads:
        cluster = first_hosts(fabric, HOSTS_OF_LOAD[load])
        for preset in wanted.presets:
            found.append(run(cluster, trace, load, preset, wanted))
            if wanted.profile:
                profile.disable()
                stats = pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime")
                stats.print_stats(PROFILE_LINES)
            if wanted.json is not None:
                wanted.json.write_text(
                    json.dumps({"runs": found}, indent=1) + "\n", encoding="utf-8"
                )
    print(table(found))


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path, nargs="?", help="philly_jobs.csv.gz")
    parser.add_argument("topo", type=Path, nargs="?", help="topo.csv.gz of Lingjun")
    parser.add_argument("--loads", nargs="+", choices=[*HOSTS_OF_LOAD], default=[*HOSTS_OF_LOAD])
    parser.add_argument("--presets", nargs="+", choices=[*PRESETS], default=[*PRESETS])
    parser.add_argument("--jobs", type=int, help="how many jobs of the trace; all, if omitted")
    parser.add_argument("--unknown", action="store_true", help="nobody knows run times")
    parser.add_argument("--promise", action="store_true", help="each queue alone, too")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    return parser.parse_args()


if __name__ == "__main__":
    main()
