"""Which GPUs of gangs are named for their clocks, as of which rank, and when they are not."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.control.nodes.clock_watch import ClockWatch, held_gpus
from gantree.core.lifecycle.launch import start_order
from gantree.telemetry.slow_clocks import AT_LEAST, BUSY, CLOCK, WINDOW
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

REASON = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
LOW = {CLOCK: 1000.0}
Figures = dict[str, float]


class Watched:
    """A gang on two nodes of eight GPUs, one rank a GPU, of which exporters tell a usual clock under load."""

    def __init__(
        self, members: int = 2, gpus: int = 8, processes: int = 8, *, is_exact: bool = True
    ) -> None:
        self.stage = Stage(cluster(leaves=1, nodes=2))
        self.stage.submit(job("train", members, gpus, processes=processes, restarts=1))
        self.stage.started("train")
        self.watch = ClockWatch(is_exact=is_exact)

    def look(self, times: int = 1, **of_gpu_3: Figures | None) -> list[tuple[int, str, list[int]]]:
        """So many scrapes; of_gpu_3: what that GPU of a node tells instead; None: the node is silent."""
        for _ in range(times):
            self.stage.now += 15.0
            told = {
                node: {gpu: _figures(gpu, of_gpu_3.get(node)) for gpu in range(8)}
                for node in ("n0", "n1")
                if of_gpu_3.get(node, {}) is not None
            }
            ledger = self.stage.scheduler.ledger
            assert ledger.fabric is not None
            assert self.watch.events(None, ledger, self.stage.now, 1) == ()
            self.watch.judge(told, ledger.fabric, self.stage.now)
        return [(row["rank"], row["node"], row["gpus"]) for row in self.rows()]

    def rows(self) -> list[dict[str, Any]]:
        return self.watch.rows("train", self.stage.state("train").attempt)


def _figures(gpu: int, of_gpu_3: Figures | None) -> Figures:
    return {CLOCK: 1400.0, BUSY: 100.0} | ((of_gpu_3 or {}) if gpu == 3 else {})


def test_a_gpu_of_a_low_clock_is_named_with_its_rank_and_no_longer_once_it_is_as_fast() -> None:
    watched = Watched()
    assert watched.look(AT_LEAST - 1, n1=LOW) == []
    assert watched.look(n1=LOW) == [(11, "n1", [3])]
    watched.look(20, n1=LOW)
    (row,) = watched.rows()
    assert (row["sign"], row["ratio"], row["peers"], row["steps"]) == ("clock", 0.714, 15, 0)
    assert row["sentence"] == (
        "rank 11 on n1 GPU 3 has 0.71x the SM clock of its 15 peers under load, for at least 14 minutes:"
        " suspected GPU 3"
    )
    assert watched.look(WINDOW - 5) == []


def test_the_reason_that_a_gpu_gives_is_said() -> None:
    watched = Watched()
    watched.look(AT_LEAST, n1=LOW | {REASON: 32.0})
    assert watched.rows()[0]["sentence"].endswith("suspected GPU 3, which is slowed by heat")


def test_scrapes_without_load_or_answer_name_nobody_and_forget_nobody() -> None:
    watched = Watched()
    assert watched.look(WINDOW, n1=LOW | {BUSY: 20.0}) == []
    assert watched.look(AT_LEAST - 1, n1=LOW) == []
    watched.look(3, n0=None, n1=None)
    assert watched.look(n1=LOW) == [(11, "n1", [3])]
    watched.look(n1={CLOCK: float("1e300")})
    assert watched.look(n1={CLOCK: -1.0}) != []


def test_a_gang_that_starts_again_is_judged_anew() -> None:
    watched = Watched()
    watched.look(AT_LEAST, n1=LOW)
    watched.stage.rank_failed("train")
    watched.stage.ended("train", 1)
    assert watched.look() == []
    assert watched.watch.rows("train", 1) == []


@pytest.mark.parametrize(
    ("members", "gpus", "is_exact", "ranks"),
    [(2, 4, False, [3]), (1, 8, False, [3]), (1, 5, False, []), (1, 5, True, [3])],
)
def test_with_device_plugins_only_a_gang_that_has_all_gpus_of_a_node_is_named(
    members: int, gpus: int, is_exact: bool, ranks: list[int]
) -> None:
    watched = Watched(members, gpus, gpus, is_exact=is_exact)
    assert [rank for rank, *_ in watched.look(AT_LEAST, n0=LOW)] == ranks


def test_stages_of_a_pipeline_are_compared_each_by_itself() -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    ways = (("tensor", 4), ("data", 2), ("pipeline", 2))
    stage.submit(replace(job("train", members=2, gpus=8, processes=8), parallelism=ways))
    held = held_gpus(start_order(stage.state("train")))
    assert [each.stage for each in held] == [0] * 8 + [1] * 8
    assert [each.rank for each in held] == list(range(16))


def test_one_process_for_all_gpus_of_a_member_is_the_rank_of_each() -> None:
    watched = Watched(processes=1)
    assert watched.look(AT_LEAST, n1=LOW) == [(1, "n1", [3])]
