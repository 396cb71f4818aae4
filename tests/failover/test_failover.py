"""Daemons that share a PostgreSQL: whatever becomes of the one that leads, another goes on, and nothing is done twice.

One fleet for all tests: after each, whatever came of it, both daemons run and no job does.
"""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from playwright.sync_api import BrowserContext, expect
from sqlalchemy import make_url

from gantree.api.client.client import Client
from gantree.model.errors import NotFound, NotLeading
from support.chromium import Complaints, chromium
from support.daemon import Program
from support.fleet import READY_WITHIN_S, Cable, Fleet
from support.gangs import left_over
from support.page_rules import AUDIT
from support.postgres import Server

PATIENCE_MS = 1000 * READY_WITHIN_S
CLUSTER = (
    "name: two\ntiers: [node]\nmachines: {m: {gpus: 8, gpu: H100-80GB, cpus: 64, memory_GiB: 64}}\n"
    "nodes: [{names: 'n[0-1]', machine: m}]\n"
)
PAGES = (
    "/",
    "/queue",
    "/gantt",
    "/queues",
    "/nodes",
    "/nodes/n0",
    "/cluster",
    "/submit",
    "/jobs/watched",
)
CHANGING = r'data-act(?:ion)?=|id="(?:send|log-out)"'
"""What changes something, in a page."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failover")


@pytest.fixture(scope="module")
def cables(postgres: Server, place: Path) -> Iterator[dict[str, Cable]]:
    made = {name: Cable(postgres.place, place / f"to-{name}") for name in "ab"}
    yield made
    for cable in made.values():
        cable.close()


@pytest.fixture(scope="module")
def fleet(postgres: Server, place: Path, cables: dict[str, Cable]) -> Iterator[Fleet]:
    with postgres.database() as url:
        fleet = Fleet(place / "state", url, CLUSTER, "ab")
        for name, cable in cables.items():
            fleet.connect(name, url.replace(str(postgres.place), str(cable.place)))
        with fleet:
            yield fleet
    assert left_over(place) == []


@pytest.fixture(autouse=True)
def _restored(fleet: Fleet, cables: dict[str, Cable]) -> Iterator[None]:
    yield
    for cable in cables.values():
        cable.mend()
    fleet.restore()


@pytest.fixture
def browsing(fleet: Fleet) -> Iterator[BrowserContext]:
    """A browser that shows the token."""
    expect.set_options(timeout=PATIENCE_MS)
    with chromium() as browser:
        shown = {"Authorization": f"Bearer {fleet.token}"}
        context = browser.new_context(extra_http_headers=shown)
        context.set_default_timeout(PATIENCE_MS)
        yield context


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def submit(fleet: Fleet, name: str, starts: Path, more: str = "sleep 600") -> str:
    """A job that writes down every start of it."""
    run = json.dumps(["sh", "-c", f"echo {name} >> {starts}; {more}"])
    text = f"name: {name}\ngang: [{{role: w, members: 1, each: {{gpus: 1}}, run: {run}}}]\n"
    taken = fleet.client.submit(text, idempotency_key=f"key-{name}")
    job: str = taken["jobs"][0]["job"]
    return job


def starts_in(file: Path) -> list[str]:
    return sorted(file.read_text().split())


def ask(url: str, token: str = "") -> tuple[int, str]:
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(asked, timeout=READY_WITHIN_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_who_does_not_lead_says_who_does_and_takes_nothing(fleet: Fleet) -> None:
    leader = fleet.leader()
    at, leader_at = fleet.url_of[other(leader)], fleet.url_of[leader]
    assert ask(f"{at}/healthz") == (200, '{"alive":true}')
    status, told = ask(f"{at}/readyz")
    assert (status, json.loads(told)["ready"]) == (503, False)
    assert (json.loads(told)["leader"], json.loads(told)["leader_url"]) == (leader, leader_at)
    fleet.until_warm(other(leader))
    assert json.loads(ask(f"{leader_at}/readyz")[1])["role"] == "leader"
    assert "gantree_leading 0.0" in ask(f"{at}/metrics", fleet.token)[1]
    assert "gantree_leading 1.0" in ask(f"{leader_at}/metrics", fleet.token)[1]
    with pytest.raises(NotLeading, match=f"stands by: {leader} leads at {leader_at}") as raised:
        Client(at, fleet.token).cancel("x")
    assert (raised.value.leader, raised.value.url) == (leader, leader_at)


def test_who_does_not_lead_answers_what_only_looks_and_says_how_old_that_is(
    fleet: Fleet, place: Path
) -> None:
    leader = fleet.leader()
    job = submit(fleet, "looked-at", place / "looked-at", "echo hello; sleep 600")
    fleet.until_running(job)
    at = fleet.url_of[other(leader)]
    beside, in_charge = Client(at, fleet.token), Client(fleet.url_of[leader], fleet.token)
    assert beside.jobs() == in_charge.jobs()
    assert beside.nodes() == in_charge.nodes()
    assert beside.why(job) == in_charge.why(job)
    assert beside.job(job) == in_charge.job(job)
    assert beside.cluster() == in_charge.cluster()
    assert beside.record(job) == in_charge.record(job)
    assert list(beside.facts()) == list(in_charge.facts())
    assert {row["name"] for row in beside.usage(by="job")["rows"]} >= {job}
    with pytest.raises(NotLeading, match="stands by"):  # it may have been taken in just now
        beside.why("nobody")
    with pytest.raises(NotFound, match="there is no job nobody"):
        in_charge.why("nobody")
    asked = urllib.request.Request(
        f"{at}/v1/queues", headers={"Authorization": f"Bearer {fleet.token}"}
    )
    with urllib.request.urlopen(asked, timeout=READY_WITHIN_S) as answer:
        assert int(answer.headers["Gantree-Fact"]) > 0
        assert int(answer.headers["Age"]) >= 0
    assert ask(f"{at}/v1/queues")[0] == 401
    with pytest.raises(NotLeading):
        beside.cancel(job)
    told = beside.events(job=job, after=0)
    assert next(told)["fact"] == "JobAccepted"
    output = beside.logs(job, follow=True)
    assert next(output) == b"[0] hello\n"
    fleet.client.cancel(job)
    assert b"".join(output) == b"", "it ends with the job"
    assert beside.job(job, wait_s=READY_WITHIN_S)["phase"] == "cancelled"
    assert any(each["fact"] == "JobEnded" for each in told)
    assert beside.jobs()[-1]["phase"] == "cancelled"


def test_after_kill_9_the_other_goes_on_and_the_command_line_sees_nothing_of_it(
    fleet: Fleet, place: Path
) -> None:
    leader, starts = fleet.leader(), place / "killed"
    job = submit(fleet, "killed", starts)
    fleet.until_running(job)
    fleet.kill(leader)
    asked = subprocess.run(
        [sys.executable, "-m", "gantree.cli", "jobs", "--json", "--state", str(fleet.state_dir)],
        capture_output=True, check=True, timeout=READY_WITHIN_S,
    )  # fmt: skip
    assert [(row["job"], row["phase"]) for row in json.loads(asked.stdout)["jobs"]] == [
        (job, "running")
    ]
    assert submit(fleet, "killed", starts) == job, "the same key, asked of another daemon"
    assert fleet.leader() == other(leader)
    fleet.client.cancel(job)
    assert fleet.until_ended(job) == "cancelled"
    fleet.start(leader)
    assert f"stands by: {other(leader)} leads" in fleet.output(leader)
    assert starts_in(starts) == ["killed"]


def test_pages_of_who_stands_by_are_to_look_at_and_open_pages_go_on_with_who_takes_over(
    fleet: Fleet, place: Path, browsing: BrowserContext
) -> None:
    leader, complaints = fleet.leader(), Complaints()
    leads_at, at = fleet.url_of[leader], fleet.url_of[other(leader)]
    job = submit(fleet, "watched", place / "watched", "echo hello; sleep 600")
    fleet.until_running(job)
    page, watched = browsing.new_page(), browsing.new_page()
    complaints.listen_to(page)
    for path in PAGES:
        status, html = ask(at + path, fleet.token)
        assert (path, status) == (path, 200)
        assert (path, f'{leader} leads at <a href="{leads_at}">' in html) == (path, True)
        assert (path, re.findall(CHANGING, html)) == (path, [])
    for path in ("/cluster", "/jobs/watched"):
        page.goto(at + path)
        assert (path, page.evaluate(AUDIT)) == (path, [])
        assert (path, page.locator("[data-action], [data-act]").count()) == (path, 0)
        if path == "/cluster":
            expect(page.locator("#legend")).to_contain_text("watched")
    expect(page.locator("h1 .phase")).to_have_text("running")
    expect(page.locator("#timeline")).to_contain_text("All processes of attempt 1 run")
    watched.goto(f"{leads_at}/jobs/watched")
    expect(watched.locator("#output")).to_contain_text("hello")
    assert watched.locator("#standby").count() == 0
    fleet.signal(leader, signal.SIGSTOP)
    try:
        expect(page.locator("#do-cancel")).to_be_visible()
        expect(page.locator("#live-state")).to_have_text("live")
        expect(page.locator("#output")).to_contain_text("hello")
        assert page.locator("#standby").count() == 0
    finally:
        fleet.signal(leader, signal.SIGCONT)
    expect(watched.locator("#standby")).to_contain_text(f"{other(leader)} leads at {at}")
    assert complaints == []
    fleet.client.cancel(job)


def test_a_leader_that_was_stopped_for_a_while_stands_by_when_it_goes_on(
    fleet: Fleet, place: Path
) -> None:
    leader, starts = fleet.leader(), place / "stopped"
    before = submit(fleet, "before", starts)
    fleet.until_running(before)
    fleet.signal(leader, signal.SIGSTOP)
    try:
        meanwhile = submit(fleet, "meanwhile", starts)
        fleet.until_running(meanwhile)
        fleet.local.cancel(before)
    finally:
        fleet.signal(leader, signal.SIGCONT)
    fleet.until_said(leader, "this daemon stands by")
    assert fleet.leader() == other(leader)
    with pytest.raises(NotLeading):
        Client(fleet.url_of[leader], fleet.token).cancel(meanwhile)
    assert {row["job"]: row["phase"] for row in fleet.client.jobs()}[meanwhile] == "running"
    fleet.client.cancel(meanwhile)
    assert fleet.until_ended(meanwhile) == "cancelled"
    assert starts_in(starts) == ["before", "meanwhile"]


def test_a_leader_that_is_cut_off_stops_by_itself_before_another_leads(
    fleet: Fleet, place: Path, cables: dict[str, Cable]
) -> None:
    leader, starts = fleet.leader(), place / "cut"
    cables[leader].cut()
    try:
        job = submit(fleet, "cut", starts)
        fleet.until_running(job)
        assert ask(f"{fleet.url_of[leader]}/readyz")[0] == 503
        fleet.until_said(leader, "this daemon stands by")
    finally:
        cables[leader].mend()
    assert fleet.leader() == other(leader)
    fleet.client.cancel(job)
    assert fleet.until_ended(job) == "cancelled"
    assert starts_in(starts) == ["cut"]


def test_when_the_database_ends_every_connection_nothing_that_was_taken_is_lost(
    fleet: Fleet, place: Path, postgres: Server
) -> None:
    starts = place / "ended"
    everybody = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'gantree'"
    )
    database = make_url(fleet._database_of["a"]).database
    assert database
    jobs = []
    for number in range(4):
        jobs.append(submit(fleet, f"e{number}", starts, "true"))
        postgres.execute(everybody, database)
    for job in jobs:
        assert fleet.until_ended(job) == "succeeded"
    assert starts_in(starts) == ["e0", "e1", "e2", "e3"]


def test_after_a_clean_stop_the_other_leads_and_adopts_what_runs(fleet: Fleet, place: Path) -> None:
    starts = place / "clean"
    job = submit(fleet, "clean", starts)
    fleet.until_running(job)
    leader, epoch = fleet.leader(), fleet.client.health()["epoch"]
    assert fleet.stop(leader) == 0
    assert "1 gang goes on running" in fleet.output(leader)
    health = fleet.client.health()
    assert (health["epoch"], health["pid"]) == (epoch + 1, fleet.pid(other(leader)))
    fleet.client.cancel(job)
    assert fleet.until_ended(job) == "cancelled"
    assert starts_in(starts) == ["clean"]


def test_a_daemon_with_another_state_directory_does_not_take_over(
    fleet: Fleet, place: Path
) -> None:
    """Here what runs below the directory of the others would be taken for lost, and be started again."""
    for name in fleet.names:
        fleet.stop(name)
    words = ("up", "--state", str(place / "elsewhere"))
    with Program(*words, GANTREE_DATABASE=fleet._database_of["a"]) as started:
        assert "kept its runs elsewhere" in started.says("kept its runs")
        assert started.process.wait(READY_WITHIN_S) == 1
        time.sleep(0)
