"""The commands against servers that are no gantree daemon, or one of another version: sentences, never a traceback."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Gantree = Callable[..., Any]
PROBLEM = "application/problem+json"


def http(body: bytes, status: int = 200, kind: str = "application/json") -> bytes:
    """An answer as it goes over the wire."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def problem(**fields: object) -> bytes:
    return http(json.dumps(fields).encode(), 422, PROBLEM)


STRANGE = {
    "silence": b"",
    "no HTTP": b"\x00\xff garbage\r\n\r\n",
    "a page": http(b"<html>hello</html>", kind="text/html"),
    "an object without fields": http(b"{}"),
    "a list": http(b"[]"),
    "null": http(b"null"),
    "JSON that is too deep": http(b"[" * 100_000),
    "other bytes": http(b'{"a": "\xff"}'),
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{",
    "lists of no objects": http(b'{"nodes": null, "tokens": [1], "queues": {}, "versions": 3}'),
    "a redirection": b"HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "problems of other fields": problem(title="BadFields", problems=[{"x": 1}]),
    "problems that are none": problem(title="BadFields", problems=3),
    "a leader that is none": problem(title="NotLeading", detail="x", leader_url=5),
    "a title that is none": problem(title=[], detail={"a": 1}),
    "an error that is a list": http(b"[1]", 500, PROBLEM),
}
COMMANDS = [
    "jobs", "why a", "when a", "queues", "usage", "record a", "rerun a", "cancel a", "scale a --members 2", "nodes",
    "cordon n0", "label n0 a=b", "policy show", "policy rollback 1", "token list", "token revoke x", "audit",
    "defragment a", "what-if a --with-members 2", "attach a -- ls", "topo", "run -- true",
]  # fmt: skip


class Strange:
    """A server that says one thing, whatever it is asked."""

    def __init__(self) -> None:
        self.says = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(65536)
                    connection.sendall(self.says)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(65536)
                except OSError:
                    continue

    def close(self) -> None:
        """Answer no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture(scope="module")
def strange() -> Iterator[Strange]:
    server = Strange()
    yield server
    server.close()


@pytest.mark.parametrize("answer", STRANGE)
def test_a_strange_server_is_told_in_a_sentence(
    gantree: Gantree, strange: Strange, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_TOKEN", "t")
    monkeypatch.setenv("GANTREE_SERVER", strange.url)
    strange.says = STRANGE[answer]
    for command in COMMANDS:
        done = gantree(*command.split())
        assert done.code in (1, 2), (command, done)
        assert done.err.startswith("gantree: "), (command, done)


def test_a_field_that_another_version_leaves_out_is_named(
    gantree: Gantree, strange: Strange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_SERVER", strange.url)
    strange.says = http(b'{"jobs": [{"job": "a"}]}')
    assert "the answer has no field" in gantree("jobs").err


def test_an_audit_log_that_never_ends_is_left(
    gantree: Gantree, strange: Strange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_SERVER", strange.url)
    strange.says = http(b'{"rows": [], "next": 3}')
    done = gantree("audit")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("gantree: the next page starts before")


def test_output_that_no_daemon_gave_is_told_as_such(
    gantree: Gantree, strange: Strange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_SERVER", strange.url)
    strange.says = http(b"<html>\nhello\n", kind="text/html")
    done = gantree("logs", "id:a", "--json")
    assert (done.code, done.err) == (
        1,
        "gantree: the answer has a line that is no JSON (b'<html>'): the server is no gantree daemon\n",
    )


def test_a_field_of_another_type_is_named_with_what_it_should_be(
    gantree: Gantree, strange: Strange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_SERVER", strange.url)
    strange.says = http(b'{"jobs": 3, "warnings": []}')
    done = gantree("rerun", "id:a")
    assert done.code == 1
    assert "the answer to POST /v1/jobs/{job}/rerun is not as a gantree daemon" in done.err
    assert done.err.endswith("jobs: input should be a valid list\n")


def test_to_compact_where_no_journal_is_makes_none(gantree: Gantree, tmp_path: Any) -> None:
    done = gantree("journal", "compact", "--state", tmp_path / "none")
    assert done.code == 1
    assert "has no journal" in done.err
    assert not (tmp_path / "none").exists()
