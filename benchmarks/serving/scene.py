"""A daemon on virtual nodes and a router in front of its services, as processes of their own, for benchmarks."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantree import Client
from loading import PATIENCE_S, Daemon

Json = dict[str, Any]
SERVING = "serving"
"""The queue of services."""
CLUSTER = """
name: one-node
tiers: [leaf, node]
nodes: [{names: n0, machine: dgx-h100, at: {leaf: l0}}]
"""
POLICY = """
preset: gantree
queues:
  - {name: serving, cohort: all, guarantee: {gpus: 8}}
  - {name: training, cohort: all}
evictions: {per_job_per_day: 1000000, min_run: 0s, grace: 10s}
"""
"""Services have the guarantee; training takes what they leave idle, and gives it back at once."""
GANTREE = Path(sys.executable).with_name("gantree")


@dataclass(frozen=True, slots=True)
class Scene:
    """What a benchmark works with: url is that of the router, daemon_pid and router_pid are processes."""

    client: Client
    url: str
    state: Path
    daemon_pid: int
    router_pid: int


@contextmanager
def scene(
    home: Path,
    cluster: str,
    policy: str,
    *,
    run_by: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[Scene]:
    """A daemon and a router. run_by are words before both commands; options are those of `gantree up`.

    SIGTERM ends the program as Ctrl-C does, so that no process outlives it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    (home / "policy.yaml").write_text(policy)
    daemon = Daemon(home, cluster, ("--policy", str(home / "policy.yaml"), *options), run_by=run_by)
    daemon.start()
    try:
        with routed(daemon.state, home / "router.log", run_by) as (router, url):
            yield Scene(Client(daemon.state), url, daemon.state, daemon.pid, router.pid)
    finally:
        end_all(Client(daemon.state))
        daemon.stop()


@contextmanager
def routed(
    state: Path, log: Path, run_by: Sequence[str] = (), options: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`gantree route` for a daemon, and its address."""
    command = [*run_by, str(GANTREE), "route", "--state", str(state), "--listen", "127.0.0.1:0"]
    with log.open("wb") as output:
        router = subprocess.Popen([*command, *options], stdout=output, stderr=output)
    try:
        until(lambda: bool(_addresses(log)), "the router listens")
        yield router, _addresses(log)[0]
    finally:
        router.terminate()
        router.wait(PATIENCE_S)


def _addresses(log: Path) -> list[str]:
    return re.findall(r"listens at (\S+)", log.read_text())


def until(what: Callable[[], bool], words: str, within_s: float = PATIENCE_S) -> float:
    """Wait until something holds; give the seconds that took. Ends the program where it does not come to that."""
    began = time.monotonic()
    while not what():
        if time.monotonic() - began > within_s:
            raise SystemExit(f"after {within_s:g} s it does not hold that {words}")
        time.sleep(0.05)
    return time.monotonic() - began


def end_all(client: Client) -> None:
    """End services and jobs, so that no process outlives the benchmark."""
    for row in client.services():
        client.cancel_service(row["service"])
    for row in client.jobs(by="array"):
        if row["ended_at"] is None and row["queue"] != SERVING:
            client.cancel(row["job"])
    until(lambda: not client.services(), "all services have ended")
    until(lambda: all(row["ended_at"] for row in client.jobs()), "all jobs have ended")
