"""The progress bar: only where somebody watches, and only for work that takes its time."""

import subprocess
import sys
import time
from io import StringIO

import pytest

from gantree.cli.output.progress import busy, progress


class Terminal(StringIO):
    """An error output that claims to be one."""

    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, stderr: StringIO, moments: list[float]) -> str:
    """What a bar draws that is advanced at these seconds after its start."""
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    times = iter([0.0, *moments])
    with progress("Working", clock=lambda: next(times)) as advance:
        for done, _ in enumerate(moments, start=1):
            advance(done, len(moments))
    return stderr.getvalue()


def test_short_work_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, Terminal(), [0.1, 0.5, 0.99]) == ""


def test_work_of_more_than_a_second_draws_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Working" in drawn(monkeypatch, Terminal(), [0.5, 1.0])


def test_nothing_is_drawn_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, StringIO(), [0.5, 5.0]) == ""


@pytest.mark.parametrize(("stderr", "shown"), [(Terminal(), True), (StringIO(), False)])
def test_a_long_step_shows_that_it_goes_on_where_somebody_watches(
    monkeypatch: pytest.MonkeyPatch, stderr: StringIO, shown: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    give_up_at = time.monotonic() + 90
    with busy("Reading", quiet_s=0.0):
        while shown and "Reading" not in stderr.getvalue() and time.monotonic() < give_up_at:
            time.sleep(0.01)
    assert ("Reading" in stderr.getvalue()) == shown


def test_a_short_step_shows_nothing_and_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with busy("Reading", quiet_s=3600.0):
        pass
    assert stderr.getvalue() == ""


def test_rich_is_not_imported_before_it_is_needed() -> None:
    script = (
        "import sys\nfrom gantree.cli.output.progress import progress\n"
        "with progress('x') as advance: advance(1, 2)\nprint('rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
