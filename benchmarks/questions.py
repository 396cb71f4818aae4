"""What long questions cost the turns beside them, with and without a reader, and what the reader costs in memory.

    python benchmarks/questions.py [--live 20000] [--submissions 60] [--askers 2] [--json]

Builds a SQLite journal (`restart.py`) with so many live jobs on 16,384 GPUs, of which half run and half wait, and
drives it with a controller, its loop and a reader, as a daemon does; the cluster is one that only writes down what it
is told. First each kind of question is asked a few times, and what the reader and its forks spend of a processor on one
is counted: `cpu` where the reader itself answers, `cpu_apart` where a fork of it does. Then jobs are handed in one
after the other, each timed from the call to the turn that decided about it: alone, then while what-ifs with two changes
are asked all the time on the controller's thread, then the same of the reader. `--only-questions` leaves these out.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.backend import Backend
from gantree.api.views import queries
from gantree.api.views.job_list import Filter
from gantree.control.engine.controller import Controller
from gantree.control.engine.group_commit import GroupCommit
from gantree.control.engine.loop import Loop
from gantree.control.readers.frames import FollowJournal, QueryMode
from gantree.control.readers.host import ReaderHost, fork_host
from gantree.control.readers.server import serve
from gantree.control.readers.supervisor import ReaderSupervisor
from gantree.control.requests.submissions import JobSubmission
from gantree.core.alternatives import Change
from gantree.journal.sqlite import SqliteJournal, SqliteReader
from gantree.model.cluster import Cluster
from gantree.testing.builders import job
from restart import POLICY, Running, build

ANYBODY = Caller("op", EVERYTHING, "socket")
PAGE = 100
REPEATS = 5
CHANGES: list[Change] = [(("topology.required", "leaf"),), (("priority", 300),)]
Figures = dict[str, float]


async def submissions(group_commit: GroupCommit, count: int, name: str) -> list[float]:
    """Seconds of each."""
    took = []
    for number in range(count):
        began = time.perf_counter()
        await group_commit.submit(
            JobSubmission((job(f"{name}-{number}", gpus=8),), "/tmp", {}, "user-1")
        )
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.02)
    return took


async def asked_all_the_time(
    ask: Callable[[], Awaitable[Any]], meanwhile: Awaitable[list[float]], askers: int
) -> tuple[list[float], list[float]]:
    """Seconds of what happens meanwhile, and of each question."""
    took: list[float] = []

    async def on_and_on() -> None:
        while True:
            began = time.perf_counter()
            await ask()
            took.append(time.perf_counter() - began)

    asking = [asyncio.create_task(on_and_on()) for _ in range(askers)]
    found = await meanwhile
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    return found, took


def of(name: str, took: list[float]) -> Figures:
    ranked = sorted(took) or [0.0]
    return {
        f"{name}_median_s": statistics.median(ranked),
        f"{name}_p95_s": ranked[int(0.95 * (len(ranked) - 1))],
        f"{name}_worst_s": ranked[-1],
        f"{name}_count": float(len(took)),
    }


def memory(pid: int) -> Figures:
    """MB of a process: all that it sees, and its share of what several see."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kB = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {"rss_MB": kB["Rss"] / 1024, "pss_MB": kB["Pss"] / 1024}


def spent_s(pid: int) -> float:
    """Seconds of a processor that a process has taken, and those that it forked and that have ended."""
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")


def cases(
    waiting: str,
) -> list[tuple[str, Callable[..., Any], tuple[Any, ...], tuple[QueryMode, ...]]]:
    """What is asked: a name, a function with what it gets, and where the reader may answer it."""
    both, apart = (QueryMode.INLINE, QueryMode.FORKED), (QueryMode.FORKED,)
    return [
        ("page", queries.jobs, (ANYBODY, Filter(), None, PAGE), (QueryMode.INLINE,)),
        ("list", queries.jobs, (ANYBODY, Filter(), None, None), (QueryMode.INLINE,)),
        ("queues", queries.queues, (ANYBODY,), (QueryMode.INLINE,)),
        ("nodes", queries.nodes, (ANYBODY,), (QueryMode.INLINE,)),
        ("why", queries.explained, (ANYBODY, waiting), both),
        ("when", queries.start, (ANYBODY, waiting), both),
        ("what_if", queries.what_if, (ANYBODY, waiting, CHANGES), apart),
    ]


async def one_by_one(backend: Backend, readers: ReaderSupervisor, waiting: str) -> Figures:
    """Milliseconds of each kind of question, median of REPEATS, and of a processor."""
    found: Figures = {}
    for name, function, given, places in cases(waiting):
        log(name)
        for where in places:
            at = await backend.call_controller(lambda asked: asked.read_view().at)
            took = []
            assert readers.pid is not None
            before_s = spent_s(readers.pid)
            for _ in range(REPEATS):
                began = time.perf_counter()
                await readers.query(at, function, *given, mode=where)
                took.append(time.perf_counter() - began)
            kind = "_apart" if where is QueryMode.FORKED else ""
            found[f"{name}{kind}_ms"] = 1e3 * statistics.median(took)
            found[f"{name}_cpu{kind}_ms"] = 1e3 * (spent_s(readers.pid) - before_s) / REPEATS
    return found


def log(what: str) -> None:
    print(f"{time.perf_counter():.1f} {what}", file=sys.stderr, flush=True)


async def beside_submissions(
    backend: Backend, options: argparse.Namespace, waiting: str
) -> dict[str, Figures]:
    """Submissions alone, and beside what-ifs on the controller's thread and of the reader."""
    group_commit = GroupCommit(backend.loop, backend.controller)
    log("alone")
    found = {
        "alone": of("submission", await submissions(group_commit, options.submissions, "alone"))
    }
    for kind, asked in (
        ("controller", Backend(backend.loop, backend.controller, 0.0)),
        ("reader", backend),
    ):
        log(kind)
        took, questions_took = await asked_all_the_time(
            lambda: asked.read_forked(queries.what_if, ANYBODY, waiting, CHANGES, asker=""),  # noqa: B023 - awaited in this round
            submissions(group_commit, options.submissions, kind),
            options.askers,
        )
        found[kind] = of("submission", took) | of("what_if", questions_took)
    return found


async def measure(
    state: Path, host: ReaderHost, options: argparse.Namespace, waiting: str
) -> dict[str, Figures]:
    loop, journal, clusters = Loop(), SqliteJournal(state), list[Running]()

    def make(known: Cluster, emit: Any, clock: Any) -> Running:
        clusters.append(Running(known, emit, clock))
        return clusters[0]

    def start() -> Controller:
        controller = Controller(journal, POLICY, make, wake=loop.wake)
        clusters[0].controller = controller
        controller.recover()
        return controller

    controller = await loop.call(start)
    stepping = asyncio.create_task(loop.run(controller))
    began = time.perf_counter()
    readers = ReaderSupervisor(host, FollowJournal(partial(SqliteReader, state), POLICY))
    readers.start()
    while not readers.is_ready:
        await asyncio.sleep(0.01)
    found: dict[str, Figures] = {"reader": {"ready_after_s": time.perf_counter() - began}}
    backend = Backend(loop, controller, time.time(), readers)
    found["questions"] = await one_by_one(backend, readers, waiting)
    if not options.only_questions:
        found |= await beside_submissions(backend, options, waiting)
    assert readers.pid is not None
    found["memory of the daemon"], found["memory of the reader"] = (
        memory(os.getpid()),
        memory(readers.pid),
    )
    readers.close()
    loop.stop()
    await stepping
    await loop.call(journal.close)
    loop.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", type=int, default=20_000)
    parser.add_argument("--facts", type=int, default=60_000)
    parser.add_argument("--submissions", type=int, default=60)
    parser.add_argument("--askers", type=int, default=2)
    parser.add_argument("--only-questions", action="store_true", help="without the submissions")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    host = fork_host(serve, list)
    with tempfile.TemporaryDirectory() as place:
        if os.fork() == 0:  # what building leaves in memory is not the daemon's
            build(SqliteJournal(Path(place)), asked.facts, asked.live, asked.live // 2)
            os._exit(0)
        os.wait()
        waiting = f"train-{asked.live - 1}"
        found = asyncio.run(measure(Path(place), host, asked, waiting))
    if asked.json:
        print(json.dumps(found))
        return
    for group, figures in found.items():
        for name, value in figures.items():
            print(f"{group:22} {name:26} {value:10.3f}")


if __name__ == "__main__":
    main()
