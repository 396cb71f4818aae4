"""Sends reports to gantree's API where its daemon does not see the files of the ranks: in pods of Kubernetes.

    POST <GANTREE_REPORT_URL>/v1/reports    Authorization: Bearer <GANTREE_REPORT_TOKEN>
    {"rank", "local_rank", "local_world_size", "steps": {...}, "progress": {...}}    -> {"again_s"}

The records are those of the files (`own_time`, `reporting`). The newest are sent by a thread, at most every EVERY_S or
as rarely as the daemon asks. A step only leaves its record here: it waits for no network, and no error reaches it.
"""

import atexit
import http.client
import json
import logging
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gantree.training.place import number

URL, TOKEN = "GANTREE_REPORT_URL", "GANTREE_REPORT_TOKEN"
PATH = "/v1/reports"
EVERY_S = 5.0
"""Seconds between two reports of a rank, at least."""
LONGEST_PAUSE_S = 3600.0
TIMEOUT_S = 3.0
AGAIN_S = 1.0
"""After a report that failed: a standby refuses it, and the next connection may reach the leader."""
SPREAD = 50
"""The first reports of so many ranks are spread over EVERY_S."""
OK = 200
LONGEST_ANSWER = 4096
CLUSTER_CA = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")

log = logging.getLogger(__name__)


class Refused(Exception):
    """The daemon did not take a report."""


class Post:
    """What this process reports. `leave` is for its steps; everything else is done by the thread."""

    def __init__(self, url: str, token: str, about: Mapping[str, int]) -> None:
        """about: rank, local_rank and local_world_size."""
        self._url, self._token, self._about = url, token, dict(about)
        self._lock = threading.Lock()
        self._unsent: dict[str, Any] = {}
        self._ended = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="gantree reports", daemon=True)
        self._thread.start()

    def leave(self, part: str, record: dict[str, Any]) -> None:
        """Leave the newest record of a part of the report, "steps" or "progress"."""
        with self._lock:
            self._unsent[part] = record

    def finish(self) -> None:
        """Send what is left, for TIMEOUT_S at most."""
        self._ended.set()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        pause_s = AGAIN_S + EVERY_S * (self._about["rank"] % SPREAD) / SPREAD
        while not self._ended.wait(pause_s):
            pause_s = self._sent()
        self._sent()

    def _sent(self) -> float:
        """Send the newest records; return the pause until the next report, in seconds."""
        with self._lock:
            parts, self._unsent = self._unsent, {}
        if not parts:
            return EVERY_S
        try:
            pause_s = self._send({**self._about, **parts})
        except Exception as error:  # a report ends no training
            return self._failed(parts, error)
        self._failures = 0
        return pause_s

    def _failed(self, parts: dict[str, Any], error: Exception) -> float:
        with self._lock:
            self._unsent = {**parts, **self._unsent}
        self._failures += 1
        if self._failures == 1 and not self._about["rank"]:
            log.info("a report to %s failed, and is tried again: %s", self._url, error)
        return min(EVERY_S, AGAIN_S * self._failures)

    def _send(self, report: dict[str, Any]) -> float:
        """Send a report once. Raises OSError, HTTPException, ValueError, Refused."""
        url = urlsplit(self._url)
        connection = _connection_to(url)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", url.path.rstrip("/") + PATH, json.dumps(report), headers)
            answer = connection.getresponse()
            content = answer.read(LONGEST_ANSWER)
        finally:
            connection.close()
        if answer.status != OK:
            raise Refused(f"status {answer.status}")
        return pause_s_of(content)


def pause_s_of(answer: bytes) -> float:
    """Return after how many seconds the daemon asks for the next report. Raises ValueError, LookupError, TypeError."""
    return min(max(EVERY_S, float(json.loads(answer)["again_s"])), LONGEST_PAUSE_S)


def _connection_to(url: SplitResult) -> http.client.HTTPConnection:
    """A connection that is not made yet. An HTTPS server is verified by the system's CAs and the cluster's."""
    host, port = url.hostname or "", url.port
    if url.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    trusted = ssl.create_default_context()
    if CLUSTER_CA.exists():
        trusted.load_verify_locations(CLUSTER_CA)
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=trusted)


_posts: dict[tuple[str, str], Post] = {}


def post_of(environment: Mapping[str, str]) -> Post | None:
    """Return the Post of this process, made on first use; None where the environment names no URL and token."""
    url, token = environment.get(URL), environment.get(TOKEN)
    if not url or not token:
        return None
    if (url, token) not in _posts:
        about = {
            "rank": number(environment, "RANK", 0),
            "local_rank": number(environment, "LOCAL_RANK", 0),
            "local_world_size": number(environment, "LOCAL_WORLD_SIZE", 1),
        }
        try:
            post = _posts[url, token] = Post(url, token, about)
        except RuntimeError:  # no further thread is allowed here
            return None
        atexit.register(post.finish)
    return _posts[url, token]
