"""From what exporters say to the book: no second is lost or told twice, whoever else tells, and whatever garbage."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gantree.accounting.ended_jobs import JobSearch
from gantree.api.gpu_metrics.exporters import answers
from gantree.control.nodes.gpu_use_watch import MOST_S, GpuUseWatch
from gantree.core.ledger.usage import life_of
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.model.events import GpuUseObserved
from gantree.model.facts import GpuUseNoted
from gantree.telemetry.dcgm.health import signs_in
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import seeds
from support.gpu_exporters import GARBAGE, told
from support.history_lives import HistoryLives
from support.history_recount import check_equal
from support.purposes import Purposes
from support.random_lives import NODES

BUSY, HUNG, UNKNOWN = 0.7, 0.0, None
Does = Mapping[tuple[str, int], float | None]
"""How active each GPU is; None: no exporter tells."""


def figures(does: Does, lots: Random, nodes: tuple[str, ...]) -> Mapping[str, Any]:
    """What is read of exporters in any order: two that are right, of which one may be silent, and two of garbage."""
    right = "".join(
        told(node, gpu, active) for (node, gpu), active in does.items() if active is not None
    )
    garbage = [lots.choice(GARBAGE).replace("NODE", lots.choice(nodes)) for _ in range(2)]
    texts = [*garbage, right, right if lots.random() < 0.5 else right[: len(right) // 2]]
    lots.shuffle(texts)
    asked = {str(number): partial(signs_in, text) for number, text in enumerate(texts)}
    return answers(asked, nodes)[0]


class ExportedLives(HistoryLives):
    """Random lives whose GPUs are measured by two daemons at once; their clocks step, and they die."""

    is_measured = True

    def __init__(self, journal: SqlJournal, policy: str, seed: int) -> None:
        self.watches = [GpuUseWatch(), GpuUseWatch()]
        super().__init__(journal, policy, seed)

    def restart(self, *, first: bool = False) -> None:
        super().restart(first=first)
        self.watches[self.lots.randrange(2)] = GpuUseWatch()

    def measure(self) -> None:
        """A round of either daemon, or of both."""
        lots, ledger = self.lots, self.scheduler.ledger
        does = {
            (node, gpu): lots.choice([BUSY, HUNG, UNKNOWN]) for node in NODES for gpu in range(4)
        }
        assert ledger.fabric is not None
        for watch in lots.sample(self.watches, lots.choice([1, 2])):
            now = self.now + lots.choice([0.0, 0.0, 0.0, -40.0, 50.0, 3600.0])
            judged = watch.judge(figures(does, lots, NODES), ledger.fabric, now)
            for event in watch.events(judged, ledger, now, 1):
                for _ in range(lots.choice([1, 1, 2])):
                    self.tell(
                        GpuUseObserved, since=event.since, until=event.until, gangs=event.gangs
                    )


def check_rows_of_jobs(lives: ExportedLives) -> None:
    """What is on record of each ended job is what the facts come to, those after its end too."""
    purposes = Purposes(lambda node: "")
    for fact in lives.facts:
        purposes.see(fact)
    for each in lives.journal.history.ended_jobs(JobSearch(), None, 1000):
        row, of_job = each.ended, purposes.of_job(each.ended.job)
        told = (row.held_gpu_s, row.lost_gpu_s, row.useful_gpu_s, row.idle_gpu_s)
        columns = ("allocated_gpu_s", "lost_gpu_s", "useful_gpu_s", "idle_gpu_s")
        assert told == pytest.approx(tuple(of_job.get(name, 0.0) for name in columns)), row.job


@pytest.mark.parametrize("policy", ["shares", "turns"])
@pytest.mark.parametrize("seed", seeds(20, 2))
def test_garbage_gaps_duplicates_and_clocks_that_step_change_no_sum(
    tmp_path: Path, policy: str, seed: int
) -> None:
    journal = SqliteJournal(tmp_path)
    lives = ExportedLives(journal, policy, seed)
    lives.live(100)
    check_equal(lives)
    assert any(isinstance(fact, GpuUseNoted) for fact in lives.facts)
    check_rows_of_jobs(lives)
    journal.close()


@pytest.mark.parametrize("seed", seeds(40))
def test_each_second_that_one_exporter_tells_of_is_counted_once(seed: int) -> None:
    """Whatever others say: a plain recount of what the first one said."""
    lots, stage, watch = Random(seed), Stage(cluster(spines=1, leaves=1, nodes=2)), GpuUseWatch()
    stage.submit(job("j", 2, 6))
    stage.started("j")
    place = stage.state("j").placement
    assert place is not None
    held = [(member.node, gpu) for member in place.members for gpu in member.gpus]
    nodes = tuple(dict.fromkeys(node for node, _ in held))
    useful = idle = 0.0

    def look(seconds: float, does: Does) -> None:
        stage.now += seconds
        ledger = stage.scheduler.ledger
        assert ledger.fabric is not None
        judged = watch.judge(figures(does, lots, nodes), ledger.fabric, stage.now)
        for event in watch.events(judged, ledger, stage.now, 1):
            stage.handle([event])

    look(15.0, {})
    for _ in range(40):
        does = {where: lots.choice([BUSY, HUNG, UNKNOWN]) for where in held}
        seconds = lots.choice([1.0, 15.0, 15.0, MOST_S, MOST_S + 5.0])
        look(seconds, does)
        counted = seconds if seconds <= MOST_S else 0.0
        useful += counted * sum(active is BUSY for active in does.values())
        idle += counted * sum(active is HUNG for active in does.values())
    for _ in range(25):
        look(15.0, {})
    found = life_of(stage.state("j"), stage.now).values()
    assert sum(used.useful_gpu_s for used in found) == pytest.approx(useful)
    assert sum(used.idle_gpu_s for used in found) == pytest.approx(idle)
