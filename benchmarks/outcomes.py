"""What every preset makes of ten windows of Philly, Muri's traces and Kueue's shapes; and two versions compared.

    python benchmarks/outcomes.py run FILE [--philly philly_jobs.csv.gz --topo topo.csv.gz] [--muri DIR] [--kueue]
                                           [--windows 0 1 ...] [--presets NAME ...] [--workers N]
    python benchmarks/outcomes.py table FILE
    python benchmarks/outcomes.py compare BEFORE AFTER

`run` appends one line of JSON a run to FILE and skips the runs that stand there, so it may be stopped and called again.
Window k is 2,000 jobs of Philly from number 8,000 k on, on as many Lingjun hosts as make its offered load 1.05; every
queue is guaranteed its share of the window's GPU-hours, and run times are known. A stop is in vain if the stopped job
starts again before the job that it was stopped for. `compare` pools the windows of a preset: the difference of the
mean over that of before, with a 95 % interval by Student's t over the paired windows. The gate is that the interval
begins below +3 %.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import ceil, sqrt
from pathlib import Path
from time import perf_counter
from typing import Any

from gantree.cli.output.printing import columns
from gantree.core.scheduler import Decision
from gantree.formats import read_trace
from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.events import Event
from gantree.model.facts import Fact, GangPlaced, GangPreempted
from gantree.sim.bench.stopwatch import Stopwatch
from gantree.sim.cluster import Overheads
from gantree.sim.kueue.shapes import SHAPES
from gantree.sim.kueue.work import cluster_of, jobs_of, policy_of
from gantree.sim.kueue.work import trace_of as trace_of_kueue
from gantree.sim.lingjun.philly import gpu_s_of_queue, known_gang_of, shared_out, with_queues
from gantree.sim.lingjun.subfabric import GPUS_OF_HOST, first_hosts, read_fabric
from gantree.sim.muri.ours import cluster_of_muri, known_job_of, overheads_of
from gantree.sim.muri.ours import trace_of as trace_of_muri
from gantree.sim.muri.trace import read_muri
from gantree.sim.run import Simulation

WINDOWS = 10
JOBS_OF_WINDOW = 2_000
JOBS_BETWEEN_WINDOWS = 8_000
LOAD = 1.05
FEWEST_HOSTS = 8
"""As many as the largest job of a window needs, and a few more."""
MURI_TRACES = ("trace3", "trace4")
KUEUE_SHAPES = ("tas", "baseline")
CELLS = "cells"
REMAINING_WORK = ("srsf",)
"""Presets that order by remaining work; the gate is not for them."""
GATE = 0.03
T_95 = (0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for a two-sided 95 % interval by degrees of freedom (any table, such as NIST's 1.3.6.7.2)."""

HEAD = (
    "WORK", "PRESET", "RUNS", "WAIT s", "p99", "JCT s", "p99", "PREEMPTED", "GPU-H LOST", "IN VAIN",
    "CORE s", "ms", "p99",
)  # fmt: skip


class StopsInVain:
    """Counts, from facts, the stops that gave room to nobody before the stopped job started again."""

    def __init__(self) -> None:
        self.count = 0
        self._by_of_victim: dict[str, str] = {}

    def note(self, facts: Sequence[Fact]) -> None:
        """The facts of one decision, in order."""
        for fact in facts:
            if isinstance(fact, GangPreempted):
                self._by_of_victim[fact.job] = fact.by
            elif isinstance(fact, GangPlaced):
                self.count += self._by_of_victim.pop(fact.job, None) is not None
                for victim in [v for v, by in self._by_of_victim.items() if by == fact.job]:
                    del self._by_of_victim[victim]


def simulated(simulation: Simulation) -> dict[str, Any]:
    """One run to its end, in figures."""
    watch, vain = Stopwatch(simulation.scheduler), StopsInVain()
    handle = simulation.scheduler.handle

    def noted(events: Sequence[Event]) -> Decision:
        decision = handle(events)
        vain.note(decision.facts)
        return decision

    simulation.scheduler.handle = noted  # type: ignore[method-assign]  # the loop shall not know
    start_s = perf_counter()
    while simulation.step():
        pass
    summary = simulation.result().summary()
    return {
        "jobs": summary["jobs"],
        "finished": summary["finished"],
        "wait_s": summary["wait_s"],
        "jct_s": summary["jct_s"],
        "makespan_s": summary["makespan_s"],
        "preemptions": summary["preemptions"],
        "gpu_hours_lost": summary["gpu_hours_lost"],
        "stops_in_vain": vain.count,
        "core": watch.figures(),
        "seconds": round(perf_counter() - start_s, 1),
    }


def hosts_of(trace: Sequence[TraceJob]) -> int:
    """Hosts at which the jobs ask for LOAD times the GPUs from the first submission to the last."""
    span_s = max(row.submit_s for row in trace) - min(row.submit_s for row in trace)
    gpus = sum(gpu_s_of_queue(trace).values()) / span_s / LOAD
    largest = max(row.members * row.gpus_per_member for row in trace)
    return max(FEWEST_HOSTS, ceil(largest / GPUS_OF_HOST), round(gpus / GPUS_OF_HOST))


def window_of(philly: Path, topo: Path, number: int, preset: str) -> dict[str, Any]:
    """A window of Philly."""
    first = number * JOBS_BETWEEN_WINDOWS
    trace = read_trace(philly)[first : first + JOBS_OF_WINDOW]
    cluster = first_hosts(read_fabric(topo), hosts_of(trace))
    owed = shared_out(len(cluster.nodes) * GPUS_OF_HOST, gpu_s_of_queue(trace))
    policy = with_queues(PRESETS[preset], owed, as_cells=preset == CELLS)
    return simulated(Simulation(cluster, trace, policy, Overheads(), known_gang_of))


def muri(directory: Path, trace: str, preset: str) -> dict[str, Any]:
    """One of Muri's traces, where starts alone cost something."""
    jobs = read_muri(directory, trace)
    overheads = overheads_of(jobs, "start")
    return simulated(
        Simulation(cluster_of_muri(), trace_of_muri(jobs), PRESETS[preset], overheads, known_job_of)
    )


def kueue(name: str, preset: str) -> dict[str, Any]:
    """One of Kueue's performance shapes."""
    shape = SHAPES[name]
    policy = policy_of(shape, PRESETS[preset])
    return simulated(
        Simulation(cluster_of(shape), trace_of_kueue(shape), policy, Overheads(), jobs_of(shape))
    )


Task = tuple[str, str, Callable[..., dict[str, Any]], tuple[Any, ...]]


def tasks(wanted: argparse.Namespace) -> Iterator[Task]:
    """Every run that was asked for: work, preset, function and arguments. Windows go preset by preset."""
    for preset in wanted.presets:
        if wanted.muri is not None:
            for trace in MURI_TRACES:
                yield f"muri {trace}", preset, muri, (wanted.muri, trace, preset)
    for number in wanted.windows if wanted.philly is not None and wanted.topo is not None else ():
        for preset in wanted.presets:
            where = (wanted.philly, wanted.topo, number, preset)
            yield f"philly window {number}", preset, window_of, where
    if wanted.kueue:
        for name in KUEUE_SHAPES:
            for preset in wanted.presets:
                yield f"kueue {name}", preset, kueue, (name, preset)


def run(wanted: argparse.Namespace) -> None:
    """Every run that FILE does not have yet; a line is written as soon as its run has ended."""
    there = {(each["work"], each["preset"]) for each in read(wanted.file)}
    left = [task for task in tasks(wanted) if task[:2] not in there]
    with ProcessPoolExecutor(wanted.workers) as pool:
        running = {
            pool.submit(function, *more): (work, preset) for work, preset, function, more in left
        }
        for done in as_completed(running):
            work, preset = running[done]
            found = {"work": work, "preset": preset, **done.result()}
            with wanted.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{work}, {preset}: {found['seconds']} s", file=sys.stderr)


def read(path: Path) -> list[dict[str, Any]]:
    """The runs of a file; none of one that is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def kind_of(each: dict[str, Any]) -> str:
    """Windows of Philly are one kind of work."""
    work: str = each["work"]
    return "philly" if work.startswith("philly") else work


def pooled(runs: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Runs by kind of work and preset."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in runs:
        found.setdefault((kind_of(each), each["preset"]), []).append(each)
    return found


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Means over the runs of a kind; stops and seconds are sums."""
    return columns(HEAD, [line(*key, each) for key, each in sorted(pooled(runs).items())])


def line(work: str, preset: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    """One row."""

    def mean(*path: str) -> float:
        return statistics.fmean(value(each, *path) for each in runs)

    def total(*path: str) -> float:
        return sum(value(each, *path) for each in runs)

    return [
        work,
        preset,
        str(len(runs)),
        f"{mean('wait_s', 'mean'):.1f}",
        f"{mean('wait_s', 'p99'):.0f}",
        f"{mean('jct_s', 'mean'):.1f}",
        f"{mean('jct_s', 'p99'):.0f}",
        f"{total('preemptions'):.0f}",
        f"{total('gpu_hours_lost'):.0f}",
        f"{total('stops_in_vain'):.0f}",
        f"{total('core', 'seconds'):.0f}",
        f"{total('core', 'seconds') / total('core', 'calls') * 1e3:.2f}",
        f"{mean('core', 'p99_ms'):.1f}",
    ]


def value(each: dict[str, Any], *path: str) -> float:
    """A figure deep inside; 0 where there was nothing to average."""
    found: Any = each
    for name in path:
        found = found[name]
    return float(found or 0.0)


def compare(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> str:
    """Each preset's pooled paired difference over the windows of Philly that both have."""
    was = {(each["work"], each["preset"]): each for each in before if kind_of(each) == "philly"}
    rows = []
    for (kind, preset), runs in sorted(pooled(after).items()):
        pairs = [
            (was[each["work"], preset], each) for each in runs if (each["work"], preset) in was
        ]
        if kind != "philly" or not pairs:
            continue
        rows += [
            [preset, what, str(len(pairs)), *verdict(preset, what, pairs)]
            for what in ("wait_s", "jct_s")
        ]
    return columns(("PRESET", "MEAN OF", "WINDOWS", "CHANGE", "95 %", "GATE"), rows)


def verdict(
    preset: str, what: str, pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]
) -> list[str]:
    """Change, half of the interval, and whether the gate is kept."""
    base = statistics.fmean(value(old, what, "mean") for old, _ in pairs)
    changes = [(value(new, what, "mean") - value(old, what, "mean")) / base for old, new in pairs]
    change = statistics.fmean(changes)
    half = (
        T_95[len(changes) - 1] * statistics.stdev(changes) / sqrt(len(changes))
        if len(changes) > 1
        else float("inf")
    )
    gate = "-" if preset in REMAINING_WORK else "kept" if change - half <= GATE else "MISSED"
    return [f"{change:+.1%}", f"+-{half:.1%}", gate]


def main() -> None:
    """Run, print a table, or compare."""
    wanted = arguments()
    if wanted.what == "run":
        run(wanted)
        print(table(read(wanted.file)))
    elif wanted.what == "table":
        print(table(read(wanted.file)))
    else:
        print(compare(read(wanted.before), read(wanted.after)))


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="what", required=True)
    running = verbs.add_parser("run", help="run what FILE does not have yet")
    running.add_argument("file", type=Path, help="JSON, one line a run")
    running.add_argument("--philly", type=Path, help="philly_jobs.csv.gz")
    running.add_argument("--topo", type=Path, help="topo.csv.gz of Lingjun")
    running.add_argument("--muri", type=Path, help="directory of Muri's traces")
    running.add_argument("--kueue", action="store_true", help="Kueue's shapes")
    running.add_argument("--windows", nargs="+", type=int, default=[*range(WINDOWS)])
    running.add_argument("--presets", nargs="+", choices=[*PRESETS], default=[*PRESETS])
    running.add_argument("--workers", type=int, help="processes; as many as cores, if omitted")
    verbs.add_parser("table", help="print what FILE has").add_argument("file", type=Path)
    comparing = verbs.add_parser("compare", help="two versions, paired window by window")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
