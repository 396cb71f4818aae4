"""`gantree usage --bill` on a daemon: the same figures in every file, at the daemon's prices or those of a file."""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gantree.accounting.buckets import DAY_S, HOUR_S
from gantree.accounting.usage import CountedTo
from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.client.client import Client
from gantree.api.views.accounting.book_view import book
from gantree.control.history.recorder import HistoryRecorder
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.journal.sqlite import SqliteJournal
from gantree.model.access import grant_of
from gantree.model.errors import BadFields
from gantree.testing.builders import cluster, job
from gantree.testing.journal_contract import ended, led
from gantree.testing.stage import Stage
from support.command_line import CommandLine
from support.daemon import Program

Complaints = Callable[[Any, str], list[str]]
CLUSTER = """
name: hall
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB, cpus: 16, memory_GiB: 128}}
nodes: [{names: n0, machine: m2, labels: {pool: own}}, {names: n1, machine: m2, labels: {contract: "7"}}]
"""
JOB = """
name: {name}
queue: {queue}
project: p
gang: [{{role: w, members: 1, each: {{gpus: 2, cpus: 4, memory_GiB: 32}}, run: [sleep, "600"]}}]
"""
PRICES = """
gpus: {H100-80GB: {on_demand: 3600, owned: {USD: 35040, years: 4}, source: ours, date: 2026-10-01}}
cpu_core: 36
markets: [{market: owned, labels: {pool: own}}]
"""
"""A GPU-second costs a dollar, so that some seconds make figures."""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("bill")
    (place / "cluster.yaml").write_text(CLUSTER)
    (place / "prices.yaml").write_text(PRICES)
    options = {"--state": place / "state", "--cluster": place / "cluster.yaml"}
    options["--prices"] = place / "prices.yaml"
    with Program("up", *(str(word) for pair in options.items() for word in pair)) as program:
        program.says("ready")
        client = Client(place / "state")
        names = {"x": "x/y", "z": "z"}
        for name, queue in names.items():
            client.submit(JOB.format(name=name, queue=queue))
            client.job(name, wait_s=300, until="running")
        yield place / "state"
        for name in names:
            client.cancel(name)
            client.job(name, wait_s=300, until="ended")
        program.stop()


def test_every_file_has_the_figures_of_the_bill(
    gantree: CommandLine, state: Path, tmp_path: Path, complaints: Complaints
) -> None:
    command = partial(gantree, "usage", "--state", state, "--by", "queue")
    files = {kind: tmp_path / f"s.{kind}" for kind in ("html", "pdf", "parquet")}
    focus = tmp_path / "focus.parquet"
    told = command(
        *(word for kind, file in files.items() for word in (f"--{kind}", file)), "--focus", focus
    )
    assert (told.code, told.out) == (0, "")
    assert told.err.count("wrote ") == 4
    assert "Statement of GPU usage" in files["html"].read_text()
    assert files["pdf"].read_bytes().startswith(b"%PDF-")
    with duckdb.connect() as database:
        rows = database.execute(
            f"SELECT name, USD FROM '{files['parquet']}' ORDER BY name"
        ).fetchall()
        lines = database.execute(
            f"SELECT sum(BilledCost), count(*) FILTER (ChargePeriodStart >= BillingPeriodStart) FROM '{focus}'"
        ).fetchall()
    assert [name for name, _ in rows] == ["x/y", "z"]
    assert lines[0][0] == pytest.approx(sum(USD for _, USD in rows))
    document = command("--bill", "--json").json()
    assert complaints(document, "usage-statement") == []
    assert document["site"] == "hall"
    assert document["capacity_USD"] == pytest.approx(document["sum"]["USD"])
    (own, rented) = sorted(document["prices"], key=lambda each: each["USD_per_hour"])
    assert (own["market"], own["USD_per_hour"], rented["market"]) == ("owned", 1.0, "on_demand")
    half = document["sum"]["gpu_USD"] / document["sum"]["held_gpu_hours"]
    assert half == pytest.approx((3600 + 1) / 2, rel=1e-5)
    assert document["sum"]["cpu_USD"] == pytest.approx(
        document["sum"]["held_gpu_hours"] * 2 * 36, abs=1e-5
    )


def test_a_bill_of_a_queue_by_project_at_other_prices(
    gantree: CommandLine, state: Path, tmp_path: Path
) -> None:
    prices = tmp_path / "other.yaml"
    prices.write_text(
        "gpus: {H100-80GB: {on_demand: 2, source: x, date: 2026-10-01}}\nshared_cost: none\n"
    )
    command = partial(gantree, "usage", "--state", state, "--prices", prices)
    month = datetime.now(UTC).strftime("%Y-%m")
    table = command("--bill", "--by=project", "--queue=x", "--csv", "--month", month).out
    (row,) = csv.DictReader(io.StringIO(table))
    assert (row["name"], row["period"], float(row["shared_USD"])) == ("p", month, 0.0)
    assert float(row["gpu_USD"]) == pytest.approx(float(row["held_gpu_hours"]) * 2, abs=2e-6)
    lines = command("--bill", "--by=queue").out.splitlines()
    assert lines[1].split()[:2] == ["QUEUE", "GPU-HOURS"]
    refused = command("--bill", "--by=queue", "--queue=nosuch")
    assert (refused.code, "--queue: no queue 'nosuch'" in refused.err) == (2, True)
    own = gantree("usage", "--state", state, "--by", "queue", "--json").json()["sum"]
    assert own["USD"] == pytest.approx(own["held_gpu_hours"] * 3600)


def test_prices_of_a_file_by_market_and_time_of_day(
    gantree: CommandLine, state: Path, tmp_path: Path
) -> None:
    """One of two nodes is reserved; the half of the day that is now costs ten times as much as the other."""
    hour, prices = datetime.now(UTC).hour, tmp_path / "windows.yaml"
    begin, end = (f'"{(hour + hours) % 24:02}:00"' for hours in (-6, 6))
    text = f"""
gpus: {{H100-80GB: {{on_demand: 2, reserved: 1, source: x, date: 2026-10-01}}}}
markets: [{{market: reserved, labels: {{contract: "7"}}}}]
windows: [{{name: now, begin: {begin}, end: {end}, factor: 10}}]
"""
    prices.write_text(text)
    command = partial(gantree, "usage", "--state", state, "--prices", prices, "--by", "queue")
    found = command("--bill", "--json").json()["prices"]
    assert {each["market"] for each in found} == {"reserved", "on_demand"}
    for each in found:
        assert each["mean_USD_per_hour"] == pytest.approx(10 * each["USD_per_hour"], rel=0.01)


def test_an_invoice_and_clouds_beside_it(
    gantree: CommandLine, state: Path, tmp_path: Path, complaints: Complaints
) -> None:
    command = partial(gantree, "usage", "--state", state, "--by", "queue")
    invoice = tmp_path / "invoice.csv"
    today = datetime.now(UTC).date()
    invoice.write_text(f"date,sku,hours,cost\n{today},H100-80GB,100,360000\n{today},egress,,3\n")
    found = command("--reconcile", invoice, "--json").json()
    assert complaints(found, "usage-reconcile") == []
    names = {row["name"]: row["only"] for row in found["rows"]}
    assert names == {"H100-80GB": None, "egress": "invoice"}
    assert "differ:" in command("--reconcile", invoice).out
    assert command("--reconcile", invoice, "--csv").out.startswith("day,name,")
    clouds = command("--compare-cloud", "--json").json()
    assert complaints(clouds, "usage-compare") == []
    assert "Break-even" in command("--compare-cloud").out
    (row,) = csv.DictReader(io.StringIO(command("--compare-cloud", "--csv").out))
    assert (row["model"], float(row["on_demand_USD_per_hour"])) == ("H100-80GB", 6.88)
    assert float(row["break_even"]) == pytest.approx(clouds["rows"][0]["break_even"])
    assert "egress: charges without GPU-hours" in command("--reconcile", invoice).out
    invoice.write_text("date,sku,hours,cost\n2025-03-04,H100-80GB,1,2\n2025-03-02,H100-80GB,1,2\n")
    other = command("--reconcile", invoice)
    assert (other.code, other.out) == (2, "")
    assert "its rows are of 2025-03-02 to 2025-03-04; --month names the month" in other.err
    invoice.write_text("date,sku,hours,cost\n2026-11-99,x,1,2\n")
    wrong = command("--reconcile", invoice)
    assert (wrong.code, wrong.out) == (2, "")
    assert f"{invoice}:2: date: found `2026-11-99`" in wrong.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--bill", "--by=job"), "a statement is by queue, user, project, model, device"),
        (("--bill", "--by=queue", "--since=7d"), "--since: a statement is of a month"),
        (("--pdf=x.txt", "--by=queue"), "a file name that ends with .pdf"),
        (("--focus=/no/such/f.csv", "--by=queue"), "no directory that can be written to"),
        (("--bill", "--by=queue", "--month=2026-13"), "--month: found 2026-13"),
        (("--month=11/2026",), "--month: found 11/2026; allowed: a month such as"),
        (("--month=2126-11",), "or an earlier month"),
        (
            ("--since=2026-11-20", "--until=2026-11-10"),
            "--since: found 2026-11-20; allowed: a day up to 2026-11-10",
        ),
        (("--since=2126-11-20",), "--since: found 2126-11-20; allowed: a day up to today"),
        (("--compare-cloud", "--reconcile=x", "--by=queue"), "give one of them"),
        (("--compare-cloud", "--pdf=x.pdf", "--by=queue"), "--pdf: a statement has it; leave out"),
        (("--reconcile=x", "--queue=x", "--by=queue"), "--queue: a statement has it; leave out"),
        (("--bill", "--by=queue", "--prices=/no/such"), "/no/such: no such file"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    gantree: CommandLine, state: Path, words: tuple[str, ...], told: str
) -> None:
    outcome = gantree("usage", "--state", state, *words)
    assert outcome.code == 2
    assert told in outcome.err


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadView]:
    """Gangs of three queues that hold GPUs from the last hour of a day into the next."""
    stage = Stage(cluster(leaves=1, nodes=3))
    stage.now = DAY_S - HOUR_S
    recorder = HistoryRecorder(stage.scheduler.ledger, stage.now, CountedTo())
    for name, user, queue in (("a", "ann", "x"), ("b", "bob", "x/y"), ("c", "cat", "z")):
        decision = stage.submit(replace(job(name, gpus=8), user=user, queue=queue, project="p"))
        for index, fact in enumerate(decision.facts):
            recorder.note(index, fact, stage.scheduler.ledger)
    recorder.settle(stage.scheduler.ledger)
    stage.now += 2 * HOUR_S
    journal = SqliteJournal(tmp_path_factory.mktemp("reading"))
    journal.commit_turn(0, [ended(1)], [], led(journal), recorder.taken())
    yield ReadView(
        stage.scheduler.ledger, journal, ReadPoint(1, stage.now), lambda policy: stage.scheduler
    )
    journal.close()


def test_who_may_not_see_a_queue_is_told_its_use_without_names(view: ReadView) -> None:
    caller = Caller("eve", (grant_of("viewer", "x"),), "socket")
    told = book(view, caller, 0.0, view.now, "day", ())
    held = {(row["start"], row["queue"], row["user"], row["project"]): row["allocated_gpu_s"]
            for row in told["rows"] if "allocated_gpu_s" in row}  # fmt: skip
    names = {"x": ("ann", "p"), "x/y": ("bob", "p"), "(other queue 1)": ("", "")}
    assert held == {
        (day, queue, *owner): 8 * HOUR_S for day in (0, DAY_S) for queue, owner in names.items()
    }
    there = sum(row.get("capacity_gpu_s", 0.0) for row in told["rows"])
    assert there == 24 * 2 * HOUR_S
    assert (told["until"], told["site"]) == (2 * DAY_S, "test")
    assert told["nodes"] == [{"model": "H100-80GB", "gpus": 24, "is_spot": False, "labels": {}}]


def test_rows_by_hour_are_those_of_the_hours(view: ReadView) -> None:
    told = book(view, Caller("op", EVERYTHING, "socket"), DAY_S - 1, DAY_S + 1, "hour", ())
    widths = {row["width"] for row in told["rows"]}
    starts = {row["start"] for row in told["rows"] if row.get("allocated_gpu_s")}
    assert (widths, starts) == ({HOUR_S}, {DAY_S - HOUR_S, DAY_S})
    one_day = book(view, Caller("op", EVERYTHING, "socket"), 0.0, DAY_S, "day", ())
    assert {row["start"] for row in one_day["rows"]} == {0}
    with pytest.raises(BadFields, match="until"):
        book(view, Caller("op", EVERYTHING, "socket"), DAY_S, 0.0, "day", ())
    with pytest.raises(BadFields, match="366"):
        book(view, Caller("op", EVERYTHING, "socket"), 0.0, 400.0 * DAY_S, "day", ())
