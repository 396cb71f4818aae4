"""`make crash-demo`: the story again and again, each time with a kill -9 of the daemon at a random moment.

    crash.py [--rounds 20] [--seed N]

The daemon is started again at once. Nothing that was acknowledged may be lost, nothing run twice, nothing left over:
the same verdict as for the undisturbed demo must come out, and no process of it may live when the story is over.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from demo import start_daemon
from gantree.api.client import Client
from gantree.model.errors import Unreachable
from story import patiently, tell, verdict

NEVER_S = 1e6
"""A moment that no story lasts to."""


class Killer(threading.Thread):
    """Kills the daemon once, after_s seconds from now, and starts it again."""

    def __init__(self, state_dir: Path, after_s: float) -> None:
        super().__init__(daemon=True)
        self._state_dir = state_dir
        self._after_s = after_s
        self.daemon_process = start_daemon(state_dir)
        self.over = threading.Event()
        self.killed = False

    def run(self) -> None:
        if self.over.wait(self._after_s):
            return
        self.daemon_process.send_signal(signal.SIGKILL)
        self.daemon_process.wait()
        self.killed = True
        self.daemon_process = start_daemon(self._state_dir)

    def end(self) -> None:
        """Stop the daemon for good."""
        self.over.set()
        self.join()
        self.daemon_process.terminate()
        self.daemon_process.wait()


def play_round(after_s: float) -> list[str] | None:
    """One story with one kill; what went wrong, or None if the story was over before the kill."""
    state_dir = Path(tempfile.mkdtemp(prefix="gantree-crash-"))
    killer = Killer(state_dir, after_s)
    killer.start()
    try:
        client = Client(state_dir)
        patiently(client.health)
        told = tell(client, lambda line: None)
        told.disturbed = True
        problems = verdict(told, state_dir / "runs") + left_over(state_dir)
    except (TimeoutError, Unreachable) as error:
        problems = [f"{error}: {(state_dir / 'daemon.log').read_text()[-2000:]}"]
    finally:
        killer.end()
    if problems:
        print(f"    kept for a look: {state_dir}")
    else:
        shutil.rmtree(state_dir, ignore_errors=True)
    return problems if killer.killed or problems else None


def left_over(state_dir: Path) -> list[str]:
    """Processes that still run out of the state directory, other than the daemon."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            environment = (process / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        belongs = f"GANTREE_RUN_DIR={state_dir}" in environment or any(
            word.startswith(f"{state_dir}/runs") for word in words
        )
        if belongs and int(process.name) != os.getpid():
            found.append(f"process {process.name} is left over: {' '.join(words)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    moments = random.Random(options.seed)
    began = time.monotonic()
    undisturbed = play_round(NEVER_S)
    lasts_s = time.monotonic() - began
    print(f"undisturbed: {lasts_s:.1f} s: {undisturbed or 'nothing lost'}", flush=True)
    played = failed = 0
    while played < options.rounds:
        after_s = moments.uniform(0.3, lasts_s)
        problems = play_round(after_s)
        if problems is None:
            continue
        played += 1
        failed += bool(problems)
        words = problems or "nothing lost"
        print(f"round {played:2}: killed after {after_s:5.2f} s: {words}", flush=True)
    rounds = "round" if played - failed == 1 else "rounds"
    print(f"{played - failed} {rounds} passed, {failed} failed (seed {options.seed})")
    return 1 if failed or undisturbed else 0


if __name__ == "__main__":
    sys.exit(main())
