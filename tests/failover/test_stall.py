"""A leader whose engine hangs, while its lease is renewed all the same: it ends itself, and the other goes on.

One fleet for both tests: each leaves two daemons of which one leads.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from gantree.control.engine.watchdog import EXIT_STALLED
from support import hanging
from support.fleet import READY_WITHIN_S, Fleet
from support.gangs import left_over
from support.postgres import Server

CLUSTER = (
    "name: one\ntiers: [node]\nmachines: {m: {gpus: 8, gpu: H100-80GB, cpus: 64, memory_GiB: 64}}\n"
    "nodes: [{names: n0, machine: m}]\n"
)
STALL = ("--stall", "8")
"""Little, since each test waits for it; more than a crowded machine keeps an engine from running."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stall")


@pytest.fixture(scope="module")
def database(postgres: Server) -> Iterator[str]:
    with postgres.database() as url:
        yield url


@pytest.fixture(scope="module")
def fleet(database: str, place: Path) -> Iterator[Fleet]:
    fleet = Fleet(place / "state", database, CLUSTER, "ab", lease_s=5.0, more=STALL)
    fleet.hanging = {"a"}
    with fleet:
        yield fleet
    assert left_over(place) == []


def submit(fleet: Fleet, name: str, starts: Path) -> str:
    """A job that writes down every start of it."""
    run = json.dumps(["sh", "-c", f"echo {name} >> {starts}; sleep 600"])
    text = f"name: {name}\ngang: [{{role: w, members: 1, each: {{gpus: 1}}, run: {run}}}]\n"
    job: str = fleet.client.submit(text, idempotency_key=f"key-{name}")["jobs"][0]["job"]
    return job


def attached(fleet: Fleet, job: str) -> str:
    """What a command beside a job prints, by whichever daemon."""
    servers = ",".join(fleet.url_of[name] for name in fleet.names)
    done = subprocess.run(
        [sys.executable, "-m", "gantree.cli", "attach", job, "--", "echo", "hello"],
        env={**os.environ, "GANTREE_SERVER": servers, "GANTREE_TOKEN": fleet.token},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, timeout=READY_WITHIN_S,
    )  # fmt: skip
    return done.stdout


def until_led_by(database: str, name: str) -> None:
    """Wait until an epoch of a daemon has begun, whatever that can do in it."""
    deadline = time.monotonic() + READY_WITHIN_S
    with psycopg.connect(database, autocommit=True) as journal:
        while True:
            ((holder,),) = journal.execute("SELECT holder FROM leadership").fetchall()
            if (holder or "").startswith(f"{name} "):
                return
            assert time.monotonic() < deadline, holder
            time.sleep(0.02)


def test_a_leader_whose_turn_never_ends_says_where_it_hangs_and_ends_and_the_other_makes_that_turn(
    fleet: Fleet, place: Path
) -> None:
    starts = place / "starts"
    before = submit(fleet, "before", starts)
    fleet.until_running(before)
    assert fleet.leader() == "a"
    job = submit(fleet, hanging.NAME, starts)
    assert fleet.ended("a") == EXIT_STALLED
    said = fleet.output("a")
    assert "the engine hangs" in said
    assert "in hanging" in said, "what its thread did"
    fleet.until_running(job)
    assert attached(fleet, before) == "hello\n", "though the first daemon that it knows is gone"
    assert fleet.leader() == "b"
    assert fleet.client.job(before)["phase"] == "running"
    assert sorted(starts.read_text().split()) == ["before", hanging.NAME]
    fleet.hanging.clear()
    fleet.start("a")
    assert attached(fleet, before) == "hello\n", "though that one stands by"


def test_a_leader_whose_database_does_not_answer_its_engine_ends_and_holds_up_nobody(
    fleet: Fleet, place: Path, database: str
) -> None:
    """What its session had locked goes with it, though it waits for a lock itself that is held on."""
    leader = fleet.leader()
    other = "a" if leader == "b" else "b"
    starts = place / "locked"
    before = submit(fleet, "seen", starts)
    fleet.until_running(before)
    fleet.until_warm(other)
    with ThreadPoolExecutor(1) as user, psycopg.connect(database) as locks:
        locks.execute("LOCK TABLE inbox IN SHARE MODE")  # read by all, written by nobody
        taken = user.submit(submit, fleet, "locked-out", starts)
        assert fleet.ended(leader) == EXIT_STALLED
        assert "in append_inbox" in fleet.output(leader)
        until_led_by(database, other)
        locks.rollback()
        job = taken.result(READY_WITHIN_S)
    fleet.until_running(job)
    assert fleet.leader() == other
    assert sorted(starts.read_text().split()) == ["locked-out", "seen"]
    fleet.start(leader)
