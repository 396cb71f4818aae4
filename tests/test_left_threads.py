"""A module that leaves a server or a thread behind fails, and names it."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from support import left_threads
from support.serving import serving


def test_a_server_that_serves_on_and_a_thread_that_runs_on_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(left_threads, "ENDS_WITHIN_S", 0.01)
    before, end = threading.enumerate(), threading.Event()
    runs = threading.Thread(target=end.wait, name="runs-on")
    stays = threading.Thread(target=end.wait, name="a-daemon", daemon=True)
    with serving(HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)):
        runs.start()
        stays.start()
        server, thread = sorted(left_threads.left_threads(before))
        assert "(serve_forever)" in server
        assert thread == "runs-on"
    end.set()
    runs.join()
    stays.join()
    assert not left_threads.left_threads(before)
