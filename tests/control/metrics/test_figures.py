"""The figures of a ledger: each GPU once, fragmentation as documented, queues by name; gates asked within a budget."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.control.metrics.figures import (
    OTHER_QUEUES,
    QUEUES_BY_NAME,
    USES,
    Figures,
    QueueFigures,
    figures_of,
)
from gantree.control.metrics.gates import GateCounts
from gantree.control.metrics.ledger_metrics import LedgerCollector, LedgerSample
from gantree.core.explain.explain import gate_now, why
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import LinkId
from gantree.model.events import (
    HealthObserved,
    HoldRequested,
    LinkHealthObserved,
    LinkRestoreRequested,
    NodeLost,
    UncordonRequested,
)
from gantree.model.jobs import Job
from gantree.policy.rules import Budget, Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.topology.hardware.masks import gpus_of
from support.examples import examples


class SteadyTime:
    """Advances by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def in_queue(spec: Job, queue: str) -> Job:
    return replace(spec, queue=queue)


def figures(stage: Stage) -> Figures:
    return figures_of(stage.scheduler.ledger, stage.now)


def gpus_by_hand(ledger: Ledger) -> Counter[str]:
    """Each GPU looked at alone."""
    rooms, uses = ledger.rooms(), Counter(dict.fromkeys(USES, 0))
    for node in rooms.fabric.nodes:
        for gpu in range(rooms.fabric.cluster.machines[node.machine].gpus):
            holder = rooms.holder_of_gpu(node.name, gpu)
            if holder is None:
                uses["free" if rooms.usable(node.name) else "unusable"] += 1
            elif holder.startswith(("claim:", "reserve:")):
                uses["reserved"] += 1
            else:
                uses["site" if holder.startswith("site:") else "job"] += 1
    return uses


def torn_by_hand(ledger: Ledger, tier: int) -> tuple[int, float]:
    rooms, free_of_domain = ledger.rooms(), Counter[int]()
    usable_of_domain = Counter[int]()
    for number, node in enumerate(rooms.fabric.nodes):
        domain = int(rooms.fabric.domain_of_node[tier][number])
        if rooms.usable(node.name):
            free_of_domain[domain] += len(gpus_of(rooms.free_mask_of_node[number]))
            usable_of_domain[domain] += rooms.fabric.cluster.machines[node.machine].gpus
    free = sum(free_of_domain.values())
    torn = sum(n for domain, n in free_of_domain.items() if n < usable_of_domain[domain])
    return max(free_of_domain.values(), default=0), torn / free if free else 0.0


def test_an_idle_cluster_is_free_and_whole() -> None:
    found = figures(Stage(cluster(leaves=2, nodes=2)))
    assert found.gpus == {"job": 0, "reserved": 0, "site": 0, "free": 32, "unusable": 0}
    assert found.utilisation == 0.0
    assert {name: (tier.largest, tier.torn) for name, tier in found.tiers.items()} == {
        "spine": (32, 0.0),
        "leaf": (16, 0.0),
        "node": (8, 0.0),
    }


def test_fragmentation_is_the_share_of_free_gpus_in_domains_partly_held() -> None:
    stage = Stage(cluster(leaves=2, nodes=2))
    stage.submit(
        job("a", gpus=6)
    )  # 2 free beside it, 8 on the other node of the leaf, 16 elsewhere
    found = figures(stage)
    assert found.gpus["job"] == 6
    assert found.utilisation == 6 / 32
    torn = {name: tier.torn for name, tier in found.tiers.items()}
    assert torn == {"spine": 1.0, "leaf": 10 / 26, "node": 2 / 26}
    assert found.tiers["leaf"].largest == 16


def test_a_lost_node_is_unusable_and_counts_in_no_utilisation() -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(job("a", gpus=8))
    (node,) = stage.state("a").placement.nodes  # type: ignore[union-attr]  # it holds a place
    stage.tell(NodeLost, node={"n0": "n1", "n1": "n0"}[node])
    found = figures(stage)
    assert found.gpus == {"job": 8, "reserved": 0, "site": 0, "free": 0, "unusable": 8}
    assert found.utilisation == 1.0
    assert found.tiers["node"].largest == 0


def test_queues_have_their_depth_age_gangs_and_gpus() -> None:
    rules = (QueueRule("research"), QueueRule("serving"))
    stage = Stage(cluster(leaves=1, nodes=1), Policy(queues=rules))
    stage.submit(in_queue(job("a", gpus=6), "research"))
    stage.wait(10)
    stage.submit(in_queue(job("b", gpus=4), "research"), in_queue(job("c", gpus=4), "serving"))
    stage.wait(5)
    assert figures(stage).queues == {
        "research": QueueFigures(waiting=1, oldest_s=5.0, running=1, gpus=6.0),
        "serving": QueueFigures(waiting=1, oldest_s=5.0, running=0, gpus=0.0),
    }


def test_names_that_no_policy_knows_are_told_apart_up_to_a_hundred() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(*(in_queue(job(f"j{n}", gpus=8), f"q{n}") for n in range(QUEUES_BY_NAME + 5)))
    found = figures(stage).queues
    assert len(found) == QUEUES_BY_NAME + 1
    assert sum(queue.waiting + queue.running for queue in found.values()) == QUEUES_BY_NAME + 5
    assert found[OTHER_QUEUES].waiting + found[OTHER_QUEUES].running == 5


def test_starts_that_were_told_are_promised_or_estimated() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("a", gpus=8, time_limit_s=3600))
    stage.started("a")
    stage.submit(job("b", gpus=8, time_limit_s=60))
    reservations = stage.scheduler.ledger.reservations
    assert figures(stage).starts == {"promised": 1, "estimated": 0}
    assert reservations["b"].promised


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 4, 6, 8])), max_size=8),
    st.sets(st.integers(0, 5), max_size=2),
)
def test_every_figure_equals_a_count_by_hand(sizes: list[tuple[int, int]], lost: set[int]) -> None:
    stage = Stage(cluster(leaves=2, nodes=3))
    for node in sorted(lost):
        stage.tell(NodeLost, node=f"n{node}")
    stage.submit(*(job(f"j{n}", members, gpus) for n, (members, gpus) in enumerate(sizes)))
    ledger, found = stage.scheduler.ledger, figures(stage)
    assert found.gpus == gpus_by_hand(ledger)
    for tier, name in enumerate(ledger.rooms().fabric.tiers[1:], start=1):
        assert (found.tiers[name].largest, found.tiers[name].torn) == pytest.approx(
            torn_by_hand(ledger, tier)
        )
    assert sum(queue.waiting for queue in found.queues.values()) == len(ledger.waiting)


def crowded() -> Stage:
    """Three shapes that wait for room, one job that is held by hand."""
    stage = Stage(cluster(leaves=1, nodes=1), Policy())
    stage.submit(job("a", gpus=8))
    stage.submit(*(job(f"{gpus}-{n}", gpus=gpus) for gpus in (2, 4, 8) for n in range(3)))
    stage.tell(HoldRequested, job="8-2")
    return stage


def test_gates_count_every_job_that_waits_once() -> None:
    stage, gates = crowded(), GateCounts(SteadyTime())
    gates.update(stage.scheduler.ledger, stage.now, at_most_s=1000)
    ledger, by_hand = stage.scheduler.ledger, Counter[str]()
    for position in (each for line in ledger.waiting for each in ledger.waiting[line]):
        refused = why(ledger, position.job, stage.now).refused
        by_hand[refused.gate.value if refused else "other"] += 1
    assert sum(gates.now.values()) == 9
    assert +gates.now == by_hand
    assert gates.now["other"] == 1


def test_gates_ask_no_longer_than_they_may_and_come_to_every_line() -> None:
    stage, gates = crowded(), GateCounts(SteadyTime())
    unasked = []
    for _ in range(3):
        gates.update(stage.scheduler.ledger, stage.now, at_most_s=0)
        unasked.append(gates.now["unasked"])
    assert unasked == sorted(unasked, reverse=True)
    assert unasked[0] > 0
    assert unasked[-1] == 0
    assert sum(gates.now.values()) == 9


def test_a_refusal_is_counted_when_a_job_comes_to_a_gate_and_not_while_it_stays() -> None:
    stage, gates = crowded(), GateCounts(SteadyTime())
    for _ in range(3):
        gates.update(stage.scheduler.ledger, stage.now, at_most_s=1000)
    assert sum(gates.total.values()) == 8
    stage.submit(job("2-3", gpus=2))
    gates.update(stage.scheduler.ledger, stage.now, at_most_s=1000)
    assert sum(gates.total.values()) == 9


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([1, 4, 8]), st.sampled_from([100, 300])),
        min_size=3,
        max_size=9,
    )
)
def test_the_gate_that_is_counted_is_the_one_that_a_job_is_told(
    jobs: list[tuple[int, int, int]],
) -> None:
    rules = (QueueRule("small", limit={"gpus": 8.0}), QueueRule("large"))
    stage = Stage(cluster(leaves=2, nodes=2), Policy(queues=rules))
    for number, (members, gpus, priority) in enumerate(jobs):
        spec = job(
            f"j{number}", members, gpus, priority=priority, time_limit_s=600.0 * (number + 1)
        )
        stage.submit(in_queue(spec, "small" if number % 3 == 0 else "large"))
        stage.wait(1)
    ledger = stage.scheduler.ledger
    for state in ledger.jobs.values():
        refused = why(ledger, state.job, stage.now).refused
        assert gate_now(ledger, state, stage.now) == (refused.gate if refused else None)


def test_unhealthy_nodes_are_out_of_use_kept_or_overruled() -> None:
    stage = Stage(cluster(leaves=1, nodes=4))
    for node, kept in (("n0", ""), ("n1", "2 nodes are out already"), ("n2", "")):
        stage.tell(HealthObserved, node=node, source="dcgm", reason="XID 79", kept=kept)
    stage.tell(UncordonRequested, node="n2")
    assert figures(stage).unhealthy_nodes == {"out": 1, "kept": 1, "overruled": 1}


def test_links_are_worn_busy_or_overruled() -> None:
    stage = Stage(cluster(leaves=3, nodes=2))
    for leaf, health, load in (("l0", 0.5, 0.7), ("l1", 1.0, 0.7), ("l2", 0.5, 0.0)):
        link = LinkId("leaf", f"s0/{leaf}")
        stage.tell(LinkHealthObserved, link=link, source="ufm", health=health, load=load)
    stage.tell(LinkRestoreRequested, link=LinkId("leaf", "s0/l2"))
    assert figures(stage).links == {"worn": 1, "busy": 1, "overruled": 1}


def test_budgets_have_their_used_part_and_their_forecast() -> None:
    budget = Budget("day", 48.0, "GPU-hours", 3600.0, {}, 1.0)
    stage = Stage(cluster(leaves=1, nodes=1), Policy(queues=(QueueRule("a", budgets=(budget,)),)))
    stage.submit(replace(job("one", gpus=8), queue="a"))
    stage.wait(3 * 3600.0)
    collector = LedgerCollector()
    figures = figures_of(stage.scheduler.ledger, stage.now)
    collector.sample = LedgerSample(figures, stage.now, 0.0, 1, 0, 0, 0, {}, {}, {}, {})
    told = {
        sample.name: (sample.labels, sample.value)
        for metric in collector.collect()
        for sample in metric.samples
        if sample.name.startswith("gantree_budget")
    }
    of = {"queue": "a", "period": "day"}
    assert told == {
        "gantree_budget_used_ratio": (of, 0.5),
        "gantree_budget_forecast_ratio": (of, 4.0),
        "gantree_budget_closed": (of, 0.0),
    }
