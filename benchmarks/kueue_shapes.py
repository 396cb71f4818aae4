"""Kueue's three performance shapes through our scheduler: time to admission, makespan, and what the core takes.

    python benchmarks/kueue_shapes.py [--shapes tas baseline large-scale] [--preset gantree] [--profile] [--json FILE]

The queues have Kueue's quotas, borrowing and reclaim. Beside our simulated times stand the lower bounds of
`sim.kueue.bound` and Kueue's figures, which are wall clock with an API server and controllers in it.
"""

import argparse
import cProfile
import json
import pstats
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from gantree.cli.output.printing import columns
from gantree.formats.policy.reader import PRESETS
from gantree.policy.rules import Policy
from gantree.sim.bench.stopwatch import Stopwatch
from gantree.sim.cluster import Overheads
from gantree.sim.kueue.figures import HEAD, lines, of_run
from gantree.sim.kueue.shapes import SHAPES, Shape
from gantree.sim.kueue.work import cluster_of, jobs_of, policy_of, trace_of
from gantree.sim.run import Simulation

TOLD_EVERY_S = 1.0
PROFILE_LINES = 35


def run(shape: Shape, base: Policy) -> dict[str, Any]:
    """One shape to its end."""
    simulation = Simulation(
        cluster_of(shape), trace_of(shape), policy_of(shape, base), Overheads(), jobs_of(shape)
    )
    watch = Stopwatch(simulation.scheduler)
    start_s, told_s, steps = perf_counter(), 0.0, 0
    while simulation.step():
        steps += 1
        seconds = perf_counter() - start_s
        if seconds - told_s >= TOLD_EVERY_S:
            told_s, ended = seconds, simulation.record.ended
            told = f"{ended}/{shape.workloads}, {simulation.now:.2f} s simulated in {seconds:.0f} s"
            print(f"\r{shape.name}: {told}", end="", file=sys.stderr, flush=True)
    print(f"\r{shape.name}: {perf_counter() - start_s:.0f} s, {steps} moments", file=sys.stderr)
    return of_run(shape, simulation.result(), watch.figures())


def main() -> None:
    """Print the table; write the figures after every shape."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shapes", nargs="+", choices=[*SHAPES], default=[*SHAPES])
    parser.add_argument("--preset", choices=[*PRESETS], default="gantree")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    wanted = parser.parse_args()
    profile = cProfile.Profile()
    if wanted.profile:
        profile.enable()
    found: list[dict[str, Any]] = []
    for name in wanted.shapes:
        found.append(run(SHAPES[name], PRESETS[wanted.preset]))
        if wanted.json is not None:
            wanted.json.write_text(json.dumps({"shapes": found}, indent=1) + "\n", encoding="utf-8")
    if wanted.profile:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(PROFILE_LINES)
    print(columns(HEAD, [line for each in found for line in lines(each)]))


if __name__ == "__main__":
    main()
