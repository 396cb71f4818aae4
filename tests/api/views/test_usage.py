"""Usage over the API and on the command line: sums that agree, whom they are told to, after a restart as before."""

import csv
import io
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gantree.accounting.buckets import DAY_S, HOUR_S, Bucket
from gantree.accounting.change import HistoryChange
from gantree.accounting.usage import CountedTo, UsageAmounts, UsageChange, UsageKey
from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.client.client import Client
from gantree.api.views.accounting import usage_history_view
from gantree.api.views.accounting.usage_view import NOT_HELD, By, usage
from gantree.control.history.recorder import HistoryRecorder
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.core.scheduler import Scheduler
from gantree.journal.sqlite import SqliteJournal
from gantree.model.access import grant_of
from gantree.model.errors import BadFields
from gantree.policy.amounts import SHARE
from gantree.testing.builders import cluster, job
from gantree.testing.journal_contract import ended, led
from gantree.testing.stage import Stage
from support.command_line import CommandLine
from support.daemon import Daemon

CLUSTER = """
name: two
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}, t2: {gpus: 2, gpu: T4-16GB}}
nodes: [{names: n0, machine: m2}, {names: n1, machine: t2}]
"""
JOB = """
name: {name}
user: {user}
queue: {queue}
{project}
gang: [{{role: w, members: 1, gpu: {gpu}, each: {{gpus: 2}}, run: {run}}}]
"""
GROUPED: tuple[By, ...] = ("user", "queue", "model", "project", "device")
FIGURES = ("held_gpu_hours", "wasted_gpu_hours", "waited_hours", "USD", "unpriced_gpu_hours")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("usage") / "state", CLUSTER) as daemon:
        for name, user, queue, gpu, project, run in (
            ("a", "ann", "x/y", "H100-80GB", "project: llm", ["sleep", "0.2"]),
            ("b", "bob", "x", "T4-16GB", "", ["sleep", "600"]),
        ):
            told = {"name": name, "user": user, "queue": queue, "gpu": gpu, "project": project}
            daemon.client.submit(JOB.format(**told, run=json.dumps(run)))
        daemon.wait("a")
        daemon.wait("b", until="running")
        yield daemon


def close(one: dict[str, Any], other: dict[str, Any], within: float = 1e-3) -> bool:
    return all(one[name] == pytest.approx(other[name], abs=within) for name in FIGURES)


def test_sums_by_anything_are_the_same_and_outlive_the_daemon(daemon: Daemon) -> None:
    client: Client = daemon.client
    began = time.monotonic()
    told = {by: client.usage(by) for by in (*GROUPED, "job")}
    meanwhile = 2 * (time.monotonic() - began) / HOUR_S  # what `b`, which goes on, has held
    assert {row["name"] for row in told["user"]["rows"]} == {"ann", "bob"}
    assert {row["name"] for row in told["queue"]["rows"]} == {"x/y", "x"}
    assert {row["name"] for row in told["project"]["rows"]} == {"llm", ""}
    assert {row["name"] for row in told["device"]["rows"]} == {""}
    assert {"H100-80GB", "T4-16GB"} <= {row["name"] for row in told["model"]["rows"]}
    (a,) = (row for row in told["job"]["rows"] if row["name"] == "a")
    assert (a["user"], a["queue"], a["phase"]) == ("ann", "x/y", "succeeded")
    assert 0.2 * 2 / HOUR_S <= a["held_gpu_hours"] < 600 / HOUR_S
    assert a["USD"] == pytest.approx(6.88 * a["held_gpu_hours"])
    for each in told.values():
        assert close(each["sum"], told["user"]["sum"], 1e-3 + meanwhile)
        assert each["sum"]["unpriced_gpu_hours"] > 0
    daemon.kill()
    daemon.start()
    (again,) = (row for row in client.usage("job")["rows"] if row["name"] == "a")
    assert again == a


def test_the_command_prints_a_table_csv_and_other_prices(
    gantree: CommandLine, daemon: Daemon, tmp_path: Path
) -> None:
    command = partial(gantree, "usage", "--state", daemon.state_dir)
    table = command("--by", "queue", "--since", "36h").out.splitlines()
    assert table[0].startswith("useful 0% of ")
    assert " allocated GPU-hours (unmeasured " in table[0], "there are no counters"
    assert "stranded 0%" in table[0]
    assert table[1].split()[:6] == ["QUEUE", "GPU-HOURS", "USEFUL", "%", "IDLE", "LOST"]
    assert table[4].startswith("all ")
    assert "without a price" in table[5]
    month = command("--month", datetime.now(UTC).strftime("%Y-%m"), "--json").json()
    assert datetime.fromtimestamp(month["since"], UTC).day == 1
    assert month["rows"]
    leap = command("--month", "2024-02", "--json").json()
    assert (leap["until"] - leap["since"]) / DAY_S == 29, "no day of March is in it"
    assert "allowed: a month such as" in command("--month", "11/2026").err
    rows = list(csv.DictReader(io.StringIO(command("--by=model", "--csv").out)))
    assert {row["model"] for row in rows} >= {"H100-80GB", "T4-16GB"}
    prices = tmp_path / "prices.yaml"
    prices.write_text("gpus: {T4-16GB: {on_demand: 1, source: us, date: 2026-11-01}}\n")
    told = command("--by=model", f"--prices={prices}", "--json").json()
    (t4,) = (row for row in told["rows"] if row["name"] == "T4-16GB")
    assert (t4["USD"], t4["unpriced_gpu_hours"]) == (t4["held_gpu_hours"], 0)
    wrong = command("--since", "yesterday")
    assert wrong.code == 2
    assert "2026-11-01" in wrong.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--csv", "--json"), "--csv and --json: choose one"),
        (("--json", "--bill", "--csv"), "--csv and --json: choose one"),
        (("--gpus", "--by", "user"), "--by: --gpus shows the running jobs as they are now"),
        (("--gpus", "--month", "2026-11"), "--month: --gpus shows"),
        (("--gpus", "--csv", "--json"), "--csv and --json: choose one"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    gantree: CommandLine, daemon: Daemon, words: tuple[str, ...], says: str
) -> None:
    refused = gantree("usage", *words, "--state", daemon.state_dir)
    assert (refused.code, refused.out) == (2, "")
    assert says in refused.err


def test_what_is_no_moment_is_refused(daemon: Daemon) -> None:
    with pytest.raises(BadFields, match="by"):
        daemon.client.usage("colour")
    assert daemon.client.usage(since=0, until=0)["rows"] == []


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadView]:
    """Two users in a queue and one below it, a day and a bit, of whom one waits."""
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.now = DAY_S - HOUR_S
    recorder = HistoryRecorder(stage.scheduler.ledger, stage.now, CountedTo())
    for name, user, queue in (("a", "ann", "x"), ("b", "bob", "x/y"), ("c", "ann", "z")):
        decision = stage.submit(replace(job(name, gpus=8), user=user, queue=queue))
        for index, fact in enumerate(decision.facts):
            recorder.note(index, fact, stage.scheduler.ledger)
    recorder.settle(stage.scheduler.ledger)
    stage.now += 2 * HOUR_S
    journal = SqliteJournal(tmp_path_factory.mktemp("reading"))
    journal.commit_turn(0, [ended(1)], [], led(journal), recorder.taken())
    ledger, point = stage.scheduler.ledger, ReadPoint(1, stage.now)
    yield ReadView(ledger, journal, point, lambda policy: stage.scheduler)
    journal.close()


def test_useful_and_idle_hours_of_shares_are_estimates(tmp_path: Path) -> None:
    journal, devices = SqliteJournal(tmp_path), ("", SHARE, "1g.10gb")
    amounts = UsageAmounts(allocated_gpu_s=HOUR_S, useful_gpu_s=HOUR_S / 2, idle_gpu_s=HOUR_S / 4)
    keys = [UsageKey("x", "ann", "H100-80GB", device=device) for device in devices]
    counted = UsageChange({(Bucket(60, 0), key): amounts for key in keys}, {}, {}, 60.0, True)
    journal.commit_turn(0, [ended(1)], [], led(journal), HistoryChange(usage=counted))
    ledger = Stage(cluster()).scheduler.ledger
    view = ReadView(ledger, journal, ReadPoint(1, 60.0), Scheduler)
    told = usage(view, Caller("op", EVERYTHING, "tcp"), "device", 0.0, None, 100)
    assert {row["name"]: row["estimated_gpu_hours"] for row in told["rows"]} == {
        "": 0.0, SHARE: 0.75, "1g.10gb": 0.0,
    }  # fmt: skip
    assert told["sum"]["estimated_gpu_hours"] == 0.75
    journal.close()


def test_jobs_that_came_after_a_period_have_no_row_in_it(reading: ReadView) -> None:
    boss = Caller("op", EVERYTHING, "tcp")
    for until, jobs in ((-1.0, []), (DAY_S - 1.0, ["a", "b", "c"])):
        rows = usage(reading, boss, "job", -DAY_S, until, 100)["rows"]
        assert [row["name"] for row in rows] == jobs


@pytest.mark.parametrize(
    ("who", "grants", "held", "waited"),
    [
        ("op", EVERYTHING, 32.0, 2.0),
        ("ann", (grant_of("user"),), 16.0, 2.0),
        ("bob", (grant_of("user"),), 16.0, 0.0),
        ("eve", (grant_of("user"),), 0.0, 0.0),
        ("eve", (grant_of("viewer", "x"),), 32.0, 0.0),
        ("eve", (grant_of("queue_admin", "x/y"),), 16.0, 0.0),
        ("ann", (grant_of("viewer", "z"),), 0.0, 2.0),
    ],
)
def test_each_is_told_of_the_jobs_that_he_may_see(
    reading: ReadView, who: str, grants: Any, held: float, waited: float
) -> None:
    for by in (*GROUPED, "job"):
        told = usage(reading, Caller(who, grants, "tcp"), by, 0.0, None, 100)
        assert told["sum"]["held_gpu_hours"] == pytest.approx(held), by
        assert told["sum"]["waited_hours"] == pytest.approx(waited), by
        assert (told["capacity"] is not None) == (who == "op")


def test_all_that_there_was_is_for_some_purpose(reading: ReadView) -> None:
    told = usage(reading, Caller("op", EVERYTHING, "tcp"), "queue", 0.0, None, 100)
    capacity, held = told["capacity"], told["sum"]
    assert (capacity["capacity_gpu_hours"], capacity["allocated_share"]) == (32.0, 1.0)
    assert held["starting_gpu_hours"] == held["held_gpu_hours"] == 32.0
    assert [capacity[f"{name}_gpu_hours"] for name in NOT_HELD] == [0.0] * len(NOT_HELD)


def test_a_period_is_whole_days_and_rows_beyond_the_limit_are_in_the_sum(
    reading: ReadView,
) -> None:
    boss = Caller("op", EVERYTHING, "tcp")
    first = usage(reading, boss, "user", 0.0, 1.0, 1)
    assert (first["since"], first["until"]) == (0.0, DAY_S)
    assert [row["name"] for row in first["rows"]] == ["ann"]
    assert (first["left_out"], first["sum"]["held_gpu_hours"]) == (1, 16.0)
    assert first["sum"]["USD"] == pytest.approx(16 * 6.88)


def test_free_hours_are_told_where_all_that_is_allocated_is(reading: ReadView) -> None:
    boss, bob = Caller("op", EVERYTHING, "tcp"), Caller("bob", (grant_of("user"),), "tcp")
    asked = ("day", 0.0, None)
    for caller, queue, allocated in ((boss, None, 32.0), (boss, "x/y", 16.0), (bob, None, 16.0)):
        (row,) = usage_history_view.usage(reading, caller, "all", *asked, queue, None)["rows"]
        sums = {
            name: sum(row[f"{name}_gpu_s"]) / HOUR_S for name in ("allocated", "capacity", "free")
        }
        assert sums == pytest.approx({"allocated": allocated, "capacity": 32.0, "free": 0.0})
