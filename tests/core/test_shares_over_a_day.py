"""Fair shares through the whole scheduler: over a day with work always waiting, everybody gets what is due."""

from random import Random

import pytest

from gantree.formats.traces import TraceJob
from gantree.policy.rules import Backfill, Policy, QueueRule
from gantree.sim.cluster import Overheads
from gantree.sim.run import Simulation
from gantree.sim.workload import job_id
from gantree.testing.builders import cluster

DAY_S = 86_400.0
HOUR_S = 3_600.0
GPUS = 64
QUEUES = (
    QueueRule("a", weight=3.0),
    QueueRule("a/x", weight=1.0),
    QueueRule("a/y", weight=2.0),
    QueueRule("b", weight=1.0),
)
DUE = {("a/x", "ann"): 1 / 4, ("a/y", "ann"): 1 / 2, ("b", "ann"): 1 / 8, ("b", "bob"): 1 / 8}
"""Part of the cluster by queue and user: the users of b share it evenly."""


def backlog(lots: Random) -> list[TraceJob]:
    """More work for each than is due to it in a day, all there from the first moment, in any order."""
    rows: list[tuple[str, str, float, int]] = []
    for (queue, user), due in DUE.items():
        left_gpu_s = 1.3 * due * GPUS * DAY_S
        while left_gpu_s > 0:
            duration_s, gpus = float(lots.randint(1800, 4 * 3600)), lots.choice([1, 2, 4])
            rows.append((queue, user, duration_s, gpus))
            left_gpu_s -= duration_s * gpus
    lots.shuffle(rows)
    return [
        TraceJob(str(number), 0.0, duration_s, 1, gpus, queue=queue, user=user)
        for number, (queue, user, duration_s, gpus) in enumerate(rows)
    ]


@pytest.mark.parametrize(("half_life_s", "seed"), [(None, 1), (HOUR_S, 2), (7 * DAY_S, 3)])
def test_shares_come_within_two_percent_of_the_cluster_of_the_weights(
    half_life_s: float | None, seed: int
) -> None:
    policy = Policy(
        order=("share", "priority", "arrival"),
        half_life_s=half_life_s,
        share_users=True,
        queues=QUEUES,
        backfill=Backfill("any"),
    )
    trace = backlog(Random(seed))
    site = cluster(leaves=4, nodes=GPUS // 32, gpus=8)
    run = Simulation(site, trace, policy, Overheads())
    while run.now < DAY_S and run.step():
        pass
    used = dict.fromkeys(DUE, 0.0)
    for row in trace:
        state = run.scheduler.ledger.jobs[job_id(row)]
        if state.started_at is not None:
            until_s = min(DAY_S, DAY_S if state.ended_at is None else state.ended_at)
            held_s = max(0.0, until_s - state.started_at)
            used[row.queue, row.user] += held_s * row.gpus_per_member / (GPUS * DAY_S)
    assert sum(used.values()) > 0.97, "there was always work"
    for who, due in DUE.items():
        assert abs(used[who] - due) <= 0.02, (who, used[who], due)
