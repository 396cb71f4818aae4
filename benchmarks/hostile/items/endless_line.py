"""A job that writes one line without end, and somebody who follows its output."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostile.items.endless_output import writing
from hostile.scene import Item
from hostile.site import Site

SCRIPT = "exec nice -n 19 tr '\\0' x </dev/zero"
MOST_MB = 400.0


@contextmanager
def followed(site: Site) -> Iterator[None]:
    """It runs, and `gantree logs -f` follows it, to nowhere."""
    script = str(Path(sys.executable).with_name("gantree"))
    with writing(site, SCRIPT):
        newest = max((site.daemon.state / "runs").iterdir(), key=lambda each: each.stat().st_mtime)
        command = [
            "nice",
            "-n",
            "19",
            script,
            "logs",
            "-f",
            newest.name,
            "--state",
            str(site.daemon.state),
        ]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as reader:
            yield
            resident_MB = site.daemon.resident_MB()
            reader.terminate()
    site.require(resident_MB < MOST_MB, f"the daemon takes {resident_MB:.0f} MB of memory")


ITEM = Item("a log line without end", followed, options=("--log-cap", "16MiB"))
