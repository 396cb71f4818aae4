"""What GPUs do, joined with who holds them: by hand, and held equal to a plain recount of random rounds."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.control.nodes.gpu_use_watch import MOST_S, REPORT_S, GpuUseWatch, computing
from gantree.core.ledger.usage import life_of
from gantree.model.events import CancelRequested, GpuUseObserved
from gantree.model.facts import GangSuspended
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.jobs import Shape
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples

BUSY = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.5, "DCGM_FI_PROF_DRAM_ACTIVE": 0.2}
HUNG = {
    "DCGM_FI_DEV_GPU_UTIL": 100.0,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.0,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.0,
}
Told = Mapping[str, Mapping[int, Mapping[str, float]]]


def there(members: int = 1, gpus: int = 8) -> Stage:
    stage = Stage(cluster(spines=1, leaves=1, nodes=2))
    stage.submit(job("j", members, gpus))
    stage.started("j")
    return stage


def all_of(node: str, figures: Mapping[str, float]) -> Told:
    return {node: dict.fromkeys(range(8), figures)}


class Rounds:
    """A watch that looks every 15 seconds at what it is told; its reports are handled at once."""

    def __init__(self, stage: Stage, *, is_exact: bool = True) -> None:
        self.stage, self.watch = stage, GpuUseWatch(is_exact=is_exact)
        self.reports: list[GpuUseObserved] = []

    def look(self, told: Told, seconds: float = 15.0, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.stage.now += seconds
            ledger = self.stage.scheduler.ledger
            assert ledger.fabric is not None
            judged = self.watch.judge(told, ledger.fabric, self.stage.now)
            found = self.watch.events(judged, ledger, self.stage.now, 1)
            self.reports += found
            for event in found:
                self.stage.handle([event])

    def amounts(self, name: str = "j") -> tuple[float, float]:
        found = life_of(self.stage.state(name), self.stage.now).values()
        return sum(used.useful_gpu_s for used in found), sum(used.idle_gpu_s for used in found)


def test_reports_come_every_five_minutes_and_count_each_second_once() -> None:
    rounds = Rounds(there())
    rounds.look(all_of("n0", BUSY), rounds=1 + int(REPORT_S / 15))
    (report,) = rounds.reports
    assert (report.until - report.since, report.gangs) == (
        REPORT_S,
        (MeasuredUse("j", 1, 8 * REPORT_S, 0.0),),
    )
    assert rounds.amounts() == (8 * REPORT_S, 0.0)


def test_what_gpus_draw_and_send_is_counted_where_counters_tell_it() -> None:
    """Two of eight GPUs tell no watts, or garbage; of one it is not known whether it computes."""
    power, nvlink = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_NVLINK_TX_BYTES"
    told = {gpu: {**BUSY, power: 600.0, nvlink: 2e9} for gpu in range(5)}
    told |= {5: {**HUNG, nvlink: -1.0}, 6: {**HUNG, power: 1e9, nvlink: 2e9}, 7: {power: 700.0}}
    rounds = Rounds(there())
    rounds.look({"n0": told}, rounds=1 + int(REPORT_S / 15))
    (report,) = rounds.reports
    (used,) = report.gangs
    assert (used.useful_gpu_s, used.idle_gpu_s) == (5 * REPORT_S, 2 * REPORT_S)
    energy_kWh = 5 * 600.0 * REPORT_S / 3.6e6
    assert used.drawn == (5 * REPORT_S, energy_kWh, 6 * 2.0 * REPORT_S, 0.0)


def test_a_part_of_a_gpu_draws_that_part_of_its_watts() -> None:
    stage = Stage(cluster(spines=1, leaves=1, nodes=1))
    (role,) = job("j").roles
    stage.submit(replace(job("j"), roles=(replace(role, shape=Shape(mig="1g.10gb")),)))
    stage.started("j")
    rounds = Rounds(stage)
    ((node, of_gpu),) = cut({7: 0.9}).items()
    whole = {"DCGM_FI_DEV_POWER_USAGE": 700.0}
    rounds.look({node: {0: {**of_gpu[0], **whole}}}, rounds=1 + int(REPORT_S / 15))
    (used,) = rounds.reports[0].gangs
    assert used.drawn.energy_kWh == pytest.approx(700.0 / 7 * REPORT_S / 3.6e6, abs=1e-6)


def test_a_hung_gang_is_idle_whatever_its_utilisation_says() -> None:
    rounds = Rounds(there())
    rounds.look(all_of("n0", HUNG), rounds=21)
    assert rounds.amounts() == (0.0, 8 * REPORT_S)


def test_of_a_gang_that_is_gone_the_next_round_reports() -> None:
    rounds = Rounds(there())
    rounds.look(all_of("n0", BUSY), rounds=3)
    rounds.stage.ended("j")
    rounds.look({})
    assert [report.gangs for report in rounds.reports] == [(MeasuredUse("j", 1, 8 * 30.0, 0.0),)]
    assert rounds.amounts() == (8 * 30.0, 0.0)


def test_nothing_is_measured_without_figures_nor_over_a_gap() -> None:
    rounds = Rounds(there())
    rounds.look({}, rounds=21)
    rounds.look(all_of("n0", BUSY), seconds=MOST_S + 1.0)
    rounds.look({"n0": {0: BUSY}, "n1": {1: BUSY}, "nowhere": {0: BUSY}})
    rounds.look({}, rounds=20)
    assert rounds.amounts() == (15.0, 0.0)


def test_time_before_the_gang_ran_is_none_of_its_own() -> None:
    stage = Stage(cluster(spines=1, leaves=1, nodes=2))
    stage.submit(job("j", 1, 8))
    rounds = Rounds(stage)
    rounds.look(all_of("n0", BUSY), rounds=4)
    stage.now += 10.0
    stage.started("j")
    stage.now -= 10.0
    rounds.look(all_of("n0", BUSY), seconds=15.0)
    rounds.look({}, rounds=20)
    assert rounds.amounts() == (8 * 5.0, 0.0)


def test_a_gang_that_stops_is_not_counted() -> None:
    rounds = Rounds(there())
    rounds.look(all_of("n0", BUSY), rounds=2)
    rounds.stage.tell(CancelRequested, job="j")
    rounds.look(all_of("n0", BUSY), rounds=20)
    assert rounds.amounts() == (8 * 15.0, 0.0)


def test_a_gang_that_is_suspended_is_not_counted() -> None:
    rounds = Rounds(there())
    rounds.look(all_of("n0", BUSY), rounds=2)
    ledger, now = rounds.stage.scheduler.ledger, rounds.stage.now
    ledger.apply(GangSuspended(at=now, job="j", attempt=1))
    judged = computing(all_of("n0", BUSY)), dict[str, dict[int, tuple[float, float]]]()
    reports = [rounds.watch.events(judged, ledger, now + 15.0 * each, 1) for each in range(1, 21)]
    assert [report.gangs for found in reports for report in found] == [
        (MeasuredUse("j", 1, 8 * 15.0, 0.0),)
    ]


@pytest.mark.parametrize(("gpus", "useful"), [(8, 8 * 15.0), (4, 0.0)])
def test_where_a_device_plugin_picks_gpus_only_whole_nodes_are_known(
    gpus: int, useful: float
) -> None:
    rounds = Rounds(there(gpus=gpus), is_exact=False)
    rounds.look(all_of("n0", BUSY), rounds=2)
    rounds.look({}, rounds=20)
    assert rounds.amounts() == (useful, 0.0)


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_rounds_are_counted_as_a_plain_recount_counts_them(seed: int) -> None:
    lots = Random(seed)
    stage = there(members=2, gpus=6)
    rounds = Rounds(stage)
    useful = idle = 0.0
    place = stage.state("j").placement
    assert place is not None
    held = [(member.node, gpu) for member in place.members for gpu in member.gpus]
    rounds.look({})
    for _ in range(lots.randint(1, 60)):
        seconds = lots.choice([1.0, 15.0, 15.0, 16.5, MOST_S, MOST_S + 5.0])
        told = {
            node: {gpu: lots.choice([BUSY, HUNG, {}]) for gpu in range(8) if lots.random() < 0.9}
            for node in ("n0", "n1")
            if lots.random() < 0.95
        }
        if seconds <= MOST_S:
            useful += seconds * sum(told.get(node, {}).get(gpu) is BUSY for node, gpu in held)
            idle += seconds * sum(told.get(node, {}).get(gpu) is HUNG for node, gpu in held)
        rounds.look(told, seconds)
    rounds.look({}, rounds=int(REPORT_S / 15) + 1)
    assert rounds.amounts() == pytest.approx((useful, idle))


def cut(tensor: Mapping[int, float]) -> Told:
    """GPU 0 of n0 in instances of 1g.10gb, by id how active they are."""
    figures = {
        f"{name}/1g.10gb#{number}": active for number, active in tensor.items() for name in BUSY
    }
    return {"n0": {0: figures}}


@pytest.mark.parametrize(
    ("tensor", "useful", "idle"),
    [({7: 0.9, 8: 0.4}, 1 / 7, 0.0), ({7: 0.0, 8: 0.0}, 0.0, 1 / 7), ({7: 0.9, 8: 0.0}, 0.0, 0.0)],
    ids=["both compute", "none does", "one does, and nobody knows which"],
)
def test_instances_of_mig_count_as_their_part_of_a_gpu(
    tensor: Mapping[int, float], useful: float, idle: float
) -> None:
    stage = Stage(cluster(spines=1, leaves=1, nodes=1))
    (role,) = job("j").roles
    stage.submit(replace(job("j"), roles=(replace(role, shape=Shape(mig="1g.10gb")),)))
    stage.started("j")
    rounds = Rounds(stage)
    rounds.look(cut(tensor), rounds=1 + int(REPORT_S / 15))
    assert rounds.amounts() == pytest.approx((useful * REPORT_S, idle * REPORT_S), abs=1e-3)
