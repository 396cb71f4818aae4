"""Slow ranks as events: after some rounds in a row, and what is on record is not said again."""

from dataclasses import replace

import pytest

from gantree.control.nodes.slow_rank_reports import (
    ROUNDS,
    SlowRankReports,
    SlowRankSeen,
    slowdown,
)
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

SEEN = SlowRankSeen("a", 1, 9, "n1", 1.3)


class Rounds:
    """Rounds over one gang of two nodes, on a real scheduler."""

    def __init__(self) -> None:
        self.stage = Stage(cluster(leaves=1, nodes=2))
        self.stage.submit(job("a", 2, 8, processes=8))
        self.stage.started("a")
        self.reports = SlowRankReports()

    def look(self, *seen: SlowRankSeen, rounds: int = 1) -> int:
        """How many events follow from so many rounds in which these were named."""
        told = 0
        for _ in range(rounds):
            self.stage.now += 15
            ledger = self.stage.scheduler.ledger
            events = self.reports.events(seen, ledger, self.stage.now, 1)
            self.stage.handle(events)
            told += len(events)
        return told

    def factors(self) -> list[float]:
        return [each.slowdown for each in self.stage.state("a").slow]


def test_a_rank_is_told_once_after_some_rounds_and_again_when_it_is_fast() -> None:
    rounds = Rounds()
    assert rounds.look(SEEN, rounds=ROUNDS - 1) == 0
    assert rounds.look(SEEN) == 1
    assert rounds.factors() == [1.3]
    assert rounds.look(SEEN, replace(SEEN, slowdown=1.32), rounds=10) == 0
    assert rounds.look(rounds=ROUNDS - 1) == 0
    assert rounds.factors() == [1.3]
    assert rounds.look() == 1
    assert rounds.factors() == []
    assert rounds.look(rounds=10) == 0


def test_a_name_that_comes_and_goes_is_never_told() -> None:
    rounds = Rounds()
    for _ in range(10):
        assert rounds.look(SEEN, rounds=ROUNDS - 1) + rounds.look() == 0


def test_another_factor_is_told_and_the_next_daemon_repeats_nothing() -> None:
    rounds = Rounds()
    rounds.look(SEEN, rounds=ROUNDS)
    assert rounds.look(replace(SEEN, slowdown=1.5)) == 1
    assert rounds.factors() == [1.5]
    rounds.reports = SlowRankReports()
    assert rounds.look(replace(SEEN, slowdown=1.5), rounds=10) == 0
    assert rounds.look(rounds=ROUNDS) == 1
    assert rounds.factors() == []


@pytest.mark.parametrize(
    ("own_s", "ratio", "step_s", "expected"),
    [
        (1.3, 1.3, None, 1.3),
        (1.3, 1.3, 1.0, 1.3),
        (1.3, 1.3, 2.3, 2.3 / 2.0),
        (0.2, 2.0, 1.0, 1 / 0.9),
    ],
)
def test_a_step_is_longer_by_what_the_slow_rank_takes_more(
    own_s: float, ratio: float, step_s: float | None, expected: float
) -> None:
    assert slowdown(own_s, ratio, step_s) == pytest.approx(expected)
