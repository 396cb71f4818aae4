"""The demo with its daemon killed (kill -9) at a moment, as `make crash-demo` does it at twenty.

It judges itself: the same verdict as for the undisturbed story, nothing lost, nothing run twice, nothing left over.
Here it must come to that verdict. The kill comes when training has just made room and the urgent gang is about to
start. (While training runs, a machine that stands still could let it come to its end before the next daemon is there.)
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = Path(__file__).resolve().parents[1] / "examples" / "demo" / "crash.py"
AT = "JobRequeued"
PROCESSES = "2"
"""Of each member; `make crash-demo` starts eight, and NumPy takes a while to import in every one of them."""
PATIENCE_S = 1200.0


@pytest.mark.soak
def test_the_demo_survives_a_kill_of_its_daemon(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(CRASH), "--at", AT, "--processes", PROCESSES],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert done.stdout.splitlines() == [f"killed at {AT}: nothing lost"], told
    assert list(tmp_path.iterdir()) == [], "a story that went well leaves no state directory"
