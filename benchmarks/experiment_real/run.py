"""One scenario on a real daemon: it starts the jobs through `ip netns exec`, and each writes down its step times.

The processors' idle time is that of the machine while all jobs of the scenario measure. A prediction is what
`gantree cost` says of the recorded placement, on up-links of which the other job of the scenario has its even share.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from experiment_real.scenarios import JobOf, Scenario
from experiment_real.site import cluster, command, job
from gantree.api.client.client import Client
from gantree.journal.sqlite import SqliteReader
from gantree.model.facts import GangPlaced
from gantree.model.placements import Placement

READY_S, JOB_S = 60.0, 600.0
SAMPLE_S = 0.2
SCRATCH = "gantree-real-"
"""Prefix of directories for one scenario each."""
UP = """
import ctypes
ctypes.CDLL(None).prctl(1, 15)
from gantree.cli.main import main
main()
"""
"""A daemon that gets SIGTERM (15) when this process dies: PR_SET_PDEATHSIG of prctl(2) is 1."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a scenario: the slowest job's median step and prediction, where ranks ran, and idle processors."""

    scenario: Scenario
    step_s: float
    predicted_s: float
    nodes: tuple[str, ...]
    idle: float

    @property
    def off(self) -> float:
        """The prediction over the step, or the step over the prediction: at least 1."""
        return max(self.predicted_s / self.step_s, self.step_s / self.predicted_s)


def measure(scenario: Scenario, python: str, steps: int) -> Measured:
    """Run a scenario. Raises RuntimeError where a job does not succeed."""
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch:
        folder = Path(scratch)
        texts = [
            job(f"job-{number}", each.members, command(python, folder / f"{number}.json", steps), each.pinned)
            for number, each in enumerate(scenario.jobs)
        ]  # fmt: skip
        with _daemon(folder, scenario) as client, _Idle() as idle:
            for text in texts:
                client.submit(text)
            for number in range(len(texts)):
                _wait(client, f"job-{number}")
        placed = _placed(folder / "state")
        found = [
            json.loads((folder / f"{number}.json").read_text()) for number in range(len(texts))
        ]
        both = max(each["from"] for each in found), min(each["to"] for each in found)
        predicted = [
            _predicted(folder, scenario, text, f"job-{number}", placed[f"job-{number}"])
            for number, text in enumerate(texts)
        ]
        return Measured(
            scenario,
            max(median(each["steps_s"]) for each in found),
            max(predicted),
            tuple(" ".join(_in_rank_order(placed[name])) for name in sorted(placed)),
            idle.share(*both),
        )


def remove_scratch() -> None:
    """Remove directories that killed runs have left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _daemon(folder: Path, scenario: Scenario) -> Iterator[Client]:
    """A daemon on the network; it ends with the block, and with this process."""
    site = folder / "cluster.yaml"
    site.write_text(cluster(scenario.busy))
    words = [
        "up",
        "--cluster",
        str(site),
        "--policy",
        scenario.policy,
        "--state",
        str(folder / "state"),
    ]
    log = (folder / "daemon.log").open("wb")
    daemon = subprocess.Popen([sys.executable, "-c", UP, *words], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + READY_S
        while b" ready: " not in (folder / "daemon.log").read_bytes():
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "daemon.log").read_text())
            time.sleep(0.05)
        yield Client(folder / "state")
    finally:
        daemon.terminate()
        daemon.wait()
        log.close()


def _wait(client: Client, name: str) -> None:
    detail = client.job(name, wait_s=JOB_S, until="ended")
    if detail["phase"] != "succeeded":
        said = b"".join(client.logs(name)).decode(errors="replace")
        raise RuntimeError(f"{name} {detail['phase']}: {detail.get('reason')}\n{said}")


def _placed(state: Path) -> dict[str, Placement]:
    """Where each job ran, by its id."""
    journal = SqliteReader(state)
    facts = [each.fact for each in journal.facts_of(GangPlaced)]
    journal.close()
    return {fact.job: fact.placement for fact in facts if isinstance(fact, GangPlaced)}


def _in_rank_order(placement: Placement) -> list[str]:
    """Numbers of nodes by global rank."""
    ranks = placement.ranks or range(len(placement.members))
    by_rank = sorted(zip(ranks, placement.members, strict=True), key=lambda pair: pair[0])
    return [member.node.rpartition("n")[2] for _, member in by_rank]


def _predicted(
    folder: Path, scenario: Scenario, text: str, name: str, placement: Placement
) -> float:
    """Seconds of a step, as `gantree cost` prices them where the job ran."""
    load = (
        1 - 1 / sum(_crosses(each) for each in scenario.jobs) if _shares_uplinks(scenario) else 0.0
    )
    paths = {
        part: folder / f"{name}-{part}" for part in ("cluster.yaml", "job.yaml", "placement.json")
    }
    paths["cluster.yaml"].write_text(cluster(scenario.busy, load))
    paths["job.yaml"].write_text(text)
    members = [
        {"role": each.role, "rank": each.rank, "node": each.node, "gpus": list(each.gpus), "nics": list(each.nics)}
        for each in placement.members
    ]  # fmt: skip
    domain = {"tier": placement.domain.tier, "name": placement.domain.name}
    one = {"job": name, "placed": True, "members": members, "domain": domain}
    paths["placement.json"].write_text(json.dumps({"placements": [one]}))
    words = [
        str(paths["cluster.yaml"]),
        str(paths["job.yaml"]),
        "--placement",
        str(paths["placement.json"]),
    ]
    told = subprocess.run(
        [sys.executable, "-m", "gantree.cli", "cost", *words, "--json"], check=True, capture_output=True, text=True
    )  # fmt: skip
    document: dict[str, Any] = json.loads(told.stdout)
    return float(document["step"]["step_s"])


def _crosses(each: JobOf) -> bool:
    """Whether a pinned job uses the up-links."""
    return len({number // 4 for number in each.pinned}) > 1


def _shares_uplinks(scenario: Scenario) -> bool:
    return sum(map(_crosses, scenario.jobs)) > 1


class _Idle:
    """Samples the processors' idle time while a block runs."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int, int]] = []
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
            ticks = [int(field) for field in fields]
            self._samples.append((time.time(), ticks[3] + ticks[4], sum(ticks)))

    def share(self, since: float, until: float) -> float:
        """The share of all processors that was idle between two moments."""
        within = [each for each in self._samples if since <= each[0] <= until]
        if len(within) < 2:
            return 0.0
        (_, idle_before, all_before), (_, idle, everything) = within[0], within[-1]
        return (idle - idle_before) / max(1, everything - all_before)

    def __enter__(self) -> "_Idle":
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._sampler.join()


def tables(found: Sequence[Measured], least_idle: float) -> Iterator[str]:
    """The rows of a table in Markdown, a group after the other."""
    yield "| group | placement | nodes in rank order | step | against the first | predicted | off by | CPUs idle |"
    yield "|---|---|---|---|---|---|---|---|"
    first: dict[str, float] = {}
    for each in found:
        base_s = first.setdefault(each.scenario.group, each.step_s)
        void = " (void)" if each.idle < least_idle else ""
        yield (
            f"| {each.scenario.group} | {each.scenario.name} | {'; '.join(each.nodes)} | {each.step_s:.2f} s"
            f" | {each.step_s / base_s:.1f}x | {each.predicted_s:.2f} s | {each.off:.1f}x | {each.idle:.0%}{void} |"
        )
