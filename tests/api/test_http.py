"""The HTTP layer of a real daemon: who may ask, what is refused unread, keys, pages, versions, events."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import gantree
from gantree.api.access.access import Access, Transport, token_of
from gantree.api.access.rate_limits import RateLimits
from gantree.api.client.client import Client
from gantree.api.client.request import Request
from gantree.api.http import unix_socket
from gantree.api.http.security_middleware import MOST_BYTES
from gantree.api.server.listeners import listen_of
from gantree.model.errors import (
    BadFields,
    BadInput,
    Conflict,
    GantreeError,
    NotFound,
    Stale,
    TooLarge,
    TooOften,
    Unauthenticated,
)
from support.daemon import Daemon

CLUSTER = """
name: pair
tiers: [leaf, node]
machines:
  m8: {gpus: 8, gpu: H100-80GB}
nodes:
  - {names: "n[0-1]", machine: m8, at: {leaf: l0}}
"""


def job_object(name: str, **more: Any) -> dict[str, Any]:
    role = {"role": "w", "members": 1, "each": {"gpus": 1}, "run": ["true"]}
    return {"name": name, "hold": True, "gang": [role], **more}


def job_text(name: str) -> str:
    return json.dumps(job_object(name))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    state = tmp_path_factory.mktemp("http") / "state"
    with Daemon(state, CLUSTER, listen="127.0.0.1:0") as daemon:
        yield daemon


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client


@pytest.fixture
def over_tcp(daemon: Daemon) -> Client:
    return Client(daemon.url, (daemon.state_dir / "token").read_text().strip())


def raw(daemon: Daemon, head: str, body: bytes = b"") -> tuple[str, dict[str, str], Any]:
    """Bytes to the socket as they are; status line, headers and JSON of the answer."""
    with unix_socket.connect(daemon.state_dir, 10.0) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    first, _, rest = answer.partition(b"\r\n")
    fields, _, content = rest.partition(b"\r\n\r\n")
    pairs = [line.split(": ", 1) for line in fields.decode().split("\r\n")]
    return first.decode(), {key.lower(): value for key, value in pairs}, json.loads(content)


# Who asks


def test_over_tcp_nobody_is_answered_without_the_token(daemon: Daemon, over_tcp: Client) -> None:
    assert over_tcp.health()["pid"] == daemon.process.pid
    for token in (None, "wrong", "ü"):
        with pytest.raises(GantreeError) as refused:
            Client(daemon.url, token and token.encode().decode("latin-1")).jobs()
        assert isinstance(refused.value, Unauthenticated)


def test_every_route_but_the_probes_the_log_in_and_the_openapi_asks_for_the_token(
    daemon: Daemon, client: Client
) -> None:
    described = client.send(Request[Any]("GET", "/v1/openapi.json"))
    stranger = Client(daemon.url)
    for path, operations in described["paths"].items():
        for method in operations:
            if path in ("/healthz", "/readyz") or (method, path) == ("post", "/v1/session"):
                continue
            with pytest.raises(Unauthenticated):
                stranger.send(Request(method.upper(), path.replace("{", "").replace("}", "")))


def test_a_header_makes_nobody_a_peer_of_the_socket(daemon: Daemon) -> None:
    host, _, port = daemon.url.removeprefix("http://").partition(":")
    connection = HTTPConnection(host, int(port), timeout=300)
    forged = {"X-Forwarded-For": "uid:0", "X-Forwarded-Proto": "unix", "Host": "localhost"}
    connection.request("GET", "/v1/health", headers=forged)
    assert connection.getresponse().status == 401


def test_the_peer_of_the_socket_is_an_operator_under_its_own_name() -> None:
    caller = asyncio.run(Access().caller(Transport("socket", os.getuid()), None))
    assert (caller.is_operator, caller.via) == (True, "socket")
    assert caller.name
    with pytest.raises(Unauthenticated):
        asyncio.run(Access().caller(Transport("tcp"), "Bearer x"))


def test_a_token_file_is_made_for_its_owner_alone_and_refused_if_others_may_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    token = token_of(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert token_of(file) == token
    assert len(token) >= 32
    file.chmod(0o640)
    with pytest.raises(BadInput, match="chmod 600"):
        token_of(file)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(BadInput, match="holds no token"):
        token_of(file)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(BadInput, match="cannot be read"):
        token_of(tmp_path / "link")


@pytest.mark.parametrize("address", ["0.0.0.0:80", "[::]:80", "192.168.1.1:80", "gpu-head:8443"])
def test_an_address_that_others_reach_needs_tls_or_a_word(address: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--insecure"):
        listen_of(address, tmp_path / "token")
    assert listen_of(address, tmp_path / "token", insecure=True).scheme == "http"


@pytest.mark.parametrize("address", ["", "80", "host", "h:99999", "a b:1", "http://h:1", "[::1]"])
def test_what_is_no_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="HOST:PORT"):
        listen_of(address, tmp_path / "token", insecure=True)


def test_the_command_line_asks_a_daemon_elsewhere(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "gantree.cli", "--server", daemon.url, "jobs"]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GANTREE_")}
    known = {**plain, "GANTREE_TOKEN_FILE": str(daemon.state_dir / "token")}
    assert subprocess.run(command, env=known, check=False).returncode == 0
    refused = subprocess.run(command, env=plain, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "a token is needed" in refused.stderr
    exported = {**plain, "GANTREE_STATE": str(daemon.state_dir)}  # what is typed wins
    assert subprocess.run(command, env=exported, check=False).returncode == 1


@pytest.mark.parametrize("url", ["", "host:80", "ftp://h", "http://", "http://h:x", "http://h/?a"])
def test_a_client_wants_a_url(url: str) -> None:
    with pytest.raises(BadInput, match="allowed: a URL"):
        Client(url)
    with pytest.raises(BadInput, match="no name or password"):
        Client("https://me:secret@host")


# What is refused before anything is read


def test_a_body_that_is_too_large_is_refused_at_its_first_byte(daemon: Daemon) -> None:
    head = f"POST /v1/jobs HTTP/1.1\nHost: x\nContent-Length: {MOST_BYTES + 1}"
    status, headers, told = raw(daemon, head)
    assert status.startswith("HTTP/1.1 413")
    assert headers["content-type"] == "application/problem+json"
    assert (told["title"], told["status"]) == ("TooLarge", 413)


def test_a_body_that_grows_too_large_is_refused_on_the_way(daemon: Daemon, client: Client) -> None:
    head = "POST /v1/jobs HTTP/1.1\nHost: x\nContent-Type: application/json\nTransfer-Encoding: chunked"
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    status, _, told = raw(daemon, head, chunk * (MOST_BYTES // (1 << 20)) + b"1\r\n \r\n")
    assert (status[9:12], told["title"]) == ("413", "TooLarge")
    with pytest.raises(TooLarge):
        client.submit("x" * (MOST_BYTES + 1))


@pytest.mark.parametrize(
    ("media", "body", "status"),
    [
        ("application/json", b"{", "422"),
        ("application/json", b"\xff\xfe", "4"),
        ("application/json", b"[" * 100_000, "4"),
        ("application/json", b'{"text": "\\ud800"}', "422"),
        ("application/json", b"", "422"),
        ("application/x-www-form-urlencoded", b"text=a", "415"),
        ("text/yaml", b"name: a", "415"),
    ],
)
def test_a_body_that_nobody_can_read_is_the_caller_s_fault(
    daemon: Daemon, media: str, body: bytes, status: str
) -> None:
    head = (
        f"POST /v1/jobs HTTP/1.1\nHost: x\nConnection: close\nContent-Type: {media}\n"
        f"Content-Length: {len(body)}"
    )
    first, headers, told = raw(daemon, head, body)
    assert first[9:].startswith(status)
    assert headers["content-type"] == "application/problem+json"
    assert told["status"] == int(first[9:12])


def test_headers_without_an_end_are_not_read_for_ever(daemon: Daemon) -> None:
    with unix_socket.connect(daemon.state_dir, 20.0) as connection:
        connection.sendall(b"GET /v1/health HTTP/1.1\r\n")
        with suppress(ConnectionError):
            for _ in range(1000):
                connection.sendall(b"X-More: " + b"a" * 1000 + b"\r\n")
        with suppress(ConnectionError):
            assert connection.recv(64).startswith(b"HTTP/1.1 400")
    assert raw(daemon, "GET /v1/health HTTP/1.1\nHost: x\nConnection: close")[0][9:12] == "200"


def test_answers_carry_an_id_and_headers_that_keep_browsers_from_guessing(daemon: Daemon) -> None:
    head = "GET /v1/health HTTP/1.1\nHost: x\nConnection: close\nX-Request-Id: "
    _, headers, _ = raw(daemon, head + "mine-1")
    assert headers["x-request-id"] == "mine-1"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "server" not in headers
    _, headers, _ = raw(daemon, head + "mine 2")
    assert headers["x-request-id"] != "mine 2"


def test_a_method_that_is_not_for_a_route_is_a_problem_too(daemon: Daemon) -> None:
    status, headers, told = raw(daemon, "PATCH /v1/jobs HTTP/1.1\nHost: x\nConnection: close")
    assert status.startswith("HTTP/1.1 405")
    assert headers["content-type"] == "application/problem+json"
    assert headers["allow"] == "GET, POST"
    assert told["detail"] == "PATCH is not for /v1/jobs; allowed: GET, POST"


def test_a_field_that_is_out_of_bounds_is_told_as_found_and_allowed(client: Client) -> None:
    with pytest.raises(BadFields) as caught:
        client.burn_in(["n0"], duration_s=5.0)
    expected = "request: duration_s: found 5.0; allowed: greater than or equal to 10."
    assert str(caught.value) == expected


def operations(client: Client) -> dict[str, dict[str, Any]]:
    """The methods of each path of the OpenAPI."""
    paths: dict[str, dict[str, Any]] = client.send(Request[Any]("GET", "/v1/openapi.json"))["paths"]
    return paths


def test_a_405_names_all_methods_of_its_path(daemon: Daemon, client: Client) -> None:
    wrong = {}
    for path, methods in operations(client).items():
        plain = path.replace("{", "").replace("}", "")
        _, headers, _ = raw(daemon, f"PATCH {plain} HTTP/1.1\nHost: x\nConnection: close")
        missing = {method.upper() for method in methods} - set(headers["allow"].split(", "))
        if missing:
            wrong[path] = missing
    assert wrong == {}


@pytest.mark.parametrize("body", [b"{bad}", b'{"unknown": 1}', b"[1]"])
def test_every_route_that_changes_something_checks_its_body(
    daemon: Daemon, client: Client, body: bytes
) -> None:
    (job,) = client.submit(jobs=[job_object("body")])["jobs"]
    head = "Host: x\nConnection: close\nContent-Type: application/json"
    for path, methods in operations(client).items():
        for method in {*methods} - {"get"}:
            plain = path.replace("{word}", job["job"]).replace("{", "").replace("}", "")
            line = f"{method.upper()} {plain} HTTP/1.1\n{head}\nContent-Length: {len(body)}"
            status, _, told = raw(daemon, line, body)
            assert (path, method, status[9:12], told["title"]) == (path, method, "422", "BadFields")
    assert client.job(job["job"])["phase"] == "pending"
    client.cancel(job["job"])


@pytest.mark.parametrize("body", [b"", b"{}", b"null"])
def test_a_command_without_fields_takes_an_empty_body(
    daemon: Daemon, client: Client, body: bytes
) -> None:
    (job,) = client.submit(jobs=[job_object("empty-body")])["jobs"]
    head = "Host: x\nConnection: close\nContent-Type: application/json"
    line = f"POST /v1/jobs/{job['job']}/cancel HTTP/1.1\n{head}\nContent-Length: {len(body)}"
    status, _, _ = raw(daemon, line, body)
    assert status[9:12] == "202"


def test_a_caller_asks_no_oftener_than_it_may() -> None:
    now = [0.0]
    rates = RateLimits(2.0, clock=lambda: now[0])
    for _ in range(2):
        rates.consume("a")
    with pytest.raises(TooOften, match=r"again in 0\.5 s"):
        rates.consume("a")
    rates.consume("b")
    now[0] = 0.5
    rates.consume("a")
    with pytest.raises(TooOften):
        rates.consume("a")


# Jobs


def test_jobs_come_as_objects_too(client: Client) -> None:
    receipt = client.submit(jobs=[job_object("obj"), job_object("obj2", priority="batch")])
    ids = [each["job"] for each in receipt["jobs"]]
    assert ids == ["obj", "obj2"]
    assert client.job("obj")["spec"]["roles"][0]["run"] == ["true"]
    wrong = job_object("bad")
    wrong["gang"][0]["members"] = "many"
    with pytest.raises(BadFields) as refused:
        client.submit(jobs=[job_object("good"), wrong])
    (problem,) = refused.value.problems
    assert (problem.field, problem.line) == ("jobs[1].gang[0].members", None)
    assert client.jobs(name="good") == []


def test_either_a_text_or_jobs(client: Client) -> None:
    bodies: list[dict[str, Any]] = [
        {},
        {"text": job_text("a"), "jobs": [job_object("b")]},
        {"jobs": []},
    ]
    for body in bodies:
        with pytest.raises(BadFields):
            client.send(Request[Any]("POST", "/v1/jobs", body=body))


def test_the_same_key_takes_nothing_twice_even_after_kill_9(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        first = daemon.client.submit(job_text("once"), idempotency_key="k1")
        assert daemon.client.submit(job_text("once"), idempotency_key="k1") == first
        daemon.kill()
        daemon.start()
        assert daemon.client.submit(job_text("once"), idempotency_key="k1") == first
        assert [row["job"] for row in daemon.client.jobs()] == ["once"]
        with pytest.raises(Conflict, match="another submission"):
            daemon.client.submit(job_text("other"), idempotency_key="k1")
        assert daemon.client.submit(job_text("once"))["jobs"][0]["job"] == "once-2"
        with pytest.raises(BadFields, match="Idempotency-Key"):
            daemon.client.submit(job_text("once"), idempotency_key="a b")


def test_pages_show_each_job_once_while_jobs_come(client: Client) -> None:
    expected = [each["job"] for _ in range(5) for each in client.submit(job_text("page"))["jobs"]]
    seen: list[str] = []
    page = client.jobs_page(limit=2, name="page")
    while True:
        seen += [row["job"] for row in page["jobs"]]
        if page["next"] is None:
            break
        late = client.submit(job_text("page"))["jobs"][0]["job"] if len(expected) < 8 else None
        expected += [late] if late else []
        page = client.jobs_page(limit=2, after=page["next"], name="page")
    assert seen == expected
    with pytest.raises(BadFields, match="after"):
        client.jobs_page(limit=2, after="x")


def test_a_list_shows_what_was_asked_for(client: Client) -> None:
    client.submit(job_text("mine"), user="ada")
    client.submit(job_text("yours"), user="bob")
    assert {row["user"] for row in client.jobs(user="ada")} == {"ada"}
    assert {row["name"] for row in client.jobs(name="yours")} == {"yours"}
    assert {row["phase"] for row in client.jobs(phase=["pending", "running"])} == {"pending"}
    assert client.jobs(phase=["running"]) == []
    assert client.jobs(queue="default") == client.jobs()
    assert client.jobs(queue="def") == []
    (yours,) = client.jobs(name="yours")
    assert client.jobs(since=yours["submitted_at"])[0] == yours
    with pytest.raises(BadFields, match="phase"):
        client.jobs(phase=["asleep"])


def test_a_write_may_be_bound_to_what_was_seen(client: Client) -> None:
    job = client.submit(job_text("versioned"))["jobs"][0]["job"]
    seen = client.job(job)["version"]
    assert client.job(job)["version"] == seen
    client.release(job, if_version=seen)
    with pytest.raises(Stale, match="read it again"):
        client.cancel(job, if_version=seen)
    with pytest.raises(BadFields, match="If-Match"):
        headers = {"If-Match": "seen"}
        client.send(Request("POST", "/v1/jobs/{job}/cancel", {"job": job}, headers=headers))


def test_the_version_is_the_etag(daemon: Daemon, client: Client) -> None:
    job = client.submit(job_text("tagged"))["jobs"][0]["job"]
    head = f"GET /v1/jobs/{job} HTTP/1.1\nHost: x\nConnection: close"
    _, headers, told = raw(daemon, head)
    assert headers["etag"] == f'"{told["version"]}"'


# Events


def test_events_go_on_where_a_listener_stopped(client: Client) -> None:
    for _ in range(3):  # so that there are three facts after the middle, whichever tests ran before
        job = client.submit(job_text("heard"))["jobs"][0]["job"]
        client.cancel(job)
    facts = list(client.facts())
    heard = list(islice(client.events(0), len(facts)))
    assert heard == facts
    middle = len(facts) // 2
    assert list(islice(client.events(facts[middle - 1]["seq"]), 3)) == facts[middle : middle + 3]
    of_job = [fact for fact in facts if fact["data"].get("job") == job]
    assert list(islice(client.events(0, job=job), len(of_job))) == of_job


def test_a_listener_to_nobody_s_job_or_another_journal_is_refused(client: Client) -> None:
    with pytest.raises(NotFound):
        next(client.events(job="ghost"))
    with pytest.raises(Conflict, match="another journal"):
        next(client.events(10**6))


def test_several_listeners_hear_the_same(client: Client) -> None:
    last = list(client.facts())[-1]["seq"]
    listeners = [client.events(last) for _ in range(3)]
    job = client.submit(job_text("chorus"))["jobs"][0]["job"]
    client.cancel(job)
    heard = [list(islice(about(job, each), 2)) for each in listeners]
    assert heard[0] == heard[1] == heard[2]
    assert len(heard[0]) == 2


def about(job: str, facts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Jobs of other tests may still be on their way to their ends."""
    return (fact for fact in facts if fact["data"].get("job") == job)


# The clients


def test_importing_gantree_loads_nothing_and_has_both_clients() -> None:
    code = (
        "import sys, gantree\n"
        "print(sorted({'http.client', 'httpx', 'asyncio', 'numpy'} & set(sys.modules)))\n"
        "gantree.Client; print('httpx' in sys.modules); gantree.AsyncClient"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\nFalse\n"
    assert gantree.Client is Client


def handed_to(hanging: socket.socket) -> list[str]:
    """What each who has come since was answered by nobody, by the first lines of what they sent."""
    hanging.setblocking(False)
    found = []
    with suppress(BlockingIOError):
        while True:
            at, _ = hanging.accept()
            with at:
                found.append(at.recv(1 << 16).decode().splitlines()[0])
    return found


def test_nothing_that_waits_is_asked_of_a_daemon_that_hangs_while_another_answers(
    daemon: Daemon, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes every request, as its machine does that for it, and answers none."""
    monkeypatch.setattr("gantree.api.client.failover.FIRST_ANSWER_WITHIN_S", 0.5)
    job = client.submit(job_text("waited-for"))["jobs"][0]["job"]
    token = (daemon.state_dir / "token").read_text().strip()

    async def wait(urls: str) -> dict[str, Any]:
        async with gantree.AsyncClient(urls, token) as asking:
            return await asking.job(job, wait_s=0.1)

    with socket.create_server(("127.0.0.1", 0)) as hanging:
        urls = f"http://127.0.0.1:{hanging.getsockname()[1]},{daemon.url}"
        assert Client(urls, token).job(job, wait_s=0.1)["job"] == job
        assert asyncio.run(wait(urls))["job"] == job
        assert next(Client(urls, token).events(0))["seq"] == 1
        handed = handed_to(hanging)
    assert (len(handed) >= 3, set(handed)) == (True, {"GET /healthz HTTP/1.1"})
    client.cancel(job)
