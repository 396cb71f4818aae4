"""How a rank posts its reports: to a real server, beside its steps, again after a failure, and the last at the end."""

import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from gantree.training import own_time, posting, reporting
from gantree.training.posting import Post, post_of
from support.certificates import certificate
from support.serving import serving

ABOUT = {"rank": 0, "local_rank": 0, "local_world_size": 1}
POD = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
Answer = tuple[int, bytes]
GOOD: Answer = (HTTPStatus.OK, b'{"again_s": 5.0}')


class Daemon:
    """A server that answers reports as it is told, and keeps them. came is released by each."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.reports = list(answers), list[tuple[str, str, Any]]()
        self.came, self.is_let_go = threading.Semaphore(0), threading.Event()
        self.is_let_go.set()
        self.url = ""

    def next_report(self) -> Any:
        assert self.came.acquire(timeout=300), "no report came"
        return self.reports[-1][2]

    def handler(daemon) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805 - its handler has a self, too
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                said = self.headers["Authorization"]
                daemon.reports.append((self.path, said, json.loads(body)))
                daemon.came.release()
                daemon.is_let_go.wait()
                status, content = daemon.answers.pop(0) if daemon.answers else GOOD
                self.send_response(status)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler


@contextmanager
def served(daemon: Daemon, tls: tuple[Path, Path] | None = None) -> Iterator[Daemon]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), daemon.handler())
    scheme = "http"
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    with serving(server):
        daemon.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/base"
        try:
            yield daemon
        finally:
            daemon.is_let_go.set()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports come at once, and no process-wide post is left for other tests."""
    for name in ("EVERY_S", "AGAIN_S"):
        monkeypatch.setattr(posting, name, 0.01)
    monkeypatch.setattr(posting, "_posts", {})


def test_the_newest_records_go_with_the_token_of_the_pod() -> None:
    with served(Daemon()) as daemon:
        post = Post(daemon.url, "secret", ABOUT)
        post.leave("steps", {"steps": [[1, 0.5]]})
        assert daemon.next_report() == {**ABOUT, "steps": {"steps": [[1, 0.5]]}}
        assert daemon.reports[0][:2] == ("/base/v1/reports", "Bearer secret")
        post.finish()
    assert len(daemon.reports) == 1, "what was sent is not sent again"


BAD: tuple[Answer, ...] = (
    (503, b"{}"),
    (307, b""),
    (200, b"garbage"),
    (200, b'{"again_s": "soon"}'),
    (200, b"[]"),
)


@pytest.mark.parametrize("answer", BAD)
def test_what_was_not_taken_is_sent_again_with_what_came_since(answer: Answer) -> None:
    with served(Daemon(answer)) as daemon:
        daemon.is_let_go.clear()
        post = Post(daemon.url, "secret", ABOUT)
        post.leave("steps", {"number": 1})
        post.leave("progress", {"step": 1})
        first = daemon.next_report()
        post.leave("steps", {"number": 2})
        daemon.is_let_go.set()
        while (found := daemon.next_report()) == first:
            pass
        assert found == {**ABOUT, "steps": {"number": 2}, "progress": {"step": 1}}
        post.finish()


def test_a_step_waits_for_no_daemon_and_the_last_report_goes_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the daemon holds its answer back, steps go on; their newest record goes with the next report."""
    with served(Daemon()) as daemon:
        daemon.is_let_go.clear()
        environment = {**POD, posting.URL: daemon.url, posting.TOKEN: "secret"}
        times, reporter = own_time.step_times_of(environment), reporting.reporter_of(environment)
        assert times is not None
        assert reporter is not None
        times.add(0.5)
        daemon.next_report()
        for _ in range(1000):
            times.add(0.25)
            reporter.report(1, None, None)
        times.finish()
        monkeypatch.setattr(posting, "EVERY_S", 3600.0)
        daemon.is_let_go.set()
        post = post_of(environment)
        assert post is not None
        post.finish()
        last = daemon.reports[-1][2]
    assert last["steps"]["steps"][-1] == [1000, 0.25]
    assert (last["progress"]["step"], last["local_world_size"]) == (1, 2)


@pytest.mark.parametrize(
    ("again_s", "pause_s"),
    [("40", 40.0), ("-1", 0.01), ("NaN", 0.01), ("1e99", posting.LONGEST_PAUSE_S)],
)
def test_the_daemon_says_when_the_next_report_comes_within_bounds(
    again_s: str, pause_s: float
) -> None:
    assert posting.pause_s_of(f'{{"again_s": {again_s}}}'.encode()) == pause_s


def test_a_daemon_that_is_not_there_or_no_url_ends_nothing() -> None:
    for url in ("http://127.0.0.1:1", "http://", "ftp://x", "http://[", "nonsense", "http://h:x"):
        post = Post(url, "secret", ABOUT)
        post.leave("steps", {})
        post.finish()
        assert not post._thread.is_alive()


def test_over_tls_the_daemon_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = certificate(tmp_path)
    with served(Daemon(), tls) as daemon:
        post = Post(daemon.url, "secret", ABOUT)
        post.leave("steps", {})
        post.finish()
        assert daemon.reports == [], "nobody vouches for it"
        monkeypatch.setattr(posting, "CLUSTER_CA", tls[0])
        post = Post(daemon.url, "secret", ABOUT)
        post.leave("steps", {})
        post.finish()
        assert len(daemon.reports) == 1


@pytest.mark.parametrize("missing", [posting.URL, posting.TOKEN])
def test_without_url_or_token_nothing_is_posted(missing: str) -> None:
    environment = {**POD, posting.URL: "http://127.0.0.1:1", posting.TOKEN: "secret", missing: ""}
    assert post_of(environment) is None
    assert own_time.step_times_of(environment) is None
    assert reporting.reporter_of(environment) is None


Make = Callable[[dict[str, str]], object]


@pytest.mark.parametrize("make", [own_time.step_times_of, reporting.reporter_of])
def test_the_run_directory_comes_first(tmp_path: Path, make: Make) -> None:
    (tmp_path / "progress").mkdir()
    told = {posting.URL: "http://127.0.0.1:1", posting.TOKEN: "secret"}
    assert make({**POD, **told, "GANTREE_RUN_DIR": str(tmp_path)}) is not None
    assert posting._posts == {}
