"""Runs the items of a hostile day one after the other, prints a table, and exits 1 where there is any violation.

    PYTHONPATH=tests:benchmarks python -m hostile [--only NAME] [--json]

Each item runs in a process and a mount namespace of its own, so that no file system stays mounted. An item that the
machine does not allow (mounts need root or user namespaces, one needs a loop device) is told as not run, a violation.
"""

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hostile.scene import Item, play

ITEMS = (
    "idle_connections", "full_disk", "full_inodes", "read_only", "lost_directory", "successor", "arrays",
    "many_submissions", "endless_output", "endless_line", "stopped_children", "killed_shims", "wrong_clock",
)  # fmt: skip
LONGEST_S = 400.0
BY_ROOT, BY_OTHERS = ["nice", "-n", "-10", "unshare", "-m"], ["unshare", "-Urm"]
"""Root also lets it go before other work of the machine, which would be noise in the figures."""
ROW = "{:<18} {:>6} {:>7} {:>19} {:>19}  {}"


def item_of(name: str) -> Item:
    """The item of a module."""
    item: Item = importlib.import_module(f"hostile.items.{name}").ITEM
    return item


def play_here(name: str) -> None:
    """Act out one item in this process, and print what came of it as JSON."""
    with tempfile.TemporaryDirectory(prefix="gantree-hostile-") as directory:
        place = Path(directory)
        place.chmod(0o711)
        found = play(item_of(name), place)
    print(json.dumps(found))


def play_apart(name: str) -> dict[str, Any]:
    """The same in a process and a mount namespace of its own."""
    apart = BY_ROOT if os.geteuid() == 0 else BY_OTHERS
    command = [*apart, sys.executable, "-m", "hostile", "--here", name]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LONGEST_S
        )
        lines = done.stdout.splitlines()
        if done.returncode or not lines:
            raise ValueError(done.stderr.strip()[-2000:] or f"exit status {done.returncode}")
        found: dict[str, Any] = json.loads(lines[-1])
    except (ValueError, subprocess.TimeoutExpired) as error:
        found = {"violations": [f"not run: {error}"]}
    return {"item": name, **found, "took_s": round(time.monotonic() - began)}


def row(found: dict[str, Any]) -> str:
    """A line of the table."""

    def pair(figure: str) -> str:
        if figure not in found:
            return "-"
        without, beside = found[figure]
        return f"{without:.0f} -> {beside:.0f} ms"

    return ROW.format(
        found["item"], f"{found['took_s']} s", f"{found.get('readyz_wrong_s', '-')} s",
        pair("decision"), pair("jobs"), f"{len(found['violations'])} violations",
    )  # fmt: skip


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=ITEMS, help="one item")
    parser.add_argument("--json", action="store_true", help="everything as JSON, behind the table")
    parser.add_argument("--here", choices=ITEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        play_here(options.here)
        return
    if shutil.which("unshare") is None:
        raise SystemExit("a hostile day needs unshare (util-linux)")
    print(ROW.format("item", "took", "readyz", "decision, p99", "jobs, p99", ""))
    results = []
    for name in [options.only] if options.only else ITEMS:
        results.append(found := play_apart(name))
        print(row(found), flush=True)
        for violation in found["violations"]:
            print(f"    {violation}", flush=True)
    if options.json:
        print(json.dumps(results, indent=2))
    raise SystemExit(any(found["violations"] for found in results))


if __name__ == "__main__":
    main()
