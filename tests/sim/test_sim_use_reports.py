"""Rows that say how busy their GPUs are: what the simulator reports comes out in the usage, to the second."""

from collections import defaultdict
from dataclasses import replace

import pytest

from gantree.core.ledger.usage import Used, life_of
from gantree.formats.traces import TraceJob
from gantree.policy.rules import Policy
from gantree.sim.cluster import Overheads
from gantree.sim.run import Simulation
from gantree.testing.builders import cluster

ROWS = [
    TraceJob("half", 10.0, 1000.0, 1, 4, user="ann", busy=0.5),
    TraceJob("none", 0.0, 100.0, 2, 8, user="bob", busy=0.0),
    TraceJob("silent", 0.0, 500.0, 1, 2, user="eve"),
    TraceJob("stopped", 200.0, 700.0, 1, 8, user="joe", busy=1.0, checkpoint_s=60.0),
    TraceJob("urgent", 400.0, 50.0, 2, 8, user="sue", priority="serving", busy=1.0),
]


def lived(rows: list[TraceJob], start_s: float) -> Simulation:
    """A run on two nodes of 8 GPUs, to its end."""
    there = Simulation(cluster(spines=1, leaves=1, nodes=2), rows, Policy(), Overheads(start_s))
    while there.step():
        pass
    return there


@pytest.mark.parametrize("start_s", [0.0, 30.0])
def test_what_is_reported_is_what_gangs_ran_by_how_busy_they_were(start_s: float) -> None:
    there, found = lived(ROWS, start_s), defaultdict[str, Used](Used)
    for state in there.scheduler.ledger.jobs.values():
        found[state.spec.user] = sum(life_of(state, there.now).values(), found[state.spec.user])
    gpu_s = {user: (used.useful_gpu_s, used.idle_gpu_s) for user, used in found.items()}
    assert gpu_s["eve"] == (0.0, 0.0)
    assert gpu_s["bob"] == pytest.approx((0.0, 1600.0))
    assert gpu_s["sue"] == pytest.approx((800.0, 0.0))
    assert gpu_s["ann"][0] == pytest.approx(gpu_s["ann"][1]) and gpu_s["ann"][0] >= 2000.0
    assert gpu_s["joe"][0] >= 5600.0 and gpu_s["joe"][1] == 0.0


def test_reports_change_nothing_in_a_run_whose_policy_does_not_ask_for_them() -> None:
    silent = [replace(row, busy=None) for row in ROWS]
    ends = [[row.end_s for row in lived(rows, 0.0).result().jobs] for rows in (ROWS, silent)]
    assert ends[0] == ends[1]
