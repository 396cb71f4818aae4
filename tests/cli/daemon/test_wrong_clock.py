"""A machine whose clock stands far ahead of the journal: a start is refused unless somebody says that it is right."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.conftest import Gantree
from support.daemon import Program

DAY_S = 86400


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A start on a state directory that has had a daemon."""
    words = ["up", "--virtual", "dgx-h100:1", "--state", str(tmp_path / "state")]
    with Program(*words) as first:
        first.says("ready")
        assert first.stop() == 0
    return words


def move_events(state_dir: str, days: int) -> None:
    """Have all events of the journal happen so many days later: as if the clock stood behind by that."""
    with closing(sqlite3.connect(Path(state_dir) / "journal.sqlite3")) as db, db:
        db.execute("UPDATE inbox SET observed_at = observed_at + ?", (days * DAY_S,))


def test_a_clock_far_ahead_of_the_journal_is_refused_until_it_is_accepted(
    words: list[str], gantree: Gantree
) -> None:
    move_events(words[-1], -2000)
    told = gantree(*words)
    assert told.code == 1
    assert "2000 days ahead of the newest event of the journal" in told.err
    assert "--accept-clock" in told.err
    for more in (["--accept-clock"], []):  # once there is an event of today, nobody asks any more
        with Program(*words, *more) as accepted:
            accepted.says("ready")
            assert accepted.stop() == 0


@pytest.mark.parametrize("days", [-29, 2000])
def test_a_pause_of_weeks_and_a_clock_that_stands_behind_are_no_obstacle(
    words: list[str], days: int
) -> None:
    move_events(words[-1], days)
    with Program(*words) as program:
        program.says("ready")
        assert program.stop() == 0
