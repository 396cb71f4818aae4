"""A daemon over TLS, behind the prefix of a proxy: whom it is trusted by, versions, cookies, headers, attaching."""

import http.client
import json
import os
import queue
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.protocol import State
from websockets.sync.client import ClientConnection

from gantree.api.client import exec_session
from gantree.api.client.client import Client
from gantree.api.client.exec_session import open_exec_session
from gantree.api.server.listeners import listen_of
from gantree.model.errors import BadInput, Unauthenticated, Unreachable
from support.certificates import certificate
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m1: {gpus: 1, gpu: H100-80GB}}
nodes: [{names: n0, machine: m1}]
"""
JOB = "name: notebook\ngang: [{role: w, members: 1, run: [sleep, '600']}]\n"
PREFIX = "/gantree"
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "strict-transport-security": "max-age=31536000",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificate is."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def daemon(home: Path) -> Iterator[Daemon]:
    tls = certificate(home)
    with Daemon(home / "state", CLUSTER, listen="127.0.0.1:0", tls=tls, root_path=PREFIX) as daemon:
        daemon.client.submit(JOB)
        daemon.wait("notebook", until="running")
        yield daemon


@pytest.fixture
def client(daemon: Daemon, home: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Somebody who trusts the certificate, and comes by the prefix."""
    monkeypatch.setenv("SSL_CERT_FILE", str(home / "cert.pem"))
    return Client(f"https://{address(daemon)}{PREFIX}", token(daemon))


def address(daemon: Daemon) -> str:
    """Host and port."""
    return daemon.url.split("/")[2]


def token(daemon: Daemon) -> str:
    return (daemon.state_dir / "token").read_text().strip()


def asked(
    daemon: Daemon, home: Path, method: str, path: str, body: object = None, **headers: str
) -> http.client.HTTPResponse:
    host, _, port = address(daemon).partition(":")
    context = ssl.create_default_context(cafile=str(home / "cert.pem"))
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=300)
    more = {} if body is None else {"Content-Type": "application/json"}
    connection.request(
        method, path, None if body is None else json.dumps(body), {**headers, **more}
    )
    return connection.getresponse()


def test_a_certificate_that_is_none_is_refused_at_the_start(home: Path, daemon: Daemon) -> None:
    with pytest.raises(BadInput, match="--tls-cert"):
        listen_of("127.0.0.1:0", home / "token", home / "cert.pem", home / "nothing")


def test_the_ready_line_says_the_url_with_the_prefix(daemon: Daemon) -> None:
    said = daemon.output.read_text()
    assert f"{address(daemon)}{PREFIX}\n" in said, said
    assert daemon.url == f"https://{address(daemon)}{PREFIX}"


def test_whoever_does_not_trust_the_certificate_sends_no_token(daemon: Daemon) -> None:
    elsewhere = Client(daemon.url, token(daemon))
    with pytest.raises(Unreachable, match="SSL_CERT_FILE"):
        elsewhere.health()
    with pytest.raises(Unreachable, match="SSL_CERT_FILE"):
        open_exec_session(elsewhere.target, "notebook", {"command": ["true"]})


def test_whoever_trusts_it_is_answered_with_the_prefix_and_without(
    daemon: Daemon, client: Client
) -> None:
    assert client.health()["pid"] == daemon.process.pid
    assert Client(f"https://{address(daemon)}", token(daemon)).health()["pid"] == daemon.process.pid


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_is_spoken_from_1_2_on(daemon: Daemon, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, version
    host, _, port = address(daemon).partition(":")
    with socket.create_connection((host, int(port)), timeout=300) as plain:
        if version is ssl.TLSVersion.TLSv1_1:
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(plain)
        else:
            with context.wrap_socket(plain) as spoken:
                assert spoken.version() == "TLSv1.2"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/healthz", 200), ("GET", "/v1/jobs", 401), ("GET", "/nothing", 404), ("PUT", "/v1/jobs", 405)],
)  # fmt: skip
def test_every_answer_keeps_browsers_from_guessing(
    daemon: Daemon, home: Path, method: str, path: str, status: int
) -> None:
    told = asked(daemon, home, method, path)
    assert told.status == status
    assert {name: told.headers[name] for name in HEADERS} == HEADERS
    assert told.headers["x-request-id"] and told.headers["server"] is None


def test_so_does_the_refusal_of_a_websocket(daemon: Daemon, home: Path) -> None:
    key = {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    told = asked(
        daemon, home, "GET", "/v1/jobs/notebook/attach", Upgrade="websocket", Connection="Upgrade", **key
    )  # fmt: skip
    assert told.status == 401
    assert {name: told.headers[name] for name in HEADERS} == HEADERS


def test_a_cookie_is_for_tls_and_for_the_prefix_alone(daemon: Daemon, home: Path) -> None:
    origin = f"https://{address(daemon)}"
    entered = asked(
        daemon, home, "POST", f"{PREFIX}/v1/session", {"token": token(daemon)}, Origin=origin
    )
    name, _, flags = entered.headers["set-cookie"].partition("=")
    assert (entered.status, name) == (201, "__Secure-gantree_session")
    assert {"Secure", "HttpOnly", f"Path={PREFIX}", "SameSite=strict"} <= {*flags.split("; ")}
    cookie = {"Cookie": f"{name}={flags.partition(';')[0]}"}
    assert asked(daemon, home, "GET", f"{PREFIX}/v1/session", **cookie).status == 200
    for planted in ("gantree_session", "__Host-gantree_session"):
        other = {"Cookie": f"{planted}={flags.partition(';')[0]}"}
        assert asked(daemon, home, "GET", f"{PREFIX}/v1/session", **other).status == 401
    left = asked(daemon, home, "DELETE", f"{PREFIX}/v1/session", Origin=origin, **cookie)
    assert (
        f"{name}=" in left.headers["set-cookie"] and f"Path={PREFIX}" in left.headers["set-cookie"]
    )
    assert asked(daemon, home, "GET", f"{PREFIX}/v1/session", **cookie).status == 401


def test_a_command_and_its_input_go_over_tls(daemon: Daemon, home: Path, client: Client) -> None:
    known = {**os.environ, "GANTREE_SERVER": client.target.url, "GANTREE_TOKEN": token(daemon)}
    done = subprocess.run(
        [sys.executable, "-m", "gantree.cli", "attach", "notebook", "--", "sh", "-c", "cat; exit 7"],
        env=known, input=b"typed\n" * 50_000, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == (b"typed\n" * 50_000, b"", 7)
    with pytest.raises(Unauthenticated):
        open_exec_session(
            Client(client.target.url, "nonsense").target, "notebook", {"command": ["true"]}
        )


def test_nothing_is_written_to_a_tls_connection_while_it_is_read(
    daemon: Daemon, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL loses what is written while it reads a session ticket: one request of 500, on a busy machine."""
    busy, at_once = threading.Lock(), list[str]()

    def watched(name: str) -> Callable[..., Any]:
        call = getattr(ssl.SSLSocket, name)

        def alone(self: ssl.SSLSocket, *arguments: Any) -> Any:
            is_alone = busy.acquire(blocking=False)
            try:
                at_once.extend([] if is_alone else [name])
                return call(self, *arguments)
            finally:
                if is_alone:
                    busy.release()

        return alone

    for name in ("recv", "send"):
        monkeypatch.setattr(ssl.SSLSocket, name, watched(name))
    for _ in range(5):
        session = open_exec_session(client.target, "notebook", {"command": ["cat"]})
        session.send(b"i", b"typed")
        assert next(session.receive()) == (b"o", b"typed")
        session.close()
    assert at_once == []


def test_a_refusal_is_closed_once_its_reader_has_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the reader of one refusal in a hundred logs an error of the library's."""
    close, reading = ClientConnection.close_socket, list[bool]()

    def close_socket(self: ClientConnection) -> None:
        if threading.current_thread() is not self.recv_events_thread:
            has_read_all = self.protocol.state is State.CLOSED  # what is left of it is its end
            reading.append(self.recv_events_thread.is_alive() and not has_read_all)
        close(self)

    monkeypatch.setattr(ClientConnection, "close_socket", close_socket)
    for _ in range(10):
        with pytest.raises(Unauthenticated):
            open_exec_session(Client(client.target.url, "nonsense").target, "notebook", {})
    assert reading and not any(reading)


def test_whoever_attaches_gives_up_on_one_who_says_nothing_over_tls(
    home: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is shown and a session ticket sent, and then nothing: the reader waits for the rest."""
    monkeypatch.setattr(exec_session, "CONNECT_WITHIN_S", 1.0)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(home / "cert.pem", home / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url, kept = f"https://127.0.0.1:{listening.getsockname()[1]}", queue.SimpleQueue[object]()

        def meet() -> None:
            kept.put(context.wrap_socket(listening.accept()[0], server_side=True))

        def told() -> None:
            try:
                open_exec_session(Client(url, "any").target, "notebook", {"command": ["true"]})
            except Unreachable as error:
                kept.put(str(error))

        threading.Thread(target=meet, daemon=True).start()
        threading.Thread(target=told, daemon=True).start()
        met = kept.get(timeout=300)
        assert isinstance(met, ssl.SSLSocket)
        assert "does not answer" in str(kept.get(timeout=300))
