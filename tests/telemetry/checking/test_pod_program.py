"""The program of a pod's check against a server of answers, with a clock that only its own waits move."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from gantree.telemetry.checking import pod
from gantree.telemetry.checking.member import NOT_STARTED

WAIT = {"state": "wait", "again_s": 5.0, "lines": []}
MEASURE = {"state": "measure", "again_s": 5.0, "lines": [], "plan": {}}
START = {"state": "start", "again_s": 5.0, "lines": ["links passed their check"]}
STOP = {**START, "state": "stop", "lines": ["n1 is slow"]}
Answer = dict[str, Any] | None
"""None: gantree does not answer."""


@dataclass
class Gantree:
    """The daemon: answer gives what it says to its nth post at a moment."""

    answer: Callable[[int, float], Answer] = lambda _, __: None
    now: float = 0.0
    posts: list[dict[str, Any]] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def post(self, body: bytes) -> Answer:
        self.posts.append(json.loads(body))
        return self.answer(len(self.posts), self.now)


@pytest.fixture
def gantree(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gantree]:
    told = Gantree()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = told.post(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(503 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None: ...

    clock = SimpleNamespace(monotonic=lambda: told.now, sleep=told.sleep)
    monkeypatch.setattr(pod, "time", clock)
    monkeypatch.setattr(pod, "_gpus", lambda: 0)
    term = signal.getsignal(signal.SIGTERM)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("GANTREE_REPORT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("GANTREE_REPORT_TOKEN", "of-this-pod")
        yield told
        server.shutdown()
        thread.join()
    signal.signal(signal.SIGTERM, term)


@pytest.mark.parametrize(("required", "status"), [("false", 0), ("true", NOT_STARTED)])
def test_a_daemon_that_is_silent_for_ten_minutes_lets_it_start_unless_the_check_is_required(
    gantree: Gantree,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    required: str,
    status: int,
) -> None:
    monkeypatch.setenv("GANTREE_CHECK_REQUIRED", required)
    gantree.answer = lambda _, now: WAIT if now <= 300 else None
    assert pod.main() == status
    assert 900 < gantree.now <= 902
    said = "gantree: check: gantree did not answer for 600 s: the links were not checked\n"
    assert capsys.readouterr().out == said


def test_a_daemon_that_answers_again_in_time_is_followed(gantree: Gantree) -> None:
    gantree.answer = lambda _, now: None if now < 590 else START
    assert pod.main() == 0
    assert len(gantree.posts) > 500


def test_a_post_that_fails_after_a_long_measurement_loses_no_result(
    gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object) -> dict[str, Any]:
        gantree.now += 3600.0
        return {"figures": []}

    monkeypatch.setattr(pod, "_measured", measured)
    gantree.answer = lambda number, _: MEASURE if number == 1 else None if number == 2 else START
    assert pod.main() == 0
    assert [each["result"] for each in gantree.posts] == [None, {"figures": []}, {"figures": []}]


def test_a_pod_that_may_not_start_waits_to_be_deleted(
    gantree: Gantree, capsys: pytest.CaptureFixture[str]
) -> None:
    gantree.answer = lambda _, now: STOP if now >= 5 else WAIT
    assert pod.main() == NOT_STARTED
    assert gantree.now == 305.0
    assert capsys.readouterr().out == "gantree: check: n1 is slow\n"
