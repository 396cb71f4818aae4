"""A daemon ran while the clock stood 2,000 days ahead; an operator corrects the journal."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostile.scene import Item
from hostile.site import Site
from support.wrong_clocks import jump_ahead, move_events

DAYS = 2000


def gantree(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    """A command on the state directory."""
    script = str(Path(sys.executable).with_name("gantree"))
    command = [script, *words, "--state", str(site.daemon.state)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def far_ahead(site: Site) -> Iterator[None]:
    """The daemon goes on from the time of the wrong clock, and then from the right one."""
    site.daemon.stop()
    jump_ahead(site.daemon.state, DAYS)
    site.daemon.start()
    yield
    site.daemon.stop()
    corrected = gantree(site, "journal", "correct-clock")
    site.require(corrected.returncode == 0, f"not corrected: {corrected.stdout + corrected.stderr}")
    move_events(site.daemon.state, -DAYS)
    refused = gantree(site, "up", "--virtual", "dgx-h100:1")
    site.require(
        "--accept-clock" in refused.stderr, f"a clock far ahead was accepted: {refused.stderr}"
    )
    move_events(site.daemon.state, DAYS)
    site.daemon.start()


ITEM = Item("a clock that stood 2,000 days ahead", far_ahead, rounds=1)
