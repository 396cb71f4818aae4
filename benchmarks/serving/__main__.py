"""Services of model servers that others wrote, routed, scaled, and with a replica killed, under load of aiperf.

    PYTHONPATH=tests:benchmarks python -m serving ENVIRONMENTS [--only guidellm] [--seconds 40] [--json FILE]

ENVIRONMENTS is what `serving.environments` made, with the tiny model (README.md). A gang of examples/train trains
beside them on virtual GPUs. Each service begins with two replicas; aiperf sends streaming chat requests through
`gantree route` at a concurrency that needs four; the first replica gets SIGKILL in the middle. What aiperf measured
stands beside what the router reported of the same requests. A request that a killed replica had begun to answer is cut;
one that failed before its answer began is a fault, and the program exits with 1.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving.scene import CLUSTER, POLICY, Scene, scene, until
from serving.servers import SERVERS, Server, service_file

Json = dict[str, Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MOST_REPLICAS = 5
KILLED_AFTER_S = 15
CUT = "Response payload is not completed"
"""What aiperf says of an answer that ended before its end."""
FIGURES = {
    "requests": ("request_count", "avg"),
    "errors": ("error_request_count", "avg"),
    "rate": ("request_throughput", "avg"),
    "latency_p50_ms": ("request_latency", "p50"),
    "latency_p99_ms": ("request_latency", "p99"),
    "ttft_p99_ms": ("time_to_first_token", "p99"),
    "itl_p99_ms": ("inter_token_latency", "p99"),
    "tokens_per_s": ("output_token_throughput", "avg"),
}
"""Of aiperf's report."""


def training_file(name: str, gpus: int) -> str:
    """A gang that trains until it is cancelled."""
    run = [
        sys.executable,
        str(EXAMPLES / "train" / "train.py"),
        "--steps",
        "10000000",
        "--step-s",
        "0.1",
    ]
    return f"""
name: {name}
queue: training
priority: batch
gang: [{{role: worker, members: {gpus}, each: {{gpus: 1}}, run: {json.dumps(run)}}}]
checkpoint: {{grace: 10s, path: checkpoints/{name}}}
"""


def aiperf(home: Path, url: str, server: Server, seconds: float, place: Path) -> Json:
    """Load a service; give the figures of the report, and how requests failed."""
    command = [
        str(home / "aiperf" / "bin" / "aiperf"), "profile", "--model", server.name, "--url", url,
        "--endpoint-type", "chat", "--streaming", "--concurrency", str(3 * server.slots),
        "--benchmark-duration", str(seconds), "--isl", "64", "--osl", "16",
        "--extra-inputs", "ignore_eos:true", "--use-legacy-max-tokens",
        "--tokenizer", str(home / "tiny"), "--ui", "none", "--artifact-dir", str(place),
    ]  # fmt: skip
    with (place.parent / "aiperf.log").open("wb") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)
    told = json.loads((place / "profile_export_aiperf.json").read_text())
    figures = {
        name: round(told[metric][key], 2)
        for name, (metric, key) in FIGURES.items()
        if metric in told
    }
    return {**figures, **failures(place / "profile_export.jsonl")}


def failures(path: Path) -> Json:
    """Requests whose answer was cut, and those that failed before it began, with the first of their errors."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    errors = [str(row["error"]) for row in rows if row.get("error")]
    cut = [each for each in errors if CUT in each]
    lost = [each for each in errors if CUT not in each]
    return {"cut": len(cut), "lost": len(lost), **({"first_lost": lost[0][:300]} if lost else {})}


def kill_one(live: Scene, server: Server) -> None:
    """Send SIGKILL to what listens of the first ready replica."""
    row = live.client.service(server.name)
    victim = next(each for each in row["replicas"] if each["ready"])
    for pid in _listening(victim["port"]):
        os.kill(pid, signal.SIGKILL)


def _listening(port: int) -> list[int]:
    """The processes that listen at a port."""
    told = subprocess.run(
        ["ss", "-tlnpH", f"sport = :{port}"], capture_output=True, text=True, check=True
    )
    return sorted({int(part.split(",")[0]) for part in told.stdout.split("pid=")[1:]})


class Watched:
    """The load of a service as the daemon tells it, looked at each second; a replica is killed under it, once."""

    def __init__(self, live: Scene, server: Server) -> None:
        self.rows: list[Json] = []
        self.killed_at: float | None = None
        self._live, self._server, self._over = live, server, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Watched":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        loaded_s = 0
        while not self._over.wait(1.0):
            row = self._live.client.service(self._server.name)
            self.rows.append(row)
            loaded_s += bool(row["load"] and row["load"]["in_flight"])
            if loaded_s >= KILLED_AFTER_S and self.killed_at is None:
                self.killed_at = time.time()
                kill_one(self._live, self._server)

    def most(self, field: str) -> float | None:
        """The largest value of a figure of the load."""
        values = [row["load"][field] for row in self.rows if row["load"]]
        return max((each for each in values if each is not None), default=None)


def tried(live: Scene, home: Path, server: Server, seconds: float, place: Path) -> Json:
    """One service from its submission to its end."""
    submitted = time.monotonic()
    live.client.submit(service_file(server, home, place, MOST_REPLICAS), base_dir=str(place))
    until(lambda: live.client.service(server.name)["ready"] >= 2, f"{server.name} is ready", 180)
    ready_s = time.monotonic() - submitted
    with Watched(live, server) as watched:
        figures = aiperf(home, live.url, server, seconds, place / "aiperf")
    if watched.killed_at is None:
        raise SystemExit(f"the load on {server.name} was over before a replica was killed")
    router = {
        "rate": watched.most("rate"),
        "latency_p99_ms": _ms(watched.most("latency_p99_s")),
        "ttft_p99_ms": _ms(watched.most("ttft_p99_s")),
        "errors": watched.most("errors"),
        "shed": watched.most("shed"),
    }
    scalings = live.client.service(server.name)["scalings"]
    live.client.cancel_service(server.name)
    until(lambda: not live.client.services(), f"{server.name} has ended")
    return {
        "server": server.name, "ready_after_s": round(ready_s, 1),
        "most_ready": max((row["ready"] for row in watched.rows), default=0),
        "aiperf": figures, "router_at_most": router, "scalings": scalings,
    }  # fmt: skip


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 1)


def shown(row: Json) -> str:
    """A service in lines."""
    told = ", ".join(f"{name} {value}" for name, value in row["aiperf"].items())
    router = ", ".join(f"{name} {value}" for name, value in row["router_at_most"].items())
    scaled = "; ".join(
        f"{each['before']} to {each['replicas']} ({each['reason']})" for each in row["scalings"]
    )
    return (
        f"{row['server']}: two ready after {row['ready_after_s']} s, up to {row['most_ready']} ready\n"
        f"  aiperf: {told}\n  router, its largest window: {router}\n  scaled: {scaled}"
    )


def chosen(names: Sequence[str]) -> list[Server]:
    """The servers of these names, or all."""
    return [each for each in SERVERS if not names or each.name in names]


def main() -> None:
    """All servers, one after the other."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    options.add_argument("home", type=Path, metavar="ENVIRONMENTS")
    options.add_argument("--only", nargs="*", default=[], choices=[each.name for each in SERVERS])
    options.add_argument("--seconds", type=float, default=40.0)
    options.add_argument("--json", type=Path, metavar="FILE")
    given = options.parse_args()
    home, rows = given.home.resolve(), []
    with tempfile.TemporaryDirectory() as scratch, scene(Path(scratch), CLUSTER, POLICY) as live:
        live.client.submit(training_file("train", 4), base_dir=scratch)
        for server in chosen(given.only):
            place = Path(scratch) / server.name
            place.mkdir()
            rows.append(tried(live, home, server, given.seconds, place))
            print(shown(rows[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any(row["aiperf"]["lost"] for row in rows))


if __name__ == "__main__":
    main()
