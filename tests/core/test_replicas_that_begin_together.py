"""What it costs that replicas which begin together preempt one by one: the figure of docs/services.md."""

from collections import Counter
from collections.abc import Collection
from itertools import combinations
from random import Random

import pytest

from gantree.core.ledger.state import JobState
from gantree.model.events import ServiceSubmitted
from gantree.model.facts import GangPreempted
from gantree.model.phases import Phase
from gantree.model.services import ReplicaCount, ServiceSpec
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

CASES, NODES, GPUS, MOST_GANGS = 100, 8, 8, 3


def full_cluster(draw: Random) -> Stage:
    """Gangs of 2 to 32 GPUs, begun at different times, on all that they fit."""
    stage = Stage(cluster(leaves=2, nodes=NODES // 2), Policy())
    for number in range(40):
        name, members = f"t{number}", draw.choice([1, 1, 2, 4])
        stage.submit(job(name, members=members, gpus=draw.choice([2, 4, 8]), priority="research"))
        if stage.phase(name) is Phase.STARTING:
            stage.started(name)
            stage.now += draw.uniform(0, 600)
        else:
            stage.cancel(name)
    return stage


class Question:
    """Replicas that begin on a full cluster: what each gang loses, and which gangs would have been enough."""

    def __init__(self, stage: Stage, replicas: int, gpus: int) -> None:
        ledger = stage.scheduler.ledger
        gangs = ledger.holding.values()
        self.replicas, self.gpus = replicas, gpus
        self.loss = {
            each.job: (each.at_stake_s(stage.now) + ledger.policy.restart_s) * each.gpus
            for each in gangs
        }
        self.held = {each.job: _gpus_by_node(each) for each in gangs}
        used = sum(self.held.values(), Counter[str]())
        self.free = {f"n{number}": GPUS - used[f"n{number}"] for number in range(NODES)}

    def is_enough(self, gone: Collection[str]) -> bool:
        """Whether all replicas fit once these gangs are gone."""
        room = Counter(self.free) + sum((self.held[each] for each in gone), Counter[str]())
        return sum(free // self.gpus for free in room.values()) >= self.replicas

    def least_loss(self) -> float:
        """Of the best set of up to MOST_GANGS gangs."""
        sets = (each for size in range(MOST_GANGS + 1) for each in combinations(self.loss, size))
        return min(sum(self.loss[job] for job in each) for each in sets if self.is_enough(each))


def _gpus_by_node(state: JobState) -> Counter[str]:
    assert state.placement is not None
    return Counter({node: len(gpus) for node, gpus in state.placement.gpus_of_node().items()})


def losses(seed: int) -> tuple[float, float]:
    """What the gangs lose that are stopped for replicas, and what they would lose at least."""
    draw = Random(seed)
    stage = full_cluster(draw)
    replicas, gpus = draw.choice([2, 3, 4]), draw.choice([1, 2, 4])
    question = Question(stage, replicas, gpus)
    template = job("chat", gpus=gpus, priority="serving")
    spec = ServiceSpec("chat", template, ReplicaCount(replicas, replicas))
    stage.tell(ServiceSubmitted, service="chat", spec=spec)
    for _ in range(5):
        stage.wait(0.0)
    stopped = {fact.job for fact in stage.facts if isinstance(fact, GangPreempted)}
    return sum(question.loss[each] for each in stopped), question.least_loss()


@pytest.mark.figures
def test_one_by_one_they_cost_a_little_more_than_together() -> None:
    found = [losses(seed) for seed in range(CASES)]
    lost, least = (sum(each) for each in zip(*found, strict=True))
    best = sum(one <= 1.0001 * other for one, other in found)
    print(f"lost {lost / least - 1:.1%} more than the least; the least in {best} of {CASES}")
    assert 1.0 <= lost / least < 1.15 and best > CASES / 2
