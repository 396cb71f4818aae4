"""`make demo-serve`: a service beside training on eight GPUs, through a day of load in less than a minute.

    night    three replicas answer, two training gangs have the other five GPUs
    day      more requests come: training saves and yields, the service grows to six replicas
    a loss   one replica is killed with SIGKILL; it starts again
    evening  the load falls: three replicas drain and end, training goes on where it was

Real processes, `gantree up` and `gantree route` as a user would start them. It fails if a request fails, or if anything
else is not as said. The servers stand in for model servers: they answer after a fixed time (`examples/services`).
"""

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gantree import Client
from story import Json, ended, patiently

HERE = Path(__file__).resolve().parent
GANTREE = Path(sys.executable).with_name("gantree")
SERVING = HERE / "serving.yaml"
NIGHT, DAY = 4, 22
"""Requests at a time."""
LEAST, MOST = 3, 6
"""Replicas at night and by day; as in serving.yaml."""
TRAINING = ("training", "tuning")
CHECKPOINT_EVERY = 20
"""Steps between the checkpoints that training takes by itself; as in serving.yaml."""
PATIENCE_S = 60.0


class Load:
    """Clients that send one request after the other, and what came of them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._wanted = 0
        self._stopped = False
        self._lock = threading.Lock()
        self._clients: list[threading.Thread] = []
        self.statuses: Counter[str] = Counter()
        self.answered_by: Counter[str] = Counter()
        self.seconds: list[float] = []

    def set(self, clients: int) -> None:
        """From now on so many requests at a time."""
        self._wanted = clients
        for number in range(len(self._clients), clients):
            client = threading.Thread(target=self._send, args=(number,), daemon=True)
            self._clients.append(client)
            client.start()

    def is_routed(self) -> bool:
        """Whether the router knows the service."""
        try:
            with urllib.request.urlopen(f"{self._url}/v1/models", timeout=PATIENCE_S) as answer:
                return any(each["id"] == "tiny" for each in json.load(answer)["data"])
        except OSError:
            return False

    def stop(self) -> None:
        """Let every client finish its request."""
        self._stopped = True
        for client in self._clients:
            client.join(PATIENCE_S)

    def _send(self, number: int) -> None:
        while not self._stopped:
            if number >= self._wanted:
                time.sleep(0.05)
                continue
            began = time.monotonic()
            status, by = self._one()
            with self._lock:
                self.statuses[status] += 1
                self.answered_by[by] += 1
                self.seconds.append(time.monotonic() - began)

    def _one(self) -> tuple[str, str]:
        """The status of one request, and the replica that answered."""
        body = json.dumps({"model": "tiny", "prompt": "one two three", "max_tokens": 8}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/v1/completions", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return str(answer.status), json.load(answer)["system_fingerprint"]
        except urllib.error.HTTPError as error:
            return str(error.code), ""
        except (OSError, ValueError) as error:
            return type(error).__name__, ""


@contextmanager
def running(state_dir: Path, name: str, *words: str) -> Iterator[None]:
    """A command of gantree beside this one; what it prints goes to a file beside its state."""
    path = f"{GANTREE.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
    environment = {"PATH": path, "HOME": str(Path.home()), "LANG": "C.UTF-8"}
    command = [str(GANTREE), name, *words, "--state", str(state_dir)]
    with (state_dir / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def end_all(client: Client) -> None:
    """Cancel everything, and wait until it has ended: jobs outlive their daemon."""
    for service in client.services():
        client.cancel_service(service["service"])
    for job in client.jobs():
        if not ended(job) and job["name"] in TRAINING:
            client.cancel(job["job"])
    deadline = time.monotonic() + PATIENCE_S
    while not all(map(ended, client.jobs())) and time.monotonic() < deadline:
        time.sleep(0.05)


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Story:
    """The day, told step by step; raises TimeoutError where it gets stuck."""

    def __init__(self, client: Client, load: Load) -> None:
        self._client, self._load = client, load
        self._began = time.monotonic()
        self.killed = ""

    def tell(self) -> None:
        """Play it to its end."""
        text = SERVING.read_text().replace("@STATE@", str(self._client.state_dir))
        self._client.submit(text, SERVING.name, base_dir=str(HERE))
        self._until("three replicas are ready", lambda: self._ready() == LEAST)
        self._until(
            "training runs on three GPUs and on two",
            self._trains,
        )
        self._until("the router knows the service", self._load.is_routed)
        self._load.set(NIGHT)
        self._until("requests are answered", lambda: self._load.statuses["200"] > 2 * NIGHT)
        self._load.set(DAY)
        self._until(
            f"{DAY} requests at a time: training saved and yielded, six replicas are ready",
            lambda: self._ready() == MOST,
        )
        self._kill_one()
        self._until("it has started again", lambda: self._ready() == MOST)
        self._load.set(NIGHT)
        self._until("the load falls: three replicas are left", lambda: self._alive() == LEAST)
        self._until("both gangs run again", self._trains)

    def say(self, line: str) -> None:
        """Print a line with the seconds since the beginning."""
        print(f"{time.monotonic() - self._began:5.1f} s  {line}", flush=True)

    def _until(self, line: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                why = patiently(lambda: self._client.why("chat"))["sentence"]
                raise TimeoutError(f"not within {PATIENCE_S:g} s: {line}. {why}")
            time.sleep(0.05)
        self.say(line)

    def _replicas(self) -> list[Json]:
        replicas: list[Json] = self._client.service("chat")["replicas"]
        return replicas

    def _ready(self) -> int:
        return sum(each["ready"] and not each["draining"] for each in self._replicas())

    def _alive(self) -> int:
        return len(self._replicas())

    def _trains(self) -> bool:
        return all(self._client.job(name)["phase"] == "running" for name in TRAINING)

    def _kill_one(self) -> None:
        """SIGKILL for the server of a replica that is in the middle of requests."""
        self.killed = next(each["replica"] for each in self._replicas() if each["ready"])
        for process in processes_of(self.killed):
            os.kill(process, signal.SIGKILL)
        self.say(f"{self.killed} is killed")
        self._until("its loss is seen", lambda: self._ready() < MOST)


def processes_of(job: str) -> list[int]:
    """Processes whose environment says that they are of a job, and that serve."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            words = (each / "cmdline").read_bytes().split(b"\0")
            environment = (each / "environ").read_bytes().split(b"\0")
        except (OSError, NotADirectoryError):
            continue
        if b"server.py" in words and f"GANTREE_JOB={job}".encode() in environment:
            found.append(int(each.name))
    return found


def problems(runs: Path, load: Load) -> list[str]:
    """Everything that was not as it should have been."""
    failed = {status: count for status, count in load.statuses.items() if status != "200"}
    found = [f"requests failed: {failed}"] if failed else []
    if len(load.answered_by) < MOST:
        found.append(f"only these answered: {dict(load.answered_by)}")
    attempts = [steps_of(runs / name) for name in TRAINING]
    if max(map(len, attempts)) != 2:
        found.append(f"the gangs ran {[len(each) for each in attempts]} times; none yielded once")
    return found + [problem for each in attempts for problem in lost_steps(each)]


def lost_steps(attempts: list[list[int]]) -> Iterator[str]:
    """Where an attempt of a gang did not go on from the checkpoint that it was asked for."""
    for before, after in itertools.pairwise(filter(None, attempts)):
        if not before[-1] - CHECKPOINT_EVERY < after[0] <= before[-1] + 1:
            yield f"training went on with step {after[0]} after step {before[-1]}"


def steps_of(runs: Path) -> list[list[int]]:
    """The steps that rank 0 of each attempt of training took."""
    logs = sorted(runs.glob("*/log/rank-0.log"), key=lambda path: int(path.parts[-3]))
    return [
        [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("step ")]
        for log in logs
    ]


def report(client: Client, runs: Path, load: Load, story: Story) -> int:
    """Print what came of it; the exit status."""
    print()
    for line in scale_events(client):
        print(line)
    wrong = problems(runs, load)
    if wrong:
        print("\nThe demo went wrong:", *wrong, sep="\n  ")
        return 1
    seconds = sorted(load.seconds)
    p99_s = seconds[int(0.99 * len(seconds))]
    print(
        f"\n{len(seconds)} requests, none failed; half within {seconds[len(seconds) // 2]:.2f} s, 99 % within"
        f" {p99_s:.2f} s. {story.killed} was killed on the way."
    )
    return 0


def scale_events(client: Client) -> list[str]:
    """A line for each change of the wanted number, with the reason."""
    return [
        f"{fact['data']['before']} -> {fact['data']['replicas']} replicas: {fact['data']['reason']}"
        for fact in client.facts()
        if fact["fact"] == "ServiceScaled"
    ]


def main() -> int:
    if shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        print("This demo routes requests with HAProxy: install the package haproxy first.")
        return 2
    state_dir = Path(tempfile.mkdtemp(prefix="gantree-demo-"))
    port = free_port()
    load = Load(f"http://127.0.0.1:{port}")
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, state_dir, ignore_errors=True)
        try:
            opened.enter_context(running(state_dir, "up", "--virtual", "dgx-h100:1"))
            client = Client(state_dir)
            patiently(client.health)
            opened.callback(end_all, client)
            opened.enter_context(running(state_dir, "route", "--listen", f"127.0.0.1:{port}"))
            story = Story(client, load)
            story.tell()
            load.stop()
            return report(client, state_dir / "runs", load, story)
        except TimeoutError as error:
            logs = [(state_dir / f"{name}.log").read_text() for name in ("up", "route")]
            print(f"The demo got stuck: {error}", *logs, sep="\n")
            return 1
        finally:
            load.stop()


if __name__ == "__main__":
    sys.exit(main())
