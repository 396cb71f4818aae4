"""The book of a real daemon is what a recount of its journal says, after kill -9, a clock that steps, and garbage."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gantree.formats import read_policy
from support.command_line import CommandLine
from support.daemon import Daemon
from support.gpu_exporters import GpuExporters
from support.recount import (
    DAY_S,
    DIMENSIONS,
    Answer,
    amiss,
    asked,
    by_name,
    months_of,
    recount,
    statement_figures,
    usage_figures,
)
from support.serving import serving

CLUSTER = """
name: two
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB, cpus: 32, memory_GiB: 256}}
nodes: [{names: "n[0-1]", machine: m2}]
"""
POLICY = """
queues: [{name: training}, {name: notebooks}]
evictions: {min_run: 0s, grace: 5s}
"""
SAVES = "trap 'echo 1 > $GANTREE_CHECKPOINT_ANSWER' USR1; while :; do sleep 0.05; done"
PARTS = "{gpu_share: 0.5, gpu_memory_GiB: 20, isolation: time-slicing}"
WHOLE = 4


def job(name: str, queue: str, each: str, script: str, more: str = "") -> str:
    run = json.dumps(["sh", "-c", script])
    gang = f"gang: [{{role: w, members: 1, each: {each}, run: {run}}}]"
    return f"name: {name}\nqueue: {queue}\nproject: {name[0]}\n{gang}\n{more}"


@pytest.fixture
def exporters() -> Iterator[GpuExporters]:
    with serving(GpuExporters({"n0": 2, "n1": 2})) as exporters:
        yield exporters


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def measured_gpu_hours(daemon: Daemon, name: str) -> float:
    """What exporters told of a job so far."""
    rows = {row["name"]: row for row in daemon.client.usage("job")["rows"]}
    return float(rows[name]["useful_gpu_hours"] + rows[name]["idle_gpu_hours"])


def test_the_book_is_what_a_recount_of_the_journal_says(
    tmp_path: Path, exporters: GpuExporters, gantree: CommandLine
) -> None:
    state = tmp_path / "state"
    daemon = Daemon(state, CLUSTER, POLICY, gpu_metrics=exporters.urls)
    daemon.prefix = ("clock", "-7200", "sampling", "reporting")
    submit = daemon.client.submit
    with daemon:
        submit(job("train", "training", "{gpus: 2}", SAVES, "checkpoint: {signal: SIGUSR1}\n"))
        submit(job("note", "notebooks", PARTS, "sleep 600"))
        submit(job("bad", "training", "{gpus: 1}", "sleep 0.3; exit 3", "restarts: 0\n"))
        submit(job("wide", "training", "{gpus: 2}", "sleep 600", "priority: serving\n"))
        daemon.wait("wide", until="running")
        until(lambda: measured_gpu_hours(daemon, "wide") > 0.0)
        daemon.kill()
        daemon.prefix = ("clock", "-3600", "sampling", "reporting")
        daemon.start()
        exporters.idle = frozenset({"n0", "n1"})
        told = measured_gpu_hours(daemon, "wide")
        until(lambda: measured_gpu_hours(daemon, "wide") > told)
        for name in ("train", "note", "wide"):
            daemon.client.cancel(name)
            daemon.wait(name)
        daemon.wait("bad")
        months = months_of(time.time() - DAY_S, time.time())
        words = ("--bill", "--json", "--state", state)

        def statements(by: str) -> list[Answer]:
            return [gantree("usage", "--by", by, "--month", each, *words).json() for each in months]

        (billed, answers), newest = asked(
            daemon.client,
            lambda: (list(map(statements, DIMENSIONS)), list(map(daemon.client.usage, DIMENSIONS))),
        )
    found, now = recount(state, read_policy(POLICY, "policy.yaml"), newest), answers[0]["until"]
    assert found.purposes.wrong == []
    for answer in answers:
        assert amiss(usage_figures(answer, found.amounts(answer["until"]))) == []
    for of_months in billed:
        assert amiss(statement_figures(of_months, found.amounts(now))) == []
    sums = by_name(found.amounts(now), "queue")
    assert sums["training"]["useful"] > 0.0 and sums["training"]["idle"] > 0.0
    assert sums["training"]["unmeasured"] > WHOLE * 3600.0 / 2, "the hour that nobody saw"
