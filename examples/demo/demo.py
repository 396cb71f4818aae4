"""`make demo`: plays the story of `story.py` on a fresh daemon, prints the timeline, and fails if anything is amiss."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gantree import Client
from gantree.model.errors import Unreachable
from story import (
    CLUSTER,
    STEPS,
    Told,
    patiently,
    rank_0,
    steps_lost,
    tell,
    urgent_waited_s,
    verdict,
)

GANTREE = Path(sys.executable).with_name("gantree")


def start_daemon(state_dir: Path) -> subprocess.Popen[bytes]:
    """`gantree up` on the demo's cluster, as a user would; what it says goes to a file beside its state."""
    command = [str(GANTREE), "up", "--cluster", str(CLUSTER), "--state", str(state_dir)]
    with (state_dir / "daemon.log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=environment(), start_new_session=True
        )


def environment() -> dict[str, str]:
    """This interpreter first on the path, so that `python3` in the job files is the one with NumPy."""
    path = f"{GANTREE.parent}:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(Path.home()), "LANG": "C.UTF-8"}


def timeline(told: Told) -> list[str]:
    """What was decided, a line a fact, with the seconds since the first submission."""
    shown = {
        "JobAccepted": "submitted",
        "GangPlaced": "placed",
        "GangRunning": "running",
        "CheckpointRequested": "asked to save",
        "CheckpointRecorded": "saved step",
        "GangPreempted": "preempted by",
        "RoomClaimed": "room held, leaving:",
        "StopDecided": "told to stop:",
        "JobRequeued": "waits again",
        "JobEnded": "ended:",
    }
    began_at = min(fact["at"] for fact in told.facts if fact["fact"] == "JobAccepted")
    lines = []
    for fact in told.facts:
        if fact["fact"] in shown:
            words = f"{shown[fact['fact']]} {_detail(fact['fact'], fact['data'])}".rstrip()
            lines.append(f"{fact['at'] - began_at:7.2f} s  {fact['data']['job']:<17} {words}")
    return lines


def _detail(kind: str, data: dict[str, object]) -> str:
    if kind == "GangPlaced":
        placement = data["placement"]
        assert isinstance(placement, dict)
        nodes = sorted({member["node"] for member in placement["members"]})
        return f"on {', '.join(nodes)} (attempt {data['attempt']})"
    fields = {
        "CheckpointRecorded": "step",
        "GangPreempted": "by",
        "RoomClaimed": "victims",
        "StopDecided": "cause",
        "JobEnded": "outcome",
    }
    value = data.get(fields.get(kind, ""), "")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def report(told: Told, state_dir: Path) -> int:
    """Print the timeline and the verdict; the exit status."""
    print("\n".join(timeline(told)))
    problems = verdict(told, state_dir / "runs")
    if problems:
        print("\nThe demo went wrong:", *problems, sep="\n  ")
        return 1
    lost = steps_lost(state_dir / "runs", told.jobs["training"]["attempt"])
    resumed = rank_0(state_dir / "runs", 2).read_text().split("\n", 1)[0]
    print(
        f"\nTraining {resumed}; {lost} of its {STEPS} steps were done twice. The urgent gang ran"
        f" {urgent_waited_s(told):.1f} s after it was submitted to a full cluster."
    )
    return 0


def main() -> int:
    state_dir = Path(tempfile.mkdtemp(prefix="gantree-demo-"))
    daemon = start_daemon(state_dir)
    began = time.monotonic()
    try:
        client = Client(state_dir)
        patiently(client.health)
        told = tell(
            client, lambda line: print(f"{time.monotonic() - began:5.1f} s  {line}", flush=True)
        )
        print()
        return report(told, state_dir)
    except (TimeoutError, Unreachable) as error:
        print(f"The demo got stuck: {error}\n{(state_dir / 'daemon.log').read_text()}")
        return 1
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(state_dir, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
