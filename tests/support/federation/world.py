"""A front as a process, the links to its clusters, and jobs that show whether two attempts of them overlap."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantree.api.client.client import Client
from gantree.api.client.request import Request
from gantree.model.errors import GantreeError
from support.daemon import Daemon, Program
from support.federation.cut_link import CutLink

SOLE = """
import fcntl, os, sys, time
held = open(sys.argv[1] + ".lock", "a")
log = open(sys.argv[1], "a", buffering=1)
try:
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    log.write("alone\\n")
except BlockingIOError:
    log.write("TWICE\\n")
while not os.path.exists(sys.argv[1] + ".end"):
    time.sleep(0.05)
"""
"""What runs holds a lock, until there is a file of the end: two attempts that overlap are seen."""


@dataclass
class World:
    """Two clusters, the links to them, and the front."""

    folder: Path
    daemons: dict[str, Daemon]
    links: dict[str, CutLink]
    client: Client

    def start_front(self) -> None:
        self.front = Program(
            "federation", "up", "--config", str(self.folder / "federation.yaml"), "--state",
            str(self.folder / "front"), "--log-level", "error",
        )  # fmt: skip
        self.front.says(" ready: ")

    def kill_front(self) -> None:
        self.front.process.kill()
        self.front.process.wait()
        self.front.said.close()

    def submit(self, name: str, *, extra: str = "", image: str = "") -> Path:
        """A job that holds a lock while it runs; the file that it writes."""
        of_role = f"image: {image}, " if image else ""
        said, program = self.folder / f"{name}.out", self.folder / "sole.py"
        program.write_text(SOLE)
        said.touch()
        self.client.submit(
            f"name: {name}\ngang: [{{role: w, members: 1, each: {{gpus: 1}},"
            f" {of_role}run: [{sys.executable}, -I, -S, {program}, {said}]}}]\n{extra}",
            base_dir=str(self.folder),
        )
        return said

    def status(self) -> dict[str, dict[str, Any]]:
        asked: Request[dict[str, Any]] = Request("GET", "/v1/federation")
        return {row["cluster"]: row for row in self.client.send(asked)["clusters"]}

    def lost(self, cluster: str) -> None:
        """As `gantree federation lost`."""
        path = "/v1/federation/clusters/{cluster}/lost"
        asked: Request[dict[str, Any]] = Request("POST", path, {"cluster": cluster})
        self.client.send(asked)

    def job(self, name: str) -> dict[str, Any]:
        return self.client.job(name)

    def has_ended(self, name: str) -> bool:
        return bool(self.job(name)["phase"] == "cancelled")

    def is_at(self, name: str, cluster: str) -> bool:
        row = self.job(name)
        return (row["cluster"], row["stage"], row["phase"]) == (cluster, "placed", "running")

    def replicas(self) -> dict[str, list[str]]:
        """The ready replicas with the widest domains of their places."""
        table = self.client.routes()
        rows = [row for service in table["services"] for row in service["replicas"]]
        return {row["replica"]: row["place"][:2] for row in rows if row["ready"]}


def until(holds: Callable[[], object], within_s: float = 200.0) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            if holds():
                return
        except GantreeError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline
        time.sleep(0.05)
