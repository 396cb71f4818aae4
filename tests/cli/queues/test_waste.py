"""`gantree waste` on a daemon with real processes: what they lost, and what they use of their hosts."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.queues.waste import reprice
from gantree.executors.local.host_use import host_use_in
from gantree.executors.local.run_directory import RunDirectory
from gantree.topology.hardware.prices import PriceList, Quote
from support.command_line import CommandLine
from support.daemon import Daemon

Complaints = Callable[[Any, str], list[str]]

CLUSTER = """
name: large
tiers: [node]
machines: {m64: {gpus: 64, gpu: H100-80GB, cpus: 128, memory_GiB: 512}}
nodes: [{names: "n[0-7]", machine: m64}]
"""
JOB = """
name: {name}
user: {user}
queue: {queue}
project: {user}-project
restarts: 0
gang: [{{role: w, members: {members}, each: {{gpus: {gpus}, cpus: 8, memory_GiB: 64}}, run: {run}}}]
"""
FAIL = "until [ -e go ]; do sleep 0.1; done; sleep 1; exit 1"
BURN = "for ((i = 0; i < 200000; i++)); do :; done; echo > burnt; exec sleep 600"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A job on 448 GPUs that fails a second after it is seen running, and one that has used some CPU and goes on."""
    place = tmp_path_factory.mktemp("waste")
    os.mkfifo(place / "burnt")
    with Daemon(place / "state", CLUSTER) as daemon:
        for name, user, queue, members, gpus, shell in (
            ("lost", "ann", "x/y", 7, 64, f"cd {place}; {FAIL}"),
            ("burnt", "bob", "x", 1, 1, f"cd {place}; {BURN}"),
        ):
            run = json.dumps(["bash", "-c", shell])
            text = JOB.format(
                name=name, user=user, queue=queue, members=members, gpus=gpus, run=run
            )
            daemon.client.submit(text)
        daemon.wait("lost", until="running")
        (place / "go").touch()
        daemon.wait("lost")
        (place / "burnt").read_text(encoding="ascii")  # a pipe: until it is written to
        yield daemon


def test_what_was_lost_is_named_with_its_remedy_as_table_csv_and_json(
    gantree: CommandLine, daemon: Daemon, complaints: Complaints, tmp_path: Path
) -> None:
    command = partial(gantree, "waste", "--state", daemon.state_dir)
    lines = command().out.splitlines()
    assert lines[0].split() == ["JOB", "HELD", "h", "WASTED", "h", "COST", "REASON"]
    assert lines[1].split()[0] == "lost"
    assert "work done again: 0." in lines[1]
    assert lines[1].endswith("GPU-hours, no checkpoint declared")
    assert lines[2].split()[0] == "all" and lines[2].endswith("of what was held")
    assert lines[3].startswith("lost: Declare `checkpoint` in the job")
    for by, name in (
        ("job", "lost"),
        ("user", "ann"),
        ("queue", "x/y"),
        ("project", "ann-project"),
    ):
        report = command("--by", by, "--json").json()
        assert complaints(report, "waste") == []
        (row,) = report["rows"]
        assert (row["name"], row["kind"], row["user"]) == (name, "redone", "ann")
        assert row["USD"] == pytest.approx(6.88 * row["wasted_gpu_hours"])
        assert report["sum"]["jobs"] == 2
    (written,) = csv.DictReader(io.StringIO(command("--csv").out))
    assert (written["job"], written["queue"], written["kind"]) == ("lost", "x/y", "redone")
    head = command("--by", "queue", "--csv").out.splitlines()[0].split(",")
    assert head[0] == "queue" and len(head) == len(set(head))
    prices = tmp_path / "prices.yaml"
    prices.write_text("gpus: {H100-80GB: {on_demand: 1, source: us, date: 2026-11-01}}\n")
    (row,) = command(f"--prices={prices}", "--json").json()["rows"]
    assert row["USD"] == pytest.approx(row["wasted_gpu_hours"])


def test_other_prices_decide_which_rows_are_the_dearest() -> None:
    def row(name: str, model: str, hours: float, cpu_hours: float = 0.0) -> dict[str, Any]:
        return {
            "name": name,
            "wasted_gpu_hours": hours,
            "wasted_gpu_hours_of_model": {model: hours} if hours else {},
            "unused_cpu_hours": cpu_hours,
        }

    rows = [
        row("old", "A", 3.0),
        row("few", "", 0.0, 1.0),
        row("many", "", 0.0, 9.0),
        row("new", "B", 2.0),
    ]
    whole: dict[str, Any] = {"wasted_gpu_hours_of_model": {"A": 3.0, "B": 2.0}}
    report: dict[str, Any] = {"rows": rows, "left_out": 1, "sum": whole}
    quotes = [Quote(gpu, "on_demand", USD, "2026-11-01", "us") for gpu, USD in (("A", 1), ("B", 9))]
    reprice(report, PriceList(quotes), 3)
    assert [each["name"] for each in report["rows"]] == ["new", "old", "many"]
    assert (report["left_out"], report["sum"]["USD"]) == (2, 21.0)


def test_cpu_time_and_memory_are_those_of_the_processes_while_they_run_and_at_their_end(
    daemon: Daemon,
) -> None:
    runs = daemon.state_dir / "runs"
    (job,) = (each["job"] for each in daemon.client.jobs() if each["name"] == "burnt")
    while_running = host_use_in(RunDirectory(runs, job, 1))
    assert while_running is not None
    assert 0.1 < while_running.cpu_s < while_running.ran_s + 1
    assert 0.0005 < while_running.memory_GiB < 1
    daemon.client.cancel(job)
    daemon.wait("burnt")
    at_end = host_use_in(RunDirectory(runs, job, 1))
    assert at_end is not None
    assert while_running.cpu_s <= at_end.cpu_s + 0.1
    assert at_end.memory_GiB > 0.0005 and at_end.ran_s >= while_running.ran_s
    assert host_use_in(RunDirectory(runs, "nobody", 1)) is None
