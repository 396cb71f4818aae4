"""save-storm: stalls against the arithmetic of a store that is shared evenly."""

import pytest

from gantree.sim.experiments.reliability.save_storm import (
    AT_ONCE,
    JOBS,
    TURNS,
    needed_GBps,
    saves_in,
    stall_s,
)


def test_at_once_every_job_waits_until_all_bytes_are_written_and_in_turns_for_its_own() -> None:
    GB_of_job, GBps = 32 * 4, 64 * 1.0
    assert stall_s((TURNS, 1.0, 1)) == pytest.approx(GB_of_job / GBps)
    assert stall_s((AT_ONCE, 1.0, 1)) == pytest.approx(JOBS * GB_of_job / GBps)


def test_a_job_does_not_save_at_its_end() -> None:
    assert (saves_in(3600, 900), saves_in(3599, 900), saves_in(3601, 900)) == (3, 3, 4)


def test_the_needed_store_writes_everything_in_the_share_of_the_interval() -> None:
    assert needed_GBps(2048, 900, 0.01) * 9 == pytest.approx(2048)
