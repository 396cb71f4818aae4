"""A daemon stops while its successor starts: the successor keeps its socket, and nothing is lost between them."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hostile.scene import Item
from hostile.site import Site

WITHIN_S = 60.0


@contextmanager
def handed_over(site: Site) -> Iterator[None]:
    """A successor is started again and again until the old one lets it; then the other user goes on."""
    old = site.daemon.process
    assert old is not None, "it was never started"
    old.terminate()
    deadline = time.monotonic() + WITHIN_S
    while not _started(site) and time.monotonic() < deadline:
        pass
    old.wait(WITHIN_S)
    socket = site.daemon.state / "gantree.sock"
    site.require(socket.is_socket(), "the socket of the successor is gone")
    site.window()  # a daemon that has just started is not warm
    yield


def _started(site: Site) -> bool:
    try:
        site.daemon.start()
    except (SystemExit, subprocess.SubprocessError):
        return False  # the old one still holds the directory
    return True


ITEM = Item("a stopping daemon and its successor", handed_over)
