"""Children of the daemon are stopped with SIGSTOP: the process that answers reads, and the shim of a job."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hostile.items.killed_shims import shim_of
from hostile.scene import Item
from hostile.site import Site
from support.processes import below


@contextmanager
def stopped(site: Site) -> Iterator[None]:
    """Neither goes on until the end of the block, unless the daemon sees to it."""
    one = site.run("hostile", "exec sleep 600")
    readers = below(site.daemon.pid).get("gantree-reader", [])
    site.require(readers, "there is no reader to stop")
    pids = [*readers, shim_of(site, one)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        site.cancel(one)


ITEM = Item("a stopped reader and a stopped shim", stopped)
