"""Philly's 82,247 jobs on a sub-fabric of Lingjun with the whole model of running, and a trace of a million jobs.

    python benchmarks/philly_running.py TRACE TOPO [--load load70] [--preset gantree] [--jobs N] [--off] [--times N]
                                                   [--hosts N] [--bounded] [--seed N] [--json FILE]

TRACE is philly_jobs.csv.gz, TOPO topo.csv.gz of Lingjun. Philly names no models, so each job of two GPUs or more trains
one by its size: this exercises the model of running and says nothing of Philly. Leaves get up-links at half of what
their NICs carry, so that gangs share them. The targets are three minutes on one core with `gantree` on load70, and less
than 1 GB for a million jobs: `--times 13 --bounded` strings the trace together thirteen times (1,069,211 jobs);
`--hosts 312` are the 2,496 GPUs that Philly had, where nobody waits. `--off` runs without the model, `--bounded` keeps
rows on disk.
"""

import argparse
import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from gantree.formats import read_trace
from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster, Link
from gantree.model.jobs import Job, Transformer
from gantree.sim.lingjun.philly import gpu_s_of_queue, known_gang_of, shared_out, with_queues
from gantree.sim.lingjun.subfabric import GPUS_OF_HOST, HOSTS_OF_LOAD, first_hosts, read_fabric
from gantree.sim.run import simulate
from gantree.sim.running.model import RunningModel
from gantree.sim.running.reader import preset

LEAF_HOSTS = 16
HOST_GBps = 400.0
"""Eight NICs of 50 GB/s."""

SMALL = Transformer(1.3e9, 24, 2048, 2048, batch=64, sharded="optimizer")
LARGE = Transformer(7e9, 32, 4096, 4096, batch=128, sharded="parameters")


def trained(row: TraceJob) -> Job:
    """The job of a row; from two GPUs on it trains a model of GPT-3's table 2.1, or one of Llama's size from 16 on."""
    job = known_gang_of(row)
    if job.gpus < 2:
        return job
    model = LARGE if job.gpus >= 16 else SMALL
    return replace(job, trains=replace(model, batch=job.gpus * model.micro_batch * 4))


def with_uplinks(cluster: Cluster) -> Cluster:
    """The cluster with leaves of half the bandwidth of their hosts."""
    leaf = Link(HOST_GBps / GPUS_OF_HOST, 6, uplink_GBps=LEAF_HOSTS * HOST_GBps / 2)
    return replace(cluster, links={**cluster.links, "leaf": leaf})


def strung(trace: list[TraceJob], times: int) -> Iterator[TraceJob]:
    """The trace again and again, each time after its last submission."""
    span_s = trace[-1].submit_s + 1
    for turn in range(times):
        for row in trace:
            name = f"{row.job_id}.{turn}" if turn else row.job_id
            yield replace(row, job_id=name, submit_s=row.submit_s + turn * span_s)


def run(wanted: argparse.Namespace) -> dict[str, Any]:
    """One run: figures, seconds and the most memory that the process had."""
    trace = sorted(read_trace(wanted.trace)[: wanted.jobs], key=lambda row: row.submit_s)
    cluster = with_uplinks(
        first_hosts(read_fabric(wanted.topo), wanted.hosts or HOSTS_OF_LOAD[wanted.load])
    )
    owed = shared_out(len(cluster.nodes) * GPUS_OF_HOST, gpu_s_of_queue(trace))
    policy = with_queues(PRESETS[wanted.preset], owed, as_cells=False)
    began_s, began_cpu_s = perf_counter(), process_time()
    result = simulate(
        cluster,
        strung(trace, wanted.times),
        policy,
        running=RunningModel() if wanted.off else preset("realistic"),
        seed=wanted.seed,
        jobs=trained,
        bounded=wanted.bounded,
        progress=lambda ended, known: print(
            f"\r{ended}/{known} {memory_MiB():.0f} MiB", end="", file=sys.stderr
        ),
    )
    seconds, cpu_seconds = perf_counter() - began_s, process_time() - began_cpu_s
    return {
        "load": wanted.load,
        "preset": wanted.preset,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "summary": result.summary(),
        "memory_MiB": round(memory_MiB()),
    }


def memory_MiB() -> float:
    """The most that the process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print the figures."""
    wanted = arguments()
    if wanted.trace is None or wanted.topo is None:
        print("not measured: name the trace and the topology", file=sys.stderr)
        return
    text = json.dumps(run(wanted), indent=1)
    print(f"\n{text}")
    if wanted.json is not None:
        wanted.json.write_text(text + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path, nargs="?", help="philly_jobs.csv.gz")
    parser.add_argument("topo", type=Path, nargs="?", help="topo.csv.gz of Lingjun")
    parser.add_argument("--load", choices=[*HOSTS_OF_LOAD], default="load70")
    parser.add_argument("--hosts", type=int, help="of eight GPUs; those of the load, if omitted")
    parser.add_argument("--preset", choices=[*PRESETS], default="gantree")
    parser.add_argument("--jobs", type=int, help="how many jobs of the trace; all, if omitted")
    parser.add_argument(
        "--times", type=int, default=1, help="how often the trace is strung together"
    )
    parser.add_argument("--off", action="store_true", help="without the model of running")
    parser.add_argument("--bounded", action="store_true", help="rows on disk, ended jobs forgotten")
    parser.add_argument("--seed", type=int, default=0, help="of the model of running")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    return parser.parse_args()


if __name__ == "__main__":
    main()
