"""Is every GPU-second of a week on record once, with its owner and purpose? A recount of the journal is the judge.

    PYTHONPATH=tests python benchmarks/accounted_week.py [--seconds 120] [--kills 7] [--seed 1] [--kubernetes]

A daemon on four described nodes with real processes, or on the Kubernetes test server with its kubelet. Training that
saves, serving that preempts it, notebooks, arrays, elastic gangs, shares, MIG on a simulated NVML, jobs that fail, are
cancelled, suspended and held, and a node that is cordoned. Exporters tell what GPUs do: one that is right, the same
once more, one of garbage, and all are silent at times. The daemon is killed (kill -9) and starts again with its wall
clock set ahead, so that the journal is that of a week; once it is set back. At the end all that `gantree usage` and the
statements of the months say, by queue, user, model, project, device and job, is held against a recount of the facts of
the journal that has no code of the book (`support.recount`): while gangs run, and after all have ended. Exits 1 where a
figure differs by more than 1e-6 GPU-seconds, or a GPU has not exactly one purpose.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gantree.api.client.client import Client
from gantree.cli.output.printing import columns
from gantree.control.nodes.sharing.partitioning import SIMULATED_FOLDER
from gantree.formats import read_policy
from gantree.model.errors import GantreeError
from support.daemon import Daemon, Program, unended
from support.gpu_exporters import GpuExporters
from support.pods import PodStage
from support.recount import (
    DIMENSIONS,
    OF_HELD,
    Figure,
    Recount,
    amiss,
    asked,
    by_name,
    job_figures,
    months_of,
    recount,
    site_sums,
    statement_figures,
    usage_figures,
)
from support.serving import serving

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
NODES, GPUS = ("n0", "n1", "n2", "n3"), 4
CORDONED = NODES[3]
"""The node that somebody cordons and uncordons; at the end it is not, so that nothing is down any more."""
ACTS_EVERY_S = 0.4
SET_BACK_S = 0.5 * DAY_S
CLUSTER = """
name: two-leaves
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB, cpus: 64, memory_GiB: 512}}
nodes:
  - {names: "n[0-1]", machine: m4, at: {leaf: l0}}
  - {names: "n[2-3]", machine: m4, at: {leaf: l1}}
"""
POLICY = """
preset: gantree
queues:
  - {name: training, cohort: all, guarantee: {gpus: 8}}
  - {name: serving, cohort: all, guarantee: {gpus: 4}}
  - {name: notebooks, cohort: all}
evictions: {min_run: 0s, grace: 1s, per_job_per_day: 1000}
"""
TURNS = "time_sharing: {classes: [research], quantum: 1s}\n"
"""Jobs that share a GPU take turns, which Kubernetes has nothing for."""
SAVES = """
step=$(cat step-$GANTREE_JOB 2>/dev/null || echo 0)
trap 'echo $step > step-$GANTREE_JOB; echo $step > $GANTREE_CHECKPOINT_ANSWER' USR1
while [ $step -lt 40 ]; do sleep 0.1; step=$((step + 1)); done
"""
SAVING = "checkpoint: {signal: SIGUSR1, grace: 2s}\n"
PART = "{gpu_share: 0.5, gpu_memory_GiB: 20, isolation: time-slicing}"
PREPARED = ("sampling", "reporting")


class Kind(NamedTuple):
    """Jobs of a kind: each is what a member needs, more is more of its file."""

    queue: str
    members: int
    each: str
    script: str
    more: str = ""


KINDS = {
    "llama": Kind("training", 2, "{gpus: 4}", SAVES, SAVING),
    "small": Kind("training", 1, "{gpus: 2}", SAVES, SAVING),
    "grown": Kind("training", 2, "{gpus: 2}", "sleep 5", "elastic: {min: 1, max: 3}\n"),
    "chat": Kind("serving", 1, "{gpus: 4}", "sleep 3", "priority: serving\n"),
    "notebook": Kind("notebooks", 1, "{gpus: 1}", "sleep 12", "priority: research\n"),
    "share": Kind("notebooks", 1, PART, "sleep 8", "priority: research\n"),
    "slice": Kind("notebooks", 2, "{mig: 3g.40gb}", "sleep 6"),
    "sweep": Kind("training", 1, "{gpus: 1}", "sleep 1", "array: 0-3\n"),
    "broken": Kind(
        "training", 1, "{gpus: 1}", "sleep 1; exit 3", "restarts: {limit: 1, backoff: 1s}\n"
    ),
}
USERS = {"training": ("ann", "bob", "cho"), "serving": ("sam",), "notebooks": ("nia", "noa")}


class Site(Protocol):
    """Where jobs run."""

    client: Client
    state: Path
    policy: str

    def start(self, ahead_s: float) -> None:
        """Start a daemon whose wall clock is ahead by so many seconds, and wait until it is ready."""

    def kill(self) -> None:
        """kill -9."""

    def stop(self) -> None:
        """End the daemon in order."""

    def submit(self, kind: str, name: str, chance: random.Random) -> None:
        """Hand in a job of a kind."""

    def end_all(self) -> None:
        """End all jobs, and wait for it."""


class LocalSite:
    """Real processes on this machine."""

    def __init__(self, home: Path, exporters: GpuExporters) -> None:
        self.state, self._home, self.policy = home / "state", home, POLICY + TURNS
        (self.state / SIMULATED_FOLDER).mkdir(parents=True, mode=0o700)
        self._daemon = Daemon(self.state, CLUSTER, self.policy, gpu_metrics=exporters.urls)
        self.client = self._daemon.client

    def start(self, ahead_s: float) -> None:
        self._daemon.prefix = ("clock", f"{ahead_s}", *PREPARED)
        self._daemon.start()

    def kill(self) -> None:
        self._daemon.kill()

    def stop(self) -> None:
        self._daemon.stop()

    def submit(self, kind: str, name: str, chance: random.Random) -> None:
        queue, members, each, script, more = KINDS[kind]
        run = json.dumps(["sh", "-c", script])
        gang = f"gang: [{{role: w, members: {members}, each: {each}, run: {run}}}]"
        project = chance.choice(["", "project: llm\n", "project: vision\n"])
        about = f"name: {name}\nqueue: {queue}\n{project}{more}{gang}\n"
        self.client.submit(about, base_dir=str(self._home), user=chance.choice(USERS[queue]))

    def end_all(self) -> None:
        left = unended(self.client)
        for job in left:
            with suppress(GantreeError):
                self.client.cancel(job)
        for job in left:
            self._daemon.wait(job)


class KubernetesSite:
    """Pods on the test server, whose kubelet runs nothing."""

    def __init__(self, home: Path, exporters: GpuExporters) -> None:
        self.state, self.policy, self._file = home / "state", POLICY, home / "policy.yaml"
        self._file.write_text(POLICY)
        self._exporters = exporters.urls.split()
        self._stage = PodStage(home / "unused")
        self._program: Program | None = None
        self.client = Client(self.state)

    def __enter__(self) -> "KubernetesSite":
        self._stage.__enter__()
        self._stage.nodes("n[0-3]", gpus=GPUS)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._program is not None:
            self._program.__exit__(None, None, None)
        self._stage.__exit__(None, None, None)

    def start(self, ahead_s: float) -> None:
        server = (
            "--api-server",
            self._stage.running.url,
            "--name",
            "a",
            "--state",
            str(self.state),
        )
        told = [word for url in self._exporters for word in ("--gpu-metrics", url)]
        more = ("--policy", str(self._file), "--log-level", "critical", *told)
        self._program = Program("clock", f"{ahead_s}", *PREPARED, "kubernetes", *server, *more)
        self._program.says(" ready: ")

    def kill(self) -> None:
        assert self._program is not None
        self._program.process.kill()
        self._program.process.wait()
        self._program.said.close()
        self._program = None

    def stop(self) -> None:
        assert self._program is not None
        self._program.stop()
        self._program.said.close()
        self._program = None

    def submit(self, kind: str, name: str, chance: random.Random) -> None:
        queue, members, each, _, more = KINDS[kind]
        gpus = int(each[len("{gpus: ") : -1]) if each.startswith("{gpus") else GPUS
        labels = {"gantree.io/queue": queue, "gantree.io/gang": name, "gantree.io/project": kind}
        if "priority" in more:
            labels["gantree.io/priority"] = more.split()[1]
        runs_s = {"broken": "1", "notebook": "12"}.get(kind, "3")
        told = {
            "gantree.io/gang-size": str(members),
            "kubelet.gantree/runs-s": runs_s,
            "kubelet.gantree/exit-code": "3" if kind == "broken" else "0",
        }
        for member in range(members):
            self._stage.pod(f"{name}-{member}", gpus=gpus, labels=labels, annotations=told)

    def end_all(self) -> None:
        for name in self._stage.pods():
            self._stage.api.delete(f"/api/v1/namespaces/default/pods/{name}")
        while unended(self.client):
            time.sleep(0.1)


def act(site: Site, exporters: GpuExporters, chance: random.Random, number: int) -> None:
    """Something that happens in such a week. What is refused does not happen."""
    client = site.client
    kind = chance.choice([*KINDS, "llama", "chat", "notebook", "act", "act", "act"])
    if kind != "act":
        site.submit(kind, f"{kind}-{number}", chance)
        return
    jobs = [row["job"] for row in client.jobs() if row["phase"] in ("pending", "running")]
    commands: Sequence[Callable[[str], object]] = (
        client.cancel, client.suspend, client.resume, client.resume, client.hold, client.release,
        client.release, lambda job: client.cordon(CORDONED), lambda job: client.uncordon(CORDONED),
        lambda job: _change(exporters, chance),
    )  # fmt: skip
    with suppress(GantreeError):
        if jobs:
            chance.choice(commands)(chance.choice(jobs))


def _change(exporters: GpuExporters, chance: random.Random) -> None:
    exporters.is_silent = chance.random() < 0.3
    exporters.idle = frozenset(node for node in NODES if chance.random() < 0.4)


def live(site: Site, exporters: GpuExporters, options: argparse.Namespace) -> None:
    """The week: so many lives of a daemon, each of them a part of it."""
    chance, number = random.Random(options.seed), 0
    for life in range(options.kills + 1):
        ahead_s = WEEK_S * (life / options.kills - 1) if options.kills else 0.0
        site.start(ahead_s - SET_BACK_S if life == options.kills // 2 else ahead_s)
        ends_at = time.monotonic() + options.seconds / (options.kills + 1)
        while time.monotonic() < ends_at:
            number += 1
            act(site, exporters, chance, number)
            time.sleep(ACTS_EVERY_S)
        if life < options.kills:
            site.kill()
        print(f"life {life + 1} of {options.kills + 1}", file=sys.stderr)


def usages(site: Site) -> list[tuple[dict[str, Any], int]]:
    """What the daemon says by each dimension and by job, and after which fact."""
    since = time.time() - WEEK_S - DAY_S
    return [
        asked(site.client, partial(site.client.usage, by, since=since))
        for by in (*DIMENSIONS, "job")
    ]


def statements(site: Site) -> list[list[dict[str, Any]]]:
    """The statements of the months of the week by each dimension, as the command prints them."""
    now = time.time()
    words = [
        sys.executable,
        "-m",
        "gantree",
        "usage",
        "--bill",
        "--json",
        "--state",
        str(site.state),
    ]
    return [
        [
            json.loads(subprocess.check_output([*words, "--by", by, "--month", month]))
            for month in months_of(now - WEEK_S - DAY_S, now)
        ]
        for by in DIMENSIONS
    ]


def figures_of(answer: dict[str, Any], found: Recount) -> list[Figure]:
    """All that an answer says."""
    if answer["by"] == "job":
        return job_figures(answer, found)
    return usage_figures(answer, found.amounts(answer["until"]))


@contextmanager
def opened(options: argparse.Namespace, exporters: GpuExporters) -> Iterator[Site]:
    """A site in a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="week-") as folder:
        if options.kubernetes:
            with KubernetesSite(Path(folder), exporters) as site:
                yield site
        else:
            yield LocalSite(Path(folder), exporters)


def judged(options: argparse.Namespace) -> tuple[list[Figure], Recount, float]:
    """Live the week, ask, and recount: the figures, the recount, and the moment of the last answers."""
    with (
        serving(GpuExporters(dict.fromkeys(NODES, GPUS))) as exporters,
        opened(options, exporters) as site,
    ):
        policy = read_policy(site.policy, "policy.yaml")
        live(site, exporters, options)
        exporters.is_silent = True
        answers = usages(site)
        site.end_all()
        site.client.uncordon(CORDONED)
        answers += usages(site)
        billed, last = asked(site.client, partial(statements, site))
        now = site.client.usage("queue")["until"]
        site.stop()
        recount_to = cache(partial(recount, site.state, policy))
        figures = [each for answer, seq in answers for each in figures_of(answer, recount_to(seq))]
        found = recount_to(last)
    for of_months in billed:
        figures += statement_figures(of_months, found.amounts(now))
    return figures, found, now


def table(found: Recount, now: float) -> Iterator[str]:
    """What the week came to, in GPU-hours by queue and purpose, and what was free."""
    names = by_name(found.amounts(now), "queue")
    head = ("QUEUE", "held", *OF_HELD)
    rows = [
        (name, *(f"{sums[each] / 3600:.3f}" for each in ("allocated", *OF_HELD)))
        for name, sums in sorted(names.items())
    ]
    yield columns(head, rows)
    site = site_sums(found.amounts(now))
    yield ", ".join(f"{name} {amount / 3600:.3f}" for name, amount in site.items())
    yield f"{found.kinds.total()} facts: " + ", ".join(
        f"{count} {kind}" for kind, count in found.kinds.most_common()
    )


def main() -> None:
    """Live, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--kills", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kubernetes", action="store_true", help="pods on the test server")
    options = parser.parse_args()
    figures, found, now = judged(options)
    print("\n".join(table(found, now)))
    wrong = amiss(figures)
    for each in wrong[:50]:
        print(f"DIFFERS {each.what}: {each.told!r}, recounted {each.recounted!r}")
    for sentence in found.purposes.wrong[:50]:
        print(f"WRONG {sentence}")
    largest = max((abs(each.told - each.recounted) for each in figures), default=0.0)
    print(f"{len(figures)} figures, {len(wrong)} differ; the largest difference is {largest:.1e} s")
    raise SystemExit(bool(wrong or found.purposes.wrong))


if __name__ == "__main__":
    main()
