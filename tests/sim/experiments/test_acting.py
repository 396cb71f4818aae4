"""acting: the sizes of the jobs, what is avoided of what an oracle avoids, and which failures have a sign."""

import pytest

from gantree.sim.experiments.reliability.acting import (
    FAILURES,
    GPUS_OF_NODE,
    ORACLE,
    STAYS,
    Case,
    avoided,
    rows,
    running,
)


def test_the_jobs_are_as_large_as_on_rsc_1_and_leave_room_to_move() -> None:
    nodes = [row.members for row in rows()]
    assert sum(nodes) / 2_048 == pytest.approx(0.85, abs=0.005)
    large = [each for each in nodes if each * GPUS_OF_NODE >= 256]
    assert sum(large) / sum(nodes) == pytest.approx(0.66, abs=0.005)


def test_the_share_is_of_what_the_oracle_gains_over_staying() -> None:
    ettr: dict[tuple[str, str | float], float] = {
        ("x", STAYS): 0.90,
        ("x", 0.5): 0.94,
        ("x", ORACLE): 0.95,
    }
    assert avoided(ettr, "x", 0.5) == pytest.approx(0.8)
    assert avoided(ettr, "x", STAYS) == 0
    assert avoided(ettr, "x", ORACLE) == 1


def test_the_oracle_is_warned_of_every_failure_a_minute_ahead_and_nobody_of_what_he_leaves_to_chance() -> (
    None
):
    signs = {}
    for acts in (STAYS, 0.0, 0.5, ORACLE):
        failures = running(Case(FAILURES, acts, 1)).failures
        assert failures is not None and failures.node is not None
        signs[acts] = failures.node.announced, failures.node.lead_s
    assert signs == {STAYS: (0.0, 600), 0.0: (0.0, 600), 0.5: (0.5, 600), ORACLE: (1.0, 60)}
