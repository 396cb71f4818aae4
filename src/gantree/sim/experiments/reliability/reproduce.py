"""reproduce: a loss curve after preemption and a move, against the undisturbed one, with real processes."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gantree.sim.experiments.experiment import Bench, Judgement, Outcome, Plot, Table, Verdict
from gantree.sim.experiments.inputs import INPUTS

PROGRAM = INPUTS / "programs" / "loss_curve.py"
CLUSTER = """
name: two-leaves
tiers: [leaf, node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes:
  - {names: n0, machine: m2, at: {leaf: l0}}
  - {names: n1, machine: m2, at: {leaf: l1}}
"""
PATIENCE_S = 300.0
STEPS, EVERY, DISTURBED_AT = 60, 20, 27
ASKED, STOPPED = "saves when asked", "stopped at once"


@dataclass(frozen=True, slots=True)
class Curve:
    """Losses of a job as rank 0 printed them: for each attempt (step, loss in hexadecimal), and the nodes it ran on."""

    attempts: tuple[tuple[tuple[int, str], ...], ...]
    nodes: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Steps in all attempts, those done twice counted twice."""
        return sum(map(len, self.attempts))

    def losses(self) -> dict[int, set[str]]:
        """All losses that were printed for each step."""
        found: dict[int, set[str]] = {}
        for step, loss in (line for attempt in self.attempts for line in attempt):
            found.setdefault(step, set()).add(loss)
        return found


def differing(curve: Curve, undisturbed: Curve) -> list[int]:
    """Return the steps whose loss is not, bit for bit, that of the undisturbed run; missing ones and others too."""
    one, other = curve.losses(), undisturbed.losses()
    return [step for step in sorted({*one, *other}) if one.get(step) != other.get(step)]


def read_curve(logs: Sequence[str]) -> Curve:
    """Return the curve of what rank 0 printed in each attempt."""
    line = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)
    node = re.compile(r"^begins after step \d+ on node (\S+)$", re.MULTILINE)
    found = (tuple((int(step), loss) for step, loss in line.findall(log)) for log in logs)
    return Curve(tuple(found), tuple(name for log in logs for name in node.findall(log)))


class Daemon:
    """A daemon of its own in a directory, spoken to by commands as a user would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {**os.environ, "GANTREE_STATE": str(folder / "state")}
        self._environment.pop("GANTREE_SERVER", None)

    @contextmanager
    def running(self) -> Iterator["Daemon"]:
        """Start it, and stop it and its jobs at the end."""
        site = self.folder / "cluster.yaml"
        site.write_text(CLUSTER)
        with (self.folder / "daemon.log").open("wb") as log:
            daemon = subprocess.Popen(
                self._command("up", "--cluster", str(site)),
                env=self._environment, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
            try:
                self.until(
                    (self.folder / "state" / "gantree.sock").exists, "the daemon does not start"
                )
                try:
                    yield self
                finally:
                    self._end_jobs()
            finally:
                daemon.terminate()
                daemon.wait(PATIENCE_S)

    def tell(self, *words: str) -> str:
        """Run a command and return what it prints. Raises CalledProcessError where it fails."""
        return subprocess.run(
            self._command(*words), env=self._environment, cwd=self.folder,
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip

    def submit(
        self, name: str, priority: str, run: Sequence[str], *, members: int, more: str = ""
    ) -> None:
        """Submit a job whose members have one GPU each, on one node."""
        path = self.folder / f"{name}.yaml"
        path.write_text(
            f"name: {name}\npriority: {priority}\nrestarts: 0\ntopology: {{required: node}}\n"
            f"gang: [{{role: worker, members: {members}, each: {{gpus: 1}}, run: {json.dumps(list(run))}}}]\n{more}"
        )  # fmt: skip
        self.tell("submit", str(path))

    def logs(self, name: str) -> list[str]:
        """What rank 0 has printed so far, attempt by attempt."""
        runs = (self.folder / "state" / "runs" / name).glob("*/log/rank-0.log")
        return [path.read_text() for path in sorted(runs, key=lambda path: int(path.parts[-3]))]

    def until_printed(self, name: str, line: str) -> None:
        """Wait until rank 0 of a job has printed a line in some attempt."""
        self.until(lambda: any(line in log for log in self.logs(name)), f"{name} prints no {line}")

    def until(self, holds: Callable[[], bool], otherwise: str) -> None:
        """Wait until something holds. Raises TimeoutError with a sentence."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(otherwise)
            time.sleep(0.02)

    def _end_jobs(self) -> None:
        """Cancel what still runs, and wait until it is gone: jobs outlive a daemon."""
        left = [job["job"] for job in json.loads(self.tell("jobs", "--json"))["jobs"]]
        if left:
            self.tell("cancel", *left)
        self.until(lambda: not json.loads(self.tell("jobs", "--json"))["jobs"], "jobs do not end")

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "gantree.cli", *words]


def training(daemon: Daemon, name: str, mode: str, *options: str) -> None:
    """Submit the training job: two ranks on one node, with a checkpoint every EVERY steps."""
    folder = daemon.folder / f"checkpoints-{name}"
    run = [sys.executable, str(PROGRAM), str(folder), "--steps", str(STEPS), "--every", str(EVERY)]
    run += options
    more = f"checkpoint: {{grace: 30s, path: {json.dumps(str(folder))}}}\n" if mode == ASKED else ""
    daemon.submit(name, "batch", run, members=2, more=more)


def disturbed(daemon: Daemon, name: str, mode: str) -> Curve:
    """Run the training, preempted by a production job, moved to other GPUs, and finished there.

    Two production jobs take one node each; the one beside the training's first node is cancelled, so the training goes
    on there.
    """
    sleeper = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
    beside, urgent = f"{name}-beside", f"{name}-urgent"
    both_run = daemon.folder / f"{name}-is-preempted"
    training(daemon, name, mode, "--slow-from", str(DISTURBED_AT), "--slow-until", str(both_run))
    daemon.until_printed(name, f"step {DISTURBED_AT} ")
    for job in (beside, urgent):
        daemon.submit(job, "production", sleeper, members=2)
        daemon.until_printed(job, "here")
    both_run.touch()
    daemon.tell("cancel", beside)
    daemon.until_printed(name, f"step {STEPS} ")
    daemon.tell("cancel", urgent)
    return read_curve(daemon.logs(name))


def undisturbed(daemon: Daemon, name: str) -> Curve:
    """Run the training alone."""
    training(daemon, name, STOPPED)
    daemon.until_printed(name, f"step {STEPS} ")
    return read_curve(daemon.logs(name))


def run(bench: Bench) -> Outcome:
    """Run the training undisturbed and disturbed, under a daemon of its own in a temporary directory."""
    curves = all_curves()
    plain = curves["undisturbed"]
    verdicts = [_verdict(mode, curves[mode], plain) for mode in (ASKED, STOPPED)]
    return Outcome(
        verdicts=tuple(verdicts),
        tables=(
            Table(
                "Training with two ranks, 60 steps, checkpoints every 20",
                ("run", "attempts", "nodes", "steps done", "of these twice", "losses that differ", "last loss"),
                tuple(_row(name, curve, plain) for name, curve in curves.items()),
            ),
        ),
        plots=(_plot(curves),),
    )  # fmt: skip


def all_curves() -> Mapping[str, Curve]:
    """Return the curves by name, from one daemon."""
    with TemporaryDirectory(prefix="gantree-") as folder, Daemon(Path(folder)).running() as daemon:
        return {
            "undisturbed": undisturbed(daemon, "alone"),
            ASKED: disturbed(daemon, "asked", ASKED),
            STOPPED: disturbed(daemon, "stopped", STOPPED),
        }


def _verdict(mode: str, curve: Curve, plain: Curve) -> Verdict:
    wrong = differing(curve, plain)
    moved = len(set(curve.nodes)) > 1
    text = f"{STEPS - len(wrong)} of {STEPS} losses equal, {'moved' if moved else 'not moved'}"
    holds = not wrong and moved and len(curve.attempts) > 1
    return Verdict(
        f"after preemption and a move the loss curve is the undisturbed one, bit for bit ({mode})",
        text,
        Judgement.HOLDS if holds else Judgement.MISSED,
        ""
        if holds
        else f"first difference at step {wrong[0]}"
        if wrong
        else "it was not disturbed",
    )


def _row(name: str, curve: Curve, plain: Curve) -> tuple[str, int, str, int, int, int, str]:
    return (
        name,
        len(curve.attempts),
        ", ".join(curve.nodes),
        curve.steps,
        curve.steps - len(curve.losses()),
        len(differing(curve, plain)),
        curve.attempts[-1][-1][1] if curve.attempts[-1] else "",
    )


def _plot(curves: Mapping[str, Curve]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {"step": step, "loss": float.fromhex(loss), "run": f"{name}, attempt {number}"}
        for name, curve in curves.items()
        for number, attempt in enumerate(curve.attempts, 1)
        for step, loss in attempt
    ]
    chart = charts.lines(rows, "step", "loss", "run", log_y=True)
    return Plot("reproduce", "Loss by step, undisturbed and disturbed", charts.to_svg(chart))
