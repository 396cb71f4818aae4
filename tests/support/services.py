"""Services on a real daemon for tests: job files of them, what tests wait for, and requests to their replicas.

The server is that of examples/services.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from support.daemon import Daemon

SERVER = Path(__file__).parents[2] / "examples" / "services" / "server.py"
CLUSTER = """
name: two
tiers: [leaf, node]
machines: {m8: {gpus: 8, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m8, at: {leaf: l0}}]
"""
WITHIN_S = 300.0
Json = dict[str, Any]


def text(
    name: str,
    replicas: str = "1",
    model: str = "tiny",
    more: str = "",
    seconds: str = "0.05",
    server: Path = SERVER,
    **fields: str,
) -> str:
    """A job file with a service. model is told to the server, so another one is another revision."""
    run = json.dumps(
        [sys.executable, "-I", "-S", str(server), "--seconds", seconds, "--model", model]
    )
    given = {
        "ready": "{http: /health, every: 100ms, timeout: 1m}",
        "restarts": "{backoff: 100ms}",
        "drain": "1s",
        "priority": "batch",
        **fields,
    }
    lines = [f"{field}: {value}" for field, value in given.items()]
    role = f"{{role: server, members: 1, each: {{gpus: 1}}, run: {run}}}"
    return "\n".join(
        ["kind: service", f"name: {name}", f"replicas: {replicas}", f"gang: [{role}]", *lines, more]
    )


class Site:
    """A daemon and what tests ask of its services."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon, self.client = daemon, daemon.client

    def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until something holds; what it gave."""
        deadline = time.monotonic() + WITHIN_S
        while not (found := holds()):
            assert time.monotonic() < deadline, self.client.services()
            time.sleep(0.02)
        return found

    def submit(self, *args: Any, **fields: Any) -> str:
        """Submit a service; its name."""
        (taken,) = self.client.submit(text(*args, **fields))["services"]
        return str(taken["service"])

    def until_ready(self, name: str, replicas: int) -> Json:
        """Wait until so many replicas of the newest revision are ready, and no others are left."""

        def is_so() -> Json | None:
            row = self.client.service(name)
            is_there = row["ready"] == row["current"] == len(row["replicas"]) == replicas
            return row if is_there else None

        found: Json = self.until(is_so)
        return found

    def routes(self, name: str) -> list[Json]:
        """The replicas of a service in the table for routers."""
        rows = self.client.routes()["services"]
        found: list[Json] = next((row["replicas"] for row in rows if row["service"] == name), [])
        return found

    def report(self, name: str, in_flight: int = 0, replica: str = "") -> str:
        """Report to the daemon as a router that knows the newest table; the version of it."""
        version: str = self.client.routes()["version"]
        replicas = [{"replica": replica, "attempt": 1, "in_flight": in_flight}] if replica else []
        service = {"service": name, "in_flight": in_flight, "rate": 4.0, "replicas": replicas}
        self.client.report_routes("r1", 1.0, [service], version=version)
        return version

    def process_of(self, job: str) -> int:
        """The process of a replica of this daemon that listens."""
        run = os.fsencode(self.daemon.state_dir.resolve() / "runs" / job)
        marks = (b"GANTREE_RUN=" + run + b"/", b"\0PORT=")
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and all(
                    each in (entry / "environ").read_bytes() for each in marks
                ):
                    return int(entry.name)
            except OSError:
                continue
        raise AssertionError(f"no process of {job}")

    def facts(self, name: str) -> Iterator[Json]:
        """What is on record of a service and its replicas."""
        for fact in self.client.facts():
            about = fact["data"].get("service") or fact["data"].get("job") or ""
            if str(about).rpartition(".")[0] == name or about == name:
                yield fact

    def fewest_ready(self, name: str, after: int) -> int:
        """The fewest replicas that got requests at any moment after as many were ready for the first time."""
        ready: set[str] = set()
        counts = []
        for fact in self.facts(name):
            kind, data = fact["fact"], fact["data"]
            if kind == "ReplicaReadinessNoted" and data["ready"]:
                ready.add(data["job"])
            elif kind in ("ReplicaReadinessNoted", "ReplicaDraining", "AttemptEnded", "JobEnded"):
                ready.discard(data["job"])
            counts.append(len(ready))
        return min(counts[counts.index(after) :])


def ask(replica: Json) -> Json:
    """A completion by a replica."""
    body = json.dumps({"prompt": "hello", "max_tokens": 1}).encode()
    url = f"http://{replica['host']}:{replica['port']}/v1/completions"
    with urlopen(url, data=body, timeout=WITHIN_S) as answer:
        found: Json = json.load(answer)
    return found


def figure(replica: Json, name: str) -> str:
    """The line of a metric of a replica, with its end."""
    url = f"http://{replica['host']}:{replica['port']}/metrics"
    with urlopen(url, timeout=WITHIN_S) as answer:
        lines: list[str] = answer.read().decode().splitlines(keepends=True)
    return next(line for line in lines if line.startswith(f"{name}{{"))
