"""`make crash-demo`: the story again and again, each time with a kill -9 of the daemon at a random moment.

    crash.py [--rounds 20] [--seed N]
    crash.py --at FACT [--processes 8]

With --at it is one round, and the kill comes as soon as training has that fact, such as JobRequeued; fewer processes
of each member take less of the machine. The daemon is started again at once. Nothing that was acknowledged may be
lost, nothing run twice, nothing left over: the same verdict as for the undisturbed demo must come out, and no process
of it may live when the story is over.
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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from demo import start_daemon
from gantree import Client
from gantree.model.errors import Unreachable
from story import PROCESSES, patiently, tell, verdict

NEVER_S = 1e6
"""A moment that no story lasts to."""


Moment = Callable[[Path, threading.Event], bool]
"""Waits for the moment to kill the daemon of a state directory; False where the story is over before."""


class Killer(threading.Thread):
    """Kills the daemon once, when its moment has come, and starts it again."""

    def __init__(self, state_dir: Path, moment: Moment) -> None:
        super().__init__(daemon=True)
        self._state_dir = state_dir
        self._moment = moment
        self.daemon_process = start_daemon(state_dir)
        self.over = threading.Event()
        self.killed = False

    def run(self) -> None:
        if not self._moment(self._state_dir, self.over):
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


def after(seconds: float) -> Moment:
    """So long after the start."""
    return lambda state_dir, over: not over.wait(seconds)


def at(kind: str) -> Moment:
    """When training has this fact."""

    def comes(state_dir: Path, over: threading.Event) -> bool:
        client = Client(state_dir)
        while not over.wait(0.02):
            with suppress(Unreachable):
                if any(
                    fact["fact"] == kind and fact["data"].get("job") == "training"
                    for fact in client.facts()
                ):
                    return True
        return False

    return comes


def play_round(moment: Moment, processes: int = PROCESSES) -> list[str] | None:
    """One story with one kill; what went wrong, or None if the story was over before the kill."""
    state_dir = Path(tempfile.mkdtemp(prefix="gantree-crash-"))
    killer = Killer(state_dir, moment)
    killer.start()
    try:
        client = Client(state_dir)
        patiently(client.health)
        told = tell(client, lambda line: None, processes)
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
    parser.add_argument("--at", metavar="FACT")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args()
    if options.processes != PROCESSES and not options.at:
        parser.error("--processes is for one round: say --at FACT too")
    if options.at:
        problems = play_round(at(options.at), options.processes)
        print(f"killed at {options.at}: {outcome(problems)}")
        return 0 if problems == [] else 1
    return many_rounds(options.rounds, options.seed)


def outcome(problems: list[str] | None) -> str:
    """What came of a round."""
    if problems is None:
        return "the story was over before"
    return "nothing lost" if problems == [] else str(problems)


def many_rounds(wanted: int, seed: int) -> int:
    """First the undisturbed story, to know how long it lasts, then rounds with a kill somewhere in it."""
    moments = random.Random(seed)
    began = time.monotonic()
    undisturbed = play_round(after(NEVER_S))
    lasts_s = time.monotonic() - began
    print(f"undisturbed: {lasts_s:.1f} s: {undisturbed or 'nothing lost'}", flush=True)
    played = failed = 0
    while played < wanted:
        after_s = moments.uniform(0.3, lasts_s)
        problems = play_round(after(after_s))
        if problems is None:
            continue
        played += 1
        failed += bool(problems)
        print(f"round {played:2}: killed after {after_s:5.2f} s: {outcome(problems)}", flush=True)
    rounds = "round" if played - failed == 1 else "rounds"
    print(f"{played - failed} {rounds} passed, {failed} failed (seed {seed})")
    return 1 if failed or undisturbed else 0


if __name__ == "__main__":
    sys.exit(main())
