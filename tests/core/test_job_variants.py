"""Jobs with several variants: which GPU model and market they get, by their choice, their queue and the free room."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.core.alternatives import alternatives
from gantree.core.cycle.growth import SETTLED_S
from gantree.core.explain.explain import when, why
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.jobs import Checkpoint, Elastic, Job, Role, Shape, Transformer
from gantree.model.phases import Phase
from gantree.model.verdicts import Gate
from gantree.policy.rules import Policy, Preemption, QueueRule
from gantree.testing.stage import Stage

A, H, T = "A100-80GB", "H100-80GB", "T4-16GB"
SPEEDS = ((A, 0.5), (H, 1.0), (T, 0.05))
HOUR_S = 3600.0
MODEL = Transformer(7e9, layers=32, hidden=4096, sequence=4096, batch=64, sharded="optimizer")
BY_ARRIVAL = Policy(order=("priority", "share", "arrival"), preemption=Preemption())


def site(*nodes: tuple[str, str, float | None]) -> Cluster:
    """Nodes of eight GPUs: (name, model, how often a day it is taken back, None for never)."""
    machines = {model: Machine(model, 8, model) for _, model, _ in nodes}
    return Cluster(
        "site",
        ("node",),
        machines,
        tuple(Node(name, model, spot=spot) for name, model, spot in nodes),
    )


def asks(
    name: str = "j", members: int = 1, models: tuple[str, ...] = (A, H), **fields: object
) -> Job:
    """Members of eight GPUs of any of these models."""
    spec = Job(name, (Role("w", members, Shape(gpus=8, models=models)),), expected_s=HOUR_S)
    return replace(spec, **fields)  # type: ignore[arg-type]  # fields of a job, as the test writes them


def nodes_of(cluster: Cluster, *jobs: Job, policy: Policy = BY_ARRIVAL) -> list[list[str]]:
    stage = Stage(cluster, policy)
    for spec in jobs:
        stage.submit(spec)
    return [stage.nodes(spec.name) for spec in jobs]


BOTH = site(("a0", A, None), ("h0", H, None))


@pytest.mark.parametrize(("choose", "node"), [("time", "h0"), ("order", "a0")])
def test_the_soonest_end_is_on_the_fastest_model_and_the_order_is_as_listed(
    choose: str, node: str
) -> None:
    assert nodes_of(BOTH, asks(speeds=SPEEDS, choose=choose)) == [[node]]


def test_the_cheapest_variant_is_not_always_the_soonest() -> None:
    cheap = nodes_of(BOTH, asks(speeds=((A, 0.9), (H, 1.0)), choose="cost"))
    soon = nodes_of(BOTH, asks(speeds=((A, 0.9), (H, 1.0)), choose="time"))
    assert (cheap, soon) == ([["a0"]], [["h0"]])


def test_where_the_best_variant_has_no_room_the_next_one_is_taken() -> None:
    first, second = (asks(name, speeds=SPEEDS, choose="time") for name in ("first", "second"))
    assert nodes_of(BOTH, first, second) == [["h0"], ["a0"]]


def test_no_variant_within_the_budget_is_a_limit_told_in_words() -> None:
    stage = Stage(BOTH, BY_ARRIVAL)
    stage.submit(asks(speeds=SPEEDS, choose="cost", budget_USD=0.5))
    told = why(stage.scheduler.ledger, "j", stage.now)
    assert told.refused is not None and told.refused.gate is Gate.LIMIT
    assert "the budget is $0.50" in told.sentence
    assert stage.phase("j") is Phase.PENDING


def test_a_model_that_fits_nowhere_never_fits() -> None:
    stage = Stage(site(("t0", T, None)), BY_ARRIVAL)
    stage.submit(asks(models=(), trains=replace(MODEL, parameters=400e9)))
    told = why(stage.scheduler.ledger, "j", stage.now)
    assert told.refused is not None
    assert (told.refused.gate, told.refused.never) == (Gate.SHAPE, True)


@pytest.mark.parametrize(
    "closed",
    [
        {"choose": "cost", "budget_USD": 0.5, "speeds": SPEEDS},
        {"trains": replace(MODEL, parameters=400e9)},
    ],
)
def test_no_room_is_kept_for_a_job_to_which_no_variant_is_open(closed: dict[str, Any]) -> None:
    stage = Stage(site(("h0", H, None)), BY_ARRIVAL)
    stage.submit(asks("runs", models=(H,), time_limit_s=HOUR_S))
    stage.started("runs")
    stage.submit(asks("never", models=(H,), **closed))
    assert "never" not in stage.scheduler.ledger.reservations
    assert when(stage.scheduler.ledger, "never", stage.now) is None
    stage.submit(asks("next", models=(H,)))
    stage.ended("runs")
    assert stage.nodes("next") == ["h0"]


def test_a_start_is_told_on_a_model_that_is_open_and_not_on_one_that_is_free_sooner() -> None:
    stage = Stage(site(("h0", H, None), ("t0", T, None)), BY_ARRIVAL)
    stage.submit(asks("long", models=(H,), time_limit_s=HOUR_S))
    stage.submit(asks("short", models=(T,), time_limit_s=60.0))
    stage.started("long", "short")
    stage.submit(asks("large", models=(T, H), trains=MODEL))
    reservation = stage.scheduler.ledger.reservations["large"]
    assert (list(reservation.placement.nodes), reservation.waits_for) == (["h0"], ("long",))


def test_a_model_goes_only_where_it_fits_also_beside_a_job_that_looks_alike() -> None:
    """Two jobs of one shape that train models of different size have different variants."""
    cluster = site(("t0", T, None), ("t1", T, None), ("h0", H, None))
    small = asks("small", models=(T, H), trains=replace(MODEL, parameters=1e8))
    large = asks("large", models=(T, H), trains=MODEL)
    assert nodes_of(cluster, small, large) == [["t0"], ["h0"]]


def test_room_made_for_a_job_that_chose_is_taken_in_the_variant_that_it_chose() -> None:
    cluster = site(("h0", H, None), ("t0", T, None))
    stage = Stage(cluster, BY_ARRIVAL)
    stage.submit(asks("low", models=(H,), priority="research"))
    stage.submit(asks("small", models=(T,), priority="production"))
    stage.started("low", "small")
    stage.submit(asks("large", models=(T, H), trains=MODEL, priority="serving"))
    assert stage.phase("low") is Phase.STOPPING
    stage.ended("small")
    assert stage.nodes("large") == []
    stage.ended("low", exit_code=143)
    assert stage.nodes("large") == ["h0"]


def test_a_job_is_on_spot_nodes_only_where_it_says_so_and_saves() -> None:
    cluster = site(("s0", H, 0.5))
    saves = Checkpoint(every_s=600.0)
    assert nodes_of(cluster, asks(models=(H,))) == [[]]
    assert nodes_of(cluster, asks(models=(H,), spot=True)) == [[]]
    assert nodes_of(cluster, asks(models=(H,), checkpoint=saves)) == [[]]
    assert nodes_of(cluster, asks(models=(H,), spot=True, checkpoint=saves)) == [["s0"]]


def test_a_requeued_job_chooses_anew_as_it_was_written() -> None:
    stage = Stage(BOTH, BY_ARRIVAL)
    spec = asks(speeds=SPEEDS, choose="time")
    stage.submit(spec)
    stage.started("j")
    stage.submit(asks("urgent", models=(H,), priority="serving"))
    stage.ended("j", exit_code=143)
    assert (stage.nodes("urgent"), stage.nodes("j")) == (["h0"], ["a0"])
    assert stage.state("j").spec == spec


# ----- quotas by model


def queues(**owned: dict[str, float]) -> Policy:
    """Queues with limits by model: the one that is named limits its own."""
    rules = tuple(QueueRule(name, limit=limit) for name, limit in owned.items())
    return replace(BY_ARRIVAL, queues=rules)


def test_where_a_quota_is_used_up_on_one_model_the_next_listed_one_is_taken() -> None:
    policy = queues(default={f"gpus/{A}": 0, f"gpus/{H}": 8})
    assert nodes_of(BOTH, asks(), policy=policy) == [["h0"]]


def test_a_job_of_any_model_is_placed_on_one_that_its_queue_admits() -> None:
    policy = queues(default={f"gpus/{A}": 0})
    assert nodes_of(BOTH, asks(models=()), policy=policy) == [["h0"]]


@pytest.mark.parametrize(("owed", "node"), [(A, "a0"), (H, "h0")])
def test_of_models_that_are_equally_good_the_one_owed_to_the_queue_goes_first(
    owed: str, node: str
) -> None:
    other = {A: H, H: A}[owed]
    policy = replace(
        BY_ARRIVAL,
        queues=(
            QueueRule("default", guarantee={f"gpus/{owed}": 8}),
            QueueRule("lender", guarantee={f"gpus/{other}": 8}),
        ),
    )
    assert nodes_of(BOTH, asks(models=()), policy=policy) == [[node]]
    assert nodes_of(BOTH, asks(models=(A, H)), policy=policy) == [["a0"]]


def test_a_gang_is_on_several_models_only_where_its_queue_admits_all_of_it_on_each() -> None:
    for most, nodes in ((16, ["a0", "h0"]), (8, [])):
        policy = queues(default={f"gpus/{A}": most, f"gpus/{H}": most})
        assert nodes_of(BOTH, asks(members=2, models=()), policy=policy) == [nodes]


def test_two_variants_over_their_quota_are_refused_until_something_is_given_back() -> None:
    policy = queues(default={f"gpus/{A}": 8, f"gpus/{H}": 8})
    cluster = site(("a0", A, None), ("a1", A, None), ("h0", H, None), ("h1", H, None))
    stage = Stage(cluster, policy)
    for name in ("first", "second", "third"):
        stage.submit(asks(name, speeds=SPEEDS, choose="time"))
    stage.started("first", "second")
    assert [stage.nodes(name) for name in ("first", "second", "third")] == [["h0"], ["a0"], []]
    stage.ended("second")
    assert stage.nodes("third")[0].startswith("a")


# ----- elastic and choosing


def test_a_gang_that_chose_grows_on_its_own_model_only() -> None:
    cluster = site(("h0", H, None), ("t0", T, None), ("t1", T, None))
    spec = asks(models=(T, H), speeds=SPEEDS, choose="time", elastic=Elastic(1, 2), expected_s=None)
    stage = Stage(cluster, BY_ARRIVAL)
    stage.submit(spec)
    assert stage.nodes("j") == ["h0"]
    stage.started("j")
    stage.wait(SETTLED_S)
    assert stage.phase("j") is Phase.RUNNING


def test_a_variant_is_compared_with_the_best_place_of_the_first_variant_not_of_any_model() -> None:
    """The job would have the H100s: it communicates as fast there as at its best place, not faster."""
    stage = Stage(site(("a0", A, None), ("h0", H, None)), BY_ARRIVAL)
    stage.submit(asks("j", speeds=SPEEDS, choose="time", held=True))
    as_is, on_a = alternatives(stage.scheduler.ledger, "j", ((("gpu", A),),), 0.0)
    assert as_is.placement is not None and list(as_is.placement.nodes) == ["h0"]
    assert as_is.comm_ratio == 1
    assert on_a.comm_ratio is not None and on_a.comm_ratio > 1


def test_a_shorter_limit_brings_a_job_within_its_budget() -> None:
    """Eight H100s cost 55.04 USD an hour: five hours are too dear, one is not."""
    stage = Stage(site(("h0", H, None)), BY_ARRIVAL)
    stage.submit(asks("j", models=(H,), expected_s=5 * HOUR_S, budget_USD=100.0))
    changes = ((("time_limit", HOUR_S),), (("time_limit", 2 * HOUR_S),))
    as_is, one_hour, two_hours = alternatives(stage.scheduler.ledger, "j", changes, 0.0)
    assert (as_is.now, one_hour.now, two_hours.now) == (False, True, False)
    assert one_hour.cost_USD == pytest.approx(55.04)
