"""Traces with parts of GPUs, end to end: MIG instances and shares are placed and counted as parts."""

import csv

import pytest

from gantree.formats import read_cluster
from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.sim.files import jobs_csv
from gantree.sim.run import simulate

SITE = """
name: parts
tiers: [leaf, node]
nodes:
  - {names: cut, machine: dgx-h100, at: {leaf: l0}, mig: {gpus: [0]}}
  - {names: shared, machine: dgx-h100, at: {leaf: l0}, share: {modes: [mps]}}
"""
TRACE = [
    TraceJob("m", 0, 100, 2, 0, mig="3g.40gb"),
    TraceJob("s", 0, 100, 2, 0, gpu_share=0.25, gpu_memory_GiB=10),
    TraceJob("w", 0, 100, 1, 8),
]


def test_parts_of_gpus_are_placed_and_counted_as_parts() -> None:
    result = simulate(read_cluster(SITE, "site"), TRACE, PRESETS["fifo"])
    assert [row.finished for row in result.jobs] == [True, True, True]
    assert [row.gpus for row in result.jobs] == pytest.approx([6 / 7, 0.5, 8])
    assert result.samples[0].held_gpus == pytest.approx(6 / 7 + 0.5 + 8)
    assert result.samples[-1].held_gpus == 0
    expected = pytest.approx((6 / 7 + 0.5 + 8) / 16, abs=1e-6)
    assert result.summary()["gpu_utilisation"] == expected


def test_the_row_of_a_job_says_which_part_it_had() -> None:
    result = simulate(read_cluster(SITE, "site"), TRACE, PRESETS["fifo"])
    rows = list(csv.DictReader(jobs_csv(result).splitlines()))
    assert [row["gpus"] for row in rows] == ["0.857143", "0.5", "8"]
    assert rows[0]["placement"] == "cut:0/3g.40gb,1/3g.40gb"
    assert rows[1]["placement"].endswith("/0.25")
