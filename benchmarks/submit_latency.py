"""From `gantree submit` to the first process of a 16-rank gang, on a daemon that runs.

A real daemon on two virtual nodes of 8 GPUs, in a directory of its own. A run starts the program `gantree submit`
as a user would, and each of the 16 processes notes down the time as the first thing it does. The figure is the
earliest of these less the moment before `gantree submit` was started: the command's own start-up, the submission
made durable, the decision, and the start of the processes, `sh` and `date` included. The last process is told too.

    python benchmarks/submit_latency.py [--runs 15]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

MEMBERS, PROCESSES = 2, 8
RANKS = MEMBERS * PROCESSES
PATIENCE_S = 30.0

CLUSTER = """
name: bench
tiers: [leaf, node]
nodes: [{names: "n[0-1]", machine: dgx-h100, at: {leaf: l0}}]
"""

JOB = """
name: first-process
gang:
  - role: worker
    members: 2
    processes: 8
    each: {gpus: 8}
    run: [sh, -c, 'date +%s%N > "$0/$RANK.part" && mv "$0/$RANK.part" "$0/$RANK"', "NOTES"]
restarts: 0
"""


def gantree(*arguments: str | Path) -> list[str]:
    """The command line of the program that stands beside this Python, or of its module."""
    script = Path(sys.executable).with_name("gantree")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "gantree.cli"]
    return [*program, *map(str, arguments)]


def run(runs: int) -> dict[str, Any]:
    """Start a daemon, submit `runs` gangs one after the other, and stop it. Milliseconds."""
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        home = Path(directory)
        (home / "cluster.yaml").write_text(CLUSTER)
        state = home / "state"
        command = gantree("up", "--cluster", home / "cluster.yaml", "--state", state)
        with (home / "daemon.log").open("wb") as log:
            daemon = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _until(lambda: _answers(state), "the daemon does not answer", home / "daemon.log")
            times_ms = [_measure(home, state, number) for number in range(runs + 1)][1:]
        finally:
            daemon.terminate()
            daemon.wait(PATIENCE_S)
    first_ms, last_ms = ([time_ms[index] for time_ms in times_ms] for index in (0, 1))
    return {
        "runs": runs,
        "ranks": RANKS,
        "first_process_median_ms": round(median(first_ms), 1),
        "first_process_worst_ms": round(max(first_ms), 1),
        "last_process_median_ms": round(median(last_ms), 1),
    }


def _answers(state: Path) -> bool:
    asked = subprocess.run(gantree("jobs", "--state", state), capture_output=True, check=False)
    return asked.returncode == 0


def _measure(home: Path, state: Path, number: int) -> tuple[float, float]:
    """Milliseconds to the first and to the last process of one gang, once all of it has ended."""
    notes = home / f"notes-{number}"
    notes.mkdir()
    job = home / f"job-{number}.yaml"
    job.write_text(JOB.replace("NOTES", str(notes)))
    start_ns = time.time_ns()
    submitted = subprocess.run(
        gantree("submit", job, "--state", state), capture_output=True, text=True, check=True
    )
    ranks = [notes / str(rank) for rank in range(RANKS)]
    _until(lambda: all(rank.exists() for rank in ranks), "not all ranks ran", home / "daemon.log")
    _until(lambda: _ended(state, submitted.stdout.strip()), "it does not end", home / "daemon.log")
    noted_ns = sorted(int(rank.read_text()) for rank in ranks)
    return (noted_ns[0] - start_ns) / 1e6, (noted_ns[-1] - start_ns) / 1e6


def _ended(state: Path, job: str) -> bool:
    """Whether the gang holds nothing any more, so that the next one meets an empty cluster."""
    command = gantree("jobs", "--json", "--state", state)
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return job not in [row["job"] for row in json.loads(listed.stdout)["jobs"]]


def _until(holds: Any, complaint: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"{complaint}; the daemon said:\n{log.read_text()}")
        time.sleep(0.02)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=15, help="how many gangs; one more warms up")
    print(json.dumps(run(parser.parse_args().runs), indent=2))


if __name__ == "__main__":
    main()
