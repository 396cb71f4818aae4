"""A real daemon with real processes: every route through the real client, starts, stops and refusals."""

import json
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gantree.api.client.client import Client
from gantree.api.client.request import Request
from gantree.api.http import unix_socket
from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.model.errors import (
    BadFields,
    BadInput,
    Conflict,
    NotFound,
    Unreachable,
)
from gantree.model.events import TimePassed
from gantree.testing.journal_contract import led
from support.daemon import Daemon, Program

CLUSTER = """
name: pair
tiers: [leaf, node]
machines:
  m8: {gpus: 8, gpu: H100-80GB, cpus: 96, memory_GiB: 1024, nics: 8}
nodes:
  - {names: "n[0-1]", machine: m8, at: {leaf: l0}}
"""


def job_text(name: str, script: str, *, members: int = 1, gpus: int = 1, more: str = "") -> str:
    run = json.dumps(["sh", "-c", script])
    return (
        f"name: {name}\n{more}\n"
        f"gang:\n  - {{role: w, members: {members}, each: {{gpus: {gpus}}}, run: {run}}}\n"
    )


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "state", CLUSTER) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client


def submit(client: Client, text: str, **more: Any) -> str:
    """Hand in one job, give its id."""
    (submitted,) = client.submit(text, **more)["jobs"]
    return str(submitted["job"])


def test_health_tells_who_answers(daemon: Daemon, client: Client) -> None:
    health = client.health()
    assert health["pid"] == daemon.process.pid
    assert (health["cluster"], health["epoch"], health["set_aside"]) == ("pair", 1, 0)
    assert abs(health["started_at"] - time.time()) < 600
    assert health["turns"] >= 1


def test_the_socket_belongs_to_the_user_alone(daemon: Daemon) -> None:
    mode = (daemon.state_dir / unix_socket.FILE).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_job_from_submission_to_its_end(daemon: Daemon, client: Client) -> None:
    job = submit(client, job_text("life", "echo started $RANK of $WORLD_SIZE", members=2, gpus=8))
    daemon.wait(job)
    detail = client.job(job)
    assert (detail["phase"], detail["exit_code"], detail["attempt"]) == ("succeeded", 0, 1)
    assert (detail["gpus"], detail["members"], detail["queue"]) == (16, 2, "default")
    assert detail["submitted_at"] <= detail["started_at"] <= detail["ended_at"]
    assert detail["spec"]["name"] == "life"
    lines = b"".join(client.logs(job)).splitlines()  # in the order of time
    assert sorted(lines) == [b"[0] started 0 of 2", b"[1] started 1 of 2"]
    assert b"".join(client.logs(job, rank=1, attempt=1)) == b"started 1 of 2\n"
    kinds = [fact["fact"] for fact in client.facts() if fact["data"].get("job") == job]
    assert kinds == ["JobAccepted", "GangPlaced", "GangRunning", "AttemptEnded", "JobEnded"]
    assert "succeeded" in client.why(job)["sentence"]


def test_a_submitted_job_is_there_at_once(client: Client) -> None:
    for number in range(5):
        job = submit(client, job_text("quick", "true"))
        assert job == ("quick" if number == 0 else f"quick-{number + 1}")
        assert client.job(job)["job"] == job
        assert job in [row["job"] for row in client.jobs()]


def test_what_waits_says_why_and_what_would_help(daemon: Daemon, client: Client) -> None:
    holder = submit(client, job_text("holder", "sleep 60", members=2, gpus=8))
    daemon.wait(holder, until="running")
    waiting = submit(client, job_text("waiting", "true", gpus=4))
    explained = client.why(waiting)
    assert explained["phase"] == "pending"
    assert explained["refused"]["gate"] == "ROOM"
    assert explained["sentence"]
    owners = client.cluster()["owners"]
    assert owners == {"n0": [holder] * 8, "n1": [holder] * 8}
    assert client.cancel(holder) == {"job": holder}
    assert daemon.wait(holder)["phase"] == "cancelled"
    assert daemon.wait(waiting)["phase"] == "succeeded"
    with pytest.raises(Conflict, match="has ended: cancelled"):
        client.cancel(holder)


def test_a_job_that_can_never_start_comes_with_a_warning(client: Client) -> None:
    answer = client.submit(job_text("huge", "true", gpus=9))
    assert answer["warnings"][0].startswith("huge: ")
    client.cancel("huge")


def test_wrong_fields_come_with_file_line_and_hint(client: Client) -> None:
    with pytest.raises(BadFields) as caught:
        client.submit("name: a\nganng: []\n", source="my.yaml")
    unknown = next(each for each in caught.value.problems if each.field == "ganng")
    assert (unknown.source, unknown.line) == ("my.yaml", 2)
    assert "gang" in unknown.hint


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        (job_text("x", "true", more="priority: bacth"), {}, "batch"),
        (job_text("x", "true", more="topology: {required: leef}"), {}, "leaf"),
        (job_text("x", "true", more="after: [ghost]"), {}, "no job ghost"),
        (job_text("x", "true"), {"overrides": {"members": 2}}, "allowed: name"),
        (job_text("x", "true", more='queue: "a\\ud800"'), {}, "Unicode"),
        ("name: \ud800", {}, "D800"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_taken(
    client: Client, text: str, more: dict[str, Any], says: str
) -> None:
    before = [row["job"] for row in client.jobs()]
    with pytest.raises(BadInput, match=says):
        client.submit(text, **more)
    assert [row["job"] for row in client.jobs()] == before


def test_errors_are_problem_json(daemon: Daemon) -> None:
    with unix_socket.connect(daemon.state_dir, 5.0) as connection:
        connection.sendall(b"GET /v1/jobs/ghost HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    assert b"content-type: application/problem+json" in head.lower()
    problem = json.loads(body)
    assert (problem["title"], problem["detail"]) == ("NotFound", "there is no job ghost")


@pytest.mark.parametrize("path", ["/v2/jobs", "/v1/jobs/a/b/c", "/"])
def test_unknown_routes_are_problems_too(client: Client, path: str) -> None:
    with pytest.raises(Exception, match="Not Found"):
        client.send(Request("GET", path))


def test_unknown_ranks_and_attempts_are_not_found(daemon: Daemon, client: Client) -> None:
    job = submit(client, job_text("short", "true"))
    daemon.wait(job)
    with pytest.raises(NotFound, match="ranks 0 to 0"):
        b"".join(client.logs(job, rank=1))
    with pytest.raises(NotFound, match="1 attempts"):
        b"".join(client.logs(job, attempt=2))
    with pytest.raises(BadInput, match="rank"):
        b"".join(client.logs(job, rank=-1))


def test_waiting_ends_with_the_job_and_not_later(daemon: Daemon, client: Client) -> None:
    job = submit(client, job_text("nap", "sleep 0.4; exit 3", more="restarts: 0"))
    assert client.job(job, wait_s=300, until="running")["phase"] == "running"
    began = time.monotonic()
    ended = client.job(job, wait_s=300)
    assert (ended["phase"], ended["exit_code"]) == ("failed", 3)
    assert time.monotonic() - began < 200
    assert client.job(job, wait_s=0.2, until="running")["phase"] == "failed"


def test_waiting_gives_up_when_it_was_told_to(daemon: Daemon, client: Client) -> None:
    job = submit(client, job_text("long", "sleep 600"))
    began = time.monotonic()
    assert client.job(job, wait_s=0.3)["phase"] != "succeeded"
    assert 0.3 <= time.monotonic() - began < 60
    client.cancel(job)
    daemon.wait(job)


def test_logs_can_be_followed_over_a_restart_to_the_end(daemon: Daemon, client: Client) -> None:
    script = "echo attempt $GANTREE_ATTEMPT; sleep 0.2; echo done; test $GANTREE_ATTEMPT = 2"
    restarts = "restarts: {limit: 2, backoff: 0.1}"
    job = submit(client, job_text("twice", script, more=restarts))
    followed = b"".join(client.logs(job, rank=0, follow=True))
    assert followed == b"attempt 1\ndone\nattempt 2\ndone\n"
    assert client.job(job)["phase"] == "succeeded"
    assert b"".join(client.logs(job, rank=0, attempt=2)) == b"attempt 2\ndone\n"


def test_an_urgent_job_takes_the_place_and_gives_it_back(daemon: Daemon, client: Client) -> None:
    train = (
        "trap 'echo 7 > $GANTREE_CHECKPOINT_ANSWER; exit 0' USR1; echo attempt $GANTREE_ATTEMPT;"
        " test $GANTREE_ATTEMPT = 2 && exit 0; while :; do sleep 0.05; done"
    )
    saving = "checkpoint: {signal: SIGUSR1, grace: 20s}"
    training = submit(client, job_text("training", train, members=2, gpus=8, more=saving))
    for rank in (0, 1):  # once it has printed, its trap is set
        assert next(client.logs(training, rank=rank, follow=True)) == b"attempt 1\n"
    daemon.wait(training, until="running")  # a gang that only starts is stopped without a save
    urgent = submit(client, job_text("urgent", "sleep 0.3", gpus=8, more="priority: serving"))
    assert daemon.wait(urgent)["phase"] == "succeeded"
    ended = daemon.wait(training)
    assert (ended["phase"], ended["attempt"], ended["preemptions"]) == ("succeeded", 2, 1)
    assert ended["checkpoint_step"] == 7
    kinds = [fact["fact"] for fact in client.facts() if fact["data"].get("job") == training]
    wanted = ["GangPreempted", "CheckpointRequested", "CheckpointRecorded", "JobRequeued"]
    assert [kind for kind in kinds if kind in wanted] == wanted


def test_facts_can_be_followed(daemon: Daemon, client: Client) -> None:
    last = max((fact["seq"] for fact in client.facts()), default=0)
    seen: list[str] = []

    def follow() -> None:
        for fact in client.facts(after=last, follow=True):
            seen.append(fact["fact"])
            if fact["fact"] == "JobEnded":
                return

    follower = threading.Thread(target=follow)
    follower.start()
    daemon.wait(submit(client, job_text("watched", "true")))
    follower.join(timeout=300)
    assert seen == ["JobAccepted", "GangPlaced", "GangRunning", "AttemptEnded", "JobEnded"]


def test_relative_directories_start_from_base_dir(
    daemon: Daemon, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    text = (
        "name: where\ngang:\n"
        "  - {role: w, members: 1, each: {gpus: 1}, run: [pwd], workdir: here}\n"
    )
    job = submit(client, text, base_dir=str(tmp_path))
    daemon.wait(job)
    assert b"".join(client.logs(job, rank=0)).decode().strip() == str(tmp_path / "here")
    with pytest.raises(BadInput, match="here is relative"):
        client.submit(text)


def test_several_jobs_in_one_file_are_taken_together(daemon: Daemon, client: Client) -> None:
    first = job_text("first", "echo 1")
    second = job_text("second", "echo 2", more="after: [first]")
    answer = client.submit(f"{first}\n---\n{second}")
    assert [each["job"] for each in answer["jobs"]] == ["first", "second"]
    assert daemon.wait("second")["phase"] == "succeeded"
    assert client.job("first")["ended_at"] <= client.job("second")["started_at"]


def test_a_second_daemon_is_refused(daemon: Daemon, client: Client) -> None:
    second = Daemon(daemon.state_dir, CLUSTER)
    with pytest.raises(RuntimeError, match="in use by another daemon"):
        second.start()
    assert client.health()["pid"] == daemon.process.pid


def test_without_a_daemon_the_client_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=f"gantree up --state {tmp_path}"):
        Client(tmp_path).health()


def test_a_daemon_that_stops_leaves_its_gangs_and_the_next_adopts_them(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        go_on = tmp_path / "go-on"
        script = f"echo $$; until [ -e {go_on} ]; do sleep 0.05; done; echo end"
        job = submit(daemon.client, job_text("on", script))
        daemon.wait(job, until="running")
        broke_off: list[str] = []

        def follow() -> None:
            with pytest.raises(Unreachable) as error:
                list(daemon.client.logs(job, follow=True))
            broke_off.append(str(error.value))

        follower = threading.Thread(target=follow)
        follower.start()
        assert daemon.stop() == 0, "a follower does not hold it up"
        follower.join()
        assert "what came is not all of it" in broke_off[0], "the job goes on"
        assert b"stopped; 1 gang goes on running" in daemon.output.read_bytes()
        assert not (daemon.state_dir / unix_socket.FILE).exists()
        daemon.start(with_cluster=False)
        assert daemon.client.health()["epoch"] == 2
        go_on.touch()
        assert daemon.wait(job)["attempt"] == 1
        assert b"".join(daemon.client.logs(job, rank=0)).endswith(b"\nend\n")


def test_a_killed_daemon_leaves_a_socket_that_the_next_replaces(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120) / "state"
    with Daemon(deep, CLUSTER) as daemon:
        daemon.kill()
        assert (deep / unix_socket.FILE).is_socket()
        with pytest.raises(Unreachable):
            daemon.client.health()
        daemon.start(with_cluster=True)
        assert daemon.client.health()["pid"] == daemon.process.pid
        kinds = [fact["fact"] for fact in daemon.client.facts()]
        assert kinds == ["FabricDefined"], "the same cluster file is no news"


def test_a_poison_event_does_not_stop_the_daemon(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        assert daemon.stop() == 0
        journal = SqliteJournal(daemon.state_dir)
        journal.append_inbox([TimePassed(id="poison", observed_at=-1.0)], led(journal))
        journal.close()
        daemon.start(with_cluster=False)
        assert daemon.client.health()["set_aside"] == 1
        assert b"set aside: event" in daemon.output.read_bytes()
        assert daemon.wait(submit(daemon.client, job_text("a", "true")))["phase"] == "succeeded"


def test_a_daemon_whose_output_nobody_reads_goes_on(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    code = (
        "import sys; from pathlib import Path; from gantree.api.server.daemon import run_daemon\n"
        "from gantree.api.server.settings import Settings\n"
        "here = Path(sys.argv[1])\n"
        "run_daemon(Settings(here / 'state', (here / 'cluster.yaml').read_text()))"
    )
    with Program("-c", code, str(tmp_path)) as program:
        program.said.close()
        client, deadline = Client(tmp_path / "state"), time.monotonic() + 300
        while time.monotonic() < deadline:
            with suppress(Unreachable):
                assert client.health()["pid"] == program.process.pid
                break
            time.sleep(0.02)
        program.stop()
    assert not (tmp_path / "state" / unix_socket.FILE).exists()


def test_the_first_start_without_a_cluster_is_refused(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "state", CLUSTER)
    with pytest.raises(RuntimeError, match="needs a cluster file"):
        daemon.start(with_cluster=False)


@pytest.mark.parametrize("journal", [None, b""], ids=["no journal", "an empty journal"])
def test_runs_without_a_journal_are_not_taken_over(tmp_path: Path, journal: bytes | None) -> None:
    state = tmp_path / "state"
    (state / "runs" / "a" / "1").mkdir(parents=True)
    if journal is not None:
        (state / FILE).write_bytes(journal)
    with pytest.raises(RuntimeError, match="no journal"):
        Daemon(state, CLUSTER).start()


def test_something_else_in_the_socket_s_place_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / unix_socket.FILE).write_text("precious")
    with pytest.raises(Conflict, match="no socket"):
        unix_socket.listen(tmp_path)
    assert (tmp_path / unix_socket.FILE).read_text() == "precious"


def test_facts_after_more_than_a_journal_can_hold_are_bad_input(client: Client) -> None:
    assert list(client.facts(2**63 - 1)) == []
    with pytest.raises(BadFields, match="after"):
        list(client.facts(2**63))


def test_the_client_imports_nothing_heavy() -> None:
    code = (
        "import sys, gantree.api.client.client\n"
        "heavy = {'pydantic', 'fastapi', 'numpy', 'yaml', 'asyncio', 'uvicorn'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"
