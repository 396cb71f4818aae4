"""The demo with its daemon killed (kill -9) at a moment, as `make crash-demo` does it at twenty.

It judges itself: the same verdict as for the undisturbed story, nothing lost, nothing run twice, nothing left over.
Here it must come to that verdict. The seed puts the kill where much is going on, about the preemption and the resume.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

CRASH = Path(__file__).resolve().parents[1] / "examples" / "demo" / "crash.py"
SEED = 39
ROUNDS = 1
PATIENCE_S = 240.0


def test_the_demo_survives_a_kill_of_its_daemon(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(CRASH), "--rounds", str(ROUNDS), "--seed", str(SEED)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    undisturbed, *rounds, verdict = done.stdout.splitlines()
    assert re.fullmatch(r"undisturbed: [\d.]+ s: nothing lost", undisturbed), told
    killed = [re.fullmatch(r"round +(\d+): killed after +[\d.]+ s: (.*)", line) for line in rounds]
    assert [match and match.groups() for match in killed] == [
        (str(number), "nothing lost") for number in range(1, ROUNDS + 1)
    ], told
    assert verdict == f"{ROUNDS} round passed, 0 failed (seed {SEED})"
    assert list(tmp_path.iterdir()) == [], "a story that went well leaves no state directory"
