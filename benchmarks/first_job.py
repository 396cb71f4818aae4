"""How long a newcomer waits for the output of a first own job, from `git clone` on, downloads aside.

Clones this repository into an empty directory and times, one after the other: the clone; the set-up of the environment
(`make .venv/.installed`, as `make demo` does); `gantree up --virtual` until it is ready; the submission of a script of
the newcomer's own until its output can be read. The packages come from the caches of pip and uv, which a set-up before
has filled: what is timed still asks the registry for the bootstrap's few files. `--warm` makes one such set-up first,
untimed.

    python benchmarks/first_job.py [--warm] [--most 60]

Prints seconds by part as JSON; exits 1 if they are more than --most in all.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = "my first job runs"
SCRIPT = f"print('{OUTPUT}')\n"
PATIENCE_S = 300.0


def set_up(place: Path) -> dict[str, float]:
    """Clone and make the environment; seconds of each."""
    took_s = {}
    for part, command in (
        ("clone", ["git", "clone", "--quiet", str(ROOT), str(place)]),
        ("environment", ["make", "--silent", "-C", str(place), ".venv/.installed"]),
    ):
        began = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took_s[part] = time.monotonic() - began
    return took_s


def first_job(place: Path) -> dict[str, float]:
    """Start the daemon and run the script; seconds of each."""
    script = place.parent / "mine.py"
    script.write_text(SCRIPT)
    gantree, log = str(place / ".venv/bin/gantree"), place.parent / "up.log"
    environment = {**os.environ, "GANTREE_STATE": str(place.parent / "state")}
    began = time.monotonic()
    with log.open("wb") as said:
        daemon = subprocess.Popen(
            [gantree, "up", "--virtual", "dgx-h100:2"], env=environment, stdout=said, stderr=said
        )
    try:
        while b" ready: " not in log.read_bytes():
            if daemon.poll() is not None or time.monotonic() - began > PATIENCE_S:
                raise SystemExit(f"the daemon does not start: {log.read_text()}")
            time.sleep(0.01)
        ready = time.monotonic()
        command = [gantree, "run", "--gpus", "1", "--", "python3", str(script)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        if OUTPUT not in done.stdout:
            raise SystemExit(f"no output of the job: {done.stdout}{done.stderr}")
        return {"daemon": ready - began, "job": time.monotonic() - ready}
    finally:
        daemon.terminate()
        daemon.wait()


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--warm", action="store_true", help="fill the caches first")
    parser.add_argument("--most", type=float, default=60.0, help="seconds that it may take")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantree-first-") as directory:
        if options.warm:
            set_up(Path(directory) / "warm")
        place = Path(directory) / "gantree"
        took_s = {**set_up(place), **first_job(place)}
    total_s = sum(took_s.values())
    print(json.dumps({"total_s": round(total_s, 1), **{k: round(v, 1) for k, v in took_s.items()}}))
    raise SystemExit(total_s > options.most)


if __name__ == "__main__":
    main()
