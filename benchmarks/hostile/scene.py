"""Acts out one item, and counts violations: what the daemon must not do however hostile its surroundings are.

    lost       jobs that were acknowledged and are not in the journal after `kill -9`; a journal that does not verify
    readyz     seconds over which `/readyz` said otherwise than submissions went; more than READY_WRONG_S is one
    slower     how many times as long another user waits, p99, for a decision and for a list of jobs, with the hostile
               thing going on as without; more than SLOWER is one
    refused    answers that another user did not get, where the item does not say that they may fail

With and without take turns, and the figures are medians over the windows. The machine may be busy with other things:
who exceeds SLOWER is measured again, and all windows count; a difference under UNNOTICED_MS is none.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from gantree.journal.sqlite import SqliteJournal
from gantree.model.events import JobSubmitted
from hostile.disks import mounted
from hostile.site import FIGURES, Site, Window

READY_WRONG_S = 2.0
SLOWER = 2.0
UNNOTICED_MS = 15.0
ALL_ENTRIES = 10_000_000


@dataclass(frozen=True, slots=True)
class Item:
    """A hostile thing. refuses: submissions may fail meanwhile. disk: mounts the home of the daemon, or nothing.

    rounds is how often it is entered, with a window before and a window within each time.
    """

    title: str
    act: Callable[[Site], AbstractContextManager[object]]
    rounds: int = 2
    refuses: bool = False
    options: Sequence[str] = ()
    run_by: Sequence[str] = ()
    disk: Callable[[Path], None] | None = None


@dataclass(slots=True)
class _Windows:
    """What another user saw without the hostile thing and with it."""

    without: list[Window] = field(default_factory=list)
    beside: list[Window] = field(default_factory=list)

    def p99_ms(self, figure: str) -> tuple[float, float]:
        """Medians over the windows of each kind."""
        return (
            median(each.p99_ms(figure) for each in self.without),
            median(each.p99_ms(figure) for each in self.beside),
        )

    def slower(self, figure: str) -> float:
        """How many times as long it takes."""
        before, beside = self.p99_ms(figure)
        return (
            beside / before
            if before and beside - before > UNNOTICED_MS
            else min(beside / (before or 1), SLOWER)
        )

    def is_slower(self) -> bool:
        """Whether a figure has more than doubled."""
        return any(self.slower(figure) > SLOWER for figure in FIGURES)


def play(item: Item, place: Path) -> dict[str, Any]:
    """Act it out in a directory; figures and violations."""
    home = place / "home"
    home.mkdir()
    with mounted(home, item.disk):
        return _play(item, home)


def _play(item: Item, home: Path) -> dict[str, Any]:
    site, windows = Site(home, item.options, item.run_by, home.parent), _Windows()
    site.daemon.start()
    try:
        site.window()  # it is warm from here on
        with site.watched():
            _rounds(item, site, windows)
            if not item.refuses and windows.is_slower():
                _rounds(item, site, windows)
    finally:
        site.daemon.kill()
    return _told(item, site, windows)


def _rounds(item: Item, site: Site, windows: _Windows) -> None:
    for _ in range(item.rounds):
        windows.without.append(site.window())
        with item.act(site):
            windows.beside.append(site.window())


def _told(item: Item, site: Site, windows: _Windows) -> dict[str, Any]:
    wrong_s, said = site.longest_wrong()
    told: dict[str, Any] = {
        "acknowledged": len(site.acknowledged),
        "readyz_wrong_s": round(wrong_s, 1),
        **{figure: windows.p99_ms(figure) for figure in FIGURES},
        "slower": {figure: round(windows.slower(figure), 2) for figure in FIGURES},
    }
    violations = list(site.complaints) + _lost(site)
    if wrong_s > READY_WRONG_S:
        violations.append(f"/readyz was wrong for {wrong_s:.1f} s: {said}")
    if not item.refuses:
        violations += [
            f"{figure} of another user: p99 {told['slower'][figure]} times"
            for figure in FIGURES
            if windows.slower(figure) > SLOWER
        ]
    refused = [] if item.refuses else [one for each in windows.beside for one in each.refused]
    refused += [one for each in windows.without for one in each.refused]
    if refused:
        violations.append(f"{len(refused)} requests of another user failed, first: {refused[0]}")
    return {**told, "violations": violations}


def _lost(site: Site) -> list[str]:
    """Acknowledged jobs that are not on disk, and what is wrong with the journal."""
    with closing(SqliteJournal(site.daemon.state)) as journal:
        entries = journal.read_inbox(0, ALL_ENTRIES)
    on_disk = {each.event.job for each in entries if isinstance(each.event, JobSubmitted)}
    found = []
    if lost := sorted(set(site.acknowledged) - on_disk):
        found.append(f"{len(lost)} acknowledged jobs are not on disk: {lost[:3]}")
    script = str(Path(sys.executable).with_name("gantree"))
    command = [script, "journal", "verify", "--state", str(site.daemon.state)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    if verified.returncode:
        found.append(f"the journal does not verify: {verified.stdout + verified.stderr}")
    return found
