"""A job that writes lines without end."""

from collections.abc import Iterator
from contextlib import contextmanager

from hostile.scene import Item
from hostile.site import Site

SCRIPT = "exec nice -n 19 yes"
MOST_MB = 100.0
"""The cap, and what `yes` writes between two looks of the shim: 20 ms at 2 GB/s, on a disk in memory."""


@contextmanager
def writing(site: Site, script: str = SCRIPT) -> Iterator[None]:
    """It runs; its log stays below its cap."""
    one = site.run("hostile", script)
    yield
    logs = (site.daemon.state / "runs" / one).rglob("*.log")
    taken_MB = sum(log.stat().st_blocks * 512 for log in logs) / 1e6
    site.require(taken_MB < MOST_MB, f"the log takes {taken_MB:.0f} MB of the disk")
    site.cancel(one)


ITEM = Item("a job that writes without end", writing, options=("--log-cap", "16MiB"))
