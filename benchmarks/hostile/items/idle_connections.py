"""600 connections that send nothing and 200 half-sent headers, for a daemon that may have 300 open files."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from hostile.scene import Item
from hostile.site import Site
from idle_connections import holding

IDLE, HALF_SENT = 600, 200
OPENED_AGAIN_AFTER_S = 10.0


@contextmanager
def held(site: Site) -> Iterator[None]:
    """They are held; each that the daemon ends is opened again ten seconds later."""
    port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", site.daemon.log.read_text())[-1])
    with holding(port, IDLE, HALF_SENT, OPENED_AGAIN_AFTER_S):
        yield


ITEM = Item(
    "idle connections, half-sent headers and 300 descriptors",
    held,
    options=("--listen", "127.0.0.1:0"),
    run_by=("prlimit", "--nofile=300:300"),
)
