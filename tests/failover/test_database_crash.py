"""A PostgreSQL that crashes and comes back: whoever led leads again, or another, and nothing is lost or done twice."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.model.errors import GantreeError
from support.examples import examples
from support.fleet import Fleet
from support.gangs import left_over
from support.postgres import NoPostgres, Server, fresh_place

CLUSTER = (
    "name: one\ntiers: [node]\nmachines: {m: {gpus: 8, gpu: H100-80GB, cpus: 64, memory_GiB: 64}}\n"
    "nodes: [{names: n0, machine: m}]\n"
)
CRASHES = examples(2)


@pytest.fixture
def server(postgres: Server) -> Iterator[Server]:
    """One that nobody else uses. Where the shared one cannot be started, this one is not asked for either."""
    own = Server(fresh_place())
    own.start()
    yield own
    own.stop()


class Crashes(threading.Thread):
    """Crashes a server again and again, and remembers what went wrong."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self.error: NoPostgres | None = None

    def run(self) -> None:
        try:
            for _ in range(CRASHES):
                self._server.crash()
        except NoPostgres as error:
            self.error = error


def submit(fleet: Fleet, name: str, starts: Path) -> str:
    """A job that writes down every start of it; what it takes until it is acknowledged is done here."""
    run = json.dumps(["sh", "-c", f"echo {name} >> {starts}"])
    text = f"name: {name}\ngang: [{{role: w, members: 1, each: {{gpus: 1}}, run: {run}}}]\n"
    while True:
        try:
            taken = fleet.client.submit(text, idempotency_key=f"key-{name}")
        except GantreeError:
            continue
        job: str = taken["jobs"][0]["job"]
        return job


def test_what_was_taken_before_between_and_after_crashes_of_the_database_runs_once(
    server: Server, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    with server.database() as url, Fleet(tmp_path / "state", url, CLUSTER, "ab") as fleet:
        jobs = [submit(fleet, "before", starts)]
        crashes = Crashes(server)
        crashes.start()
        while crashes.is_alive():
            jobs.append(submit(fleet, f"between-{len(jobs)}", starts))
        assert crashes.error is None
        jobs.append(submit(fleet, "after", starts))
        assert {fleet.until_ended(job) for job in jobs} == {"succeeded"}
        assert sorted(starts.read_text().split()) == sorted(jobs)
    assert left_over(tmp_path) == []
