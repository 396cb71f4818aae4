"""The shims of running jobs are killed with SIGKILL."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hostile.scene import Item
from hostile.site import Site

JOBS = 5


def shim_of(site: Site, one: str) -> int:
    """The process of a job's only shim."""
    (record,) = (site.daemon.state / "runs" / one).rglob("shim.json")
    pid: int = json.loads(record.read_text())["pid"]
    return pid


@contextmanager
def killed(site: Site) -> Iterator[None]:
    """They are killed; their jobs start again or fail, and none is said to run for ever."""
    ids = [site.run("hostile", "exec sleep 600") for _ in range(JOBS)]
    for one in ids:
        os.kill(shim_of(site, one), signal.SIGKILL)
    yield
    for one in ids:
        _, detail = site.caller.ask("GET", f"/v1/jobs/{one}")
        site.require(
            detail.get("attempts", 0) != 1 or detail.get("phase") != "running",
            f"{one} runs on, it says",
        )
        site.cancel(one)


ITEM = Item("killed shims", killed)
