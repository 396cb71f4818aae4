"""The daemon of an item, those who use it meanwhile, and what they saw: acknowledged jobs, readiness, latencies.

`Site.caller` sends one request at a time over the Unix socket; an answer that does not come is of status 0. `Watcher`
asks `/readyz` and submits a job five times a second. `Site.window` is what another user sees in a second or two.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import Any

from gantree.api.http import unix_socket
from loading import CLUSTER, NODES, Daemon, percentiles_ms

CREATED = 201
OK = 200
PATIENCE_S = 60.0
WATCH_EVERY_S = 0.2
WATCHER_WAITS_S = 2.0
"""An answer that takes the watcher longer counts as none."""
REQUESTS = 120
"""Jobs that another user submits in one window: of 40 the 99th percentile is the longest, one hiccup of the machine."""
FIGURES = ("decision", "jobs")
FREE_NODES = 1
TAKEN = "allocations:\n" + "".join(
    f"  - {{job: old, node: n{node}, gpus: [0, 1, 2, 3, 4, 5, 6, 7]}}\n"
    for node in range(NODES - FREE_NODES)
)
"""With this, one node is free."""


class Caller:
    """A client that keeps its connection, connects anew where that was lost, and raises nothing."""

    def __init__(self, state: Path, patience_s: float = PATIENCE_S) -> None:
        self._state, self._patience_s = state, patience_s
        self._connection: HTTPConnection | None = None

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and answer; (0, reason) where none came."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        try:
            if self._connection is None:
                self._connection = HTTPConnection("localhost")
                self._connection.sock = unix_socket.connect(self._state, self._patience_s)
            self._connection.request(method, path, content, headers)
            response = self._connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            return 0, repr(error)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def job(name: str, user: str, **fields: Any) -> dict[str, Any]:
    """A job that waits for two nodes, unless fields say otherwise."""
    role = {"role": "w", "members": 1 + FREE_NODES, "each": {"gpus": 8}, "run": ["true"]}
    return {"name": name, "user": user, "gang": [role], **fields}


@dataclass(frozen=True, slots=True)
class Seen:
    """At one moment: whether `/readyz` was a 200; whether a submission was taken and gangs could start."""

    at: float
    is_ready: bool
    works: bool


@dataclass(slots=True)
class Window:
    """What another user saw: seconds of each figure, and refusals."""

    took_s: dict[str, list[float]] = field(default_factory=lambda: {each: [] for each in FIGURES})
    refused: list[str] = field(default_factory=list)

    def p99_ms(self, figure: str) -> float:
        """Of one figure."""
        return percentiles_ms(self.took_s[figure]).get("p99_ms", 0.0)


class Site:
    """A daemon on 16 virtual nodes of 8 GPUs, of which one is free, and what was seen of it."""

    def __init__(
        self,
        home: Path,
        options: Sequence[str] = (),
        run_by: Sequence[str] = (),
        files: Path | None = None,
    ) -> None:
        self.home = home
        self.daemon = Daemon(home, CLUSTER + TAKEN, options, run_by=run_by, files=files)
        self.acknowledged: dict[str, float] = {}
        self.complaints: list[str] = []
        self.can_start_jobs = True
        self.seen: list[Seen] = []
        self._numbers = count(1)

    # ----- requests

    @property
    def caller(self) -> Caller:
        """A client with a connection of its own: one that was kept may have been ended."""
        return Caller(self.daemon.state)

    def submit(self, caller: Caller, user: str, **fields: Any) -> tuple[int, str]:
        """Submit a job; its status and id, or the reason why there is none. Acknowledged jobs are remembered."""
        one = job(f"{user}-{next(self._numbers)}", user, **fields)
        sent_at = time.monotonic()
        status, answer = caller.ask("POST", "/v1/jobs", {"jobs": [one], "base_dir": "/tmp"})
        if status != CREATED:
            return status, str(answer)
        ids = [each["job"] for each in answer["jobs"]]
        self.acknowledged.update(dict.fromkeys(ids, sent_at))
        return status, ids[0]

    def forget_acknowledged(self, before: float) -> None:
        """What was submitted before this moment of `time.monotonic` need not be on disk."""
        kept = {one: at for one, at in list(self.acknowledged.items()) if at >= before}
        self.acknowledged = kept

    def run(self, user: str, script: str, **fields: Any) -> str:
        """Submit a job that runs a script in a shell, wait until it runs, and give its id."""
        role = {"role": "w", "members": 1, "each": {"gpus": 1}, "run": ["sh", "-c", script]}
        status, one = self.submit(self.caller, user, gang=[role], **fields)
        self.require(status == CREATED, f"a job of {user} was refused: {one}")
        self.caller.ask("GET", f"/v1/jobs/{one}?wait_s=30&until=running")
        return one

    def cancel(self, one: str) -> None:
        """Cancel a job and wait until it has ended."""
        self.caller.ask("POST", f"/v1/jobs/{one}/cancel")
        self.caller.ask("GET", f"/v1/jobs/{one}?wait_s=30")

    def require(self, condition: object, complaint: str) -> None:
        """A violation of its own where this does not hold."""
        if not condition:
            self.complaints.append(complaint)

    def window(self) -> Window:
        """What another user sees now: how long it takes until a job is decided about, and to list jobs."""
        told, caller = Window(), Caller(self.daemon.state)
        for _ in range(REQUESTS):
            began = time.perf_counter()
            status, one = self.submit(caller, "other")
            if status == CREATED:
                status, _ = caller.ask("GET", f"/v1/jobs/{one}")
            told.took_s["decision"].append(time.perf_counter() - began)
            if status != OK:
                told.refused.append(f"{status}: {one}")
            began = time.perf_counter()
            listed, answer = caller.ask("GET", "/v1/jobs?limit=50")
            told.took_s["jobs"].append(time.perf_counter() - began)
            if listed != OK:
                told.refused.append(f"{listed}: {answer}")
            if status == OK:
                caller.ask("POST", f"/v1/jobs/{one}/cancel")
        caller.close()
        return told

    # ----- the watcher

    @contextmanager
    def watched(self) -> Iterator[None]:
        """`/readyz` and submissions are watched within this block."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,))
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(WATCH_EVERY_S):
            caller = Caller(self.daemon.state, WATCHER_WAITS_S)  # anew: the daemon may be another
            at = time.monotonic()
            is_ready = caller.ask("GET", "/readyz")[0] == OK
            status, one = self.submit(caller, "watcher")
            self.seen.append(Seen(at, is_ready, status == CREATED and self.can_start_jobs))
            if status == CREATED:
                caller.ask("POST", f"/v1/jobs/{one}/cancel")
            caller.close()

    def longest_wrong(self) -> tuple[float, str]:
        """The longest time that `/readyz` said otherwise than submissions went, in seconds, and what it said."""
        longest, said, since = 0.0, "", None
        for each in self.seen:
            if each.is_ready == each.works:
                since = None
                continue
            since = each.at if since is None else since
            if each.at - since > longest:
                longest = each.at - since
                said = (
                    "ready while submissions failed"
                    if each.is_ready
                    else "not ready while all was well"
                )
        return longest, said
