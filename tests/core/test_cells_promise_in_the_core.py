"""What cells promise, through the whole scheduler: no job ends later than on a private cluster of its queue's cells.

Stopping takes no time here, so the grace period is 0 and the promise exact. Nobody saves checkpoints: a guest that has
to leave loses all that it did.
"""

from random import Random

import pytest

from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster, Node
from gantree.policy.rules import LOOSE, Backfill, Policy, QueueRule
from gantree.sim.run import simulate
from gantree.testing.builders import cluster, machine

LEAVES, NODES, GPUS = 2, 2, 4
QUEUES = ("a", "b", "c")
PUBLIC = "public"


def owners_of_cells(lots: Random) -> tuple[QueueRule, ...]:
    """Queues whose cells all fit: leaves, nodes and GPUs are dealt out of what is left; one queue owns nothing."""
    nodes, leaves_left, rules = LEAVES * NODES, LEAVES, []
    for path in QUEUES:
        leaves = lots.randint(0, min(1, leaves_left))
        nodes -= leaves * NODES
        whole = lots.randint(0, min(2, nodes))
        nodes -= whole
        single = lots.randint(0, min(3, nodes * GPUS))
        nodes -= -(-single // GPUS)
        leaves_left = min(leaves_left - leaves, nodes // NODES)
        rules.append(QueueRule(path, cells=(("leaf", leaves), ("node", whole), (LOOSE, single))))
    return (*rules, QueueRule(PUBLIC))


def private_cluster(rule: QueueRule) -> Cluster | None:
    """A leaf for each leaf and for each node of a queue's cells; each loose GPU is a node, and a leaf, of its own."""
    whole, single = machine(GPUS, name="whole"), machine(1, name="single")
    nodes: list[Node] = []
    for tier, count in rule.cells:
        for number in range(count):
            at = ("s0", f"{tier}{number}")
            kind = single.name if tier == LOOSE else whole.name
            for _ in range(NODES if tier == "leaf" else 1):
                nodes.append(Node(f"n{len(nodes)}", kind, at))
    if not nodes:
        return None
    machines = {each.name: each for each in (whole, single)}
    return Cluster("private", ("spine", "leaf", "node"), machines, tuple(nodes))


def workload(lots: Random) -> list[TraceJob]:
    """Jobs in order of arrival; those of one queue have members of one size."""
    size = {queue: lots.choice([1, 2, 4]) for queue in (*QUEUES, PUBLIC)}
    queues = [lots.choice((*QUEUES, PUBLIC)) for _ in range(lots.randint(3, 14))]
    times = sorted(lots.randint(0, 8) for _ in queues)
    return [
        TraceJob(
            f"j{number}",
            float(at_s),
            float(lots.randint(1, 9)),
            lots.randint(1, 3),
            size[queue],
            queue=queue,
        )
        for number, (queue, at_s) in enumerate(zip(queues, times, strict=True))
    ]


def policy_of(rules: tuple[QueueRule, ...]) -> Policy:
    return Policy(
        order=("priority", "arrival"),
        queues=rules,
        backfill=Backfill("none"),
        min_run_s=1000.0,
        evictions_per_day=0,
        elastic=False,
    )


EVICTED_AND_STOPPING = (3025, 5647)
"""Seeds in which a later job would take the place at home of a gang that was evicted and still stops."""


@pytest.mark.parametrize("seed", (*range(40), *EVICTED_AND_STOPPING))
def test_no_job_ends_later_than_on_a_private_cluster_of_its_queues_cells(seed: int) -> None:
    lots = Random(seed)
    rules, jobs = owners_of_cells(lots), workload(lots)
    shared = simulate(cluster(leaves=LEAVES, nodes=NODES, gpus=GPUS), jobs, policy_of(rules))
    of_job = {row.job_id: row for row in shared.jobs}
    for rule in rules:
        alone, mine = private_cluster(rule), [row for row in jobs if row.queue == rule.path]
        if alone is None or not mine:
            continue
        private = simulate(alone, mine, policy_of((QueueRule(rule.path),)))
        loose = dict(rule.cells)[LOOSE]
        for row in private.jobs:
            if row.first_start_s is None or row.end_s is None:
                if loose and row.gpus > row.members:
                    break  # here it may be at home: by luck, on loose GPUs that share a node
                continue
            here = of_job[row.job_id]
            assert here.first_start_s is not None and here.end_s is not None, row.job_id
            assert here.first_start_s <= row.first_start_s, row.job_id
            assert here.end_s <= row.end_s, (row.job_id, here.end_s, row.end_s)
