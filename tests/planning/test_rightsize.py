"""Ways to run a job: which GPU model, which market, in which order, and what closes them."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import ANY_MARKET, MARKET_LABEL, ON_DEMAND, SPOT, Cluster, Machine, Node
from gantree.model.jobs import Checkpoint, Elastic, Job, Role, Shape, Transformer
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.choice.search import place
from gantree.planning.rightsizing.offers import stretch
from gantree.planning.rightsizing.ranking import Option, options, refused
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import LIST_MARKETS, PriceList, Quote
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.traffic.footprint import LEANEST, fits, gpu_bytes

HOUR_S, DAY_S = 3600.0, 86400.0
A, H, T = "A100-80GB", "H100-80GB", "T4-16GB"
MODEL = Transformer(7e9, layers=32, hidden=4096, sequence=4096, batch=256, sharded="parameters")


def prices(**USD_per_hour: tuple[float | None, float | None]) -> PriceList:
    """Prices by first letter of a model: on demand, spot."""
    names = {"A": A, "H": H, "T": T}
    quotes = [
        Quote(names[letter], market, USD, "2026-11-01", "test")
        for letter, pair in USD_per_hour.items()
        for market, USD in zip(LIST_MARKETS, pair, strict=True)
        if USD is not None
    ]
    return PriceList(quotes)


PRICES = prices(A=(2.0, 1.0), H=(6.0, 3.0), T=(0.5, 0.1))


def fabric(*nodes: tuple[str, float | None]) -> Fabric:
    """Nodes n0, n1... of eight GPUs each: (model, how often a day it is taken back, None for never)."""
    machines = {gpu: Machine(gpu, 8, gpu) for gpu, _ in nodes}
    of_nodes = tuple(Node(f"n{i}", gpu, spot=spot) for i, (gpu, spot) in enumerate(nodes))
    return Fabric.build(Cluster("c", ("node",), machines, of_nodes))


BOTH = fabric((A, None), (H, None), (A, 1.0), (H, 4.0))


def asking(
    members: int = 1, gpus: int = 8, models: tuple[str, ...] = (A, H), **fields: object
) -> Job:
    job = Job("j", (Role("w", members, Shape(gpus=gpus, models=models)),), expected_s=HOUR_S)
    return replace(job, **fields)  # type: ignore[arg-type]  # fields of a job, as the test writes them


def on_spot(job: Job, every_s: float | None = 900.0) -> Job:
    return replace(job, spot=True, checkpoint=Checkpoint(every_s=every_s))


def told(ways: tuple[Option, ...]) -> list[tuple[str | None, str]]:
    return [(way.model, way.market) for way in ways]


# ----- what is chosen


def test_ways_come_as_models_are_listed() -> None:
    for models in ((A, H), (H, A)):
        assert told(options(asking(models=models), BOTH, PRICES)) == [
            (model, "on_demand") for model in models
        ]


def test_the_soonest_end_is_that_of_the_fastest_model_and_the_least_money_that_of_the_best_rate() -> (
    None
):
    """H100: 3 times the price, as fast as 2 or 4 A100."""
    for speed_of_A, cheapest in ((0.5, A), (0.25, H)):
        job = asking(speeds=((A, speed_of_A), (H, 1.0)))
        by_time = options(replace(job, choose="time"), BOTH, PRICES)
        by_cost = options(replace(job, choose="cost"), BOTH, PRICES)
        assert (by_time[0].model, by_cost[0].model) == (H, cheapest)
        runs = {way.model: (way.speed, way.run_s, way.run_USD) for way in by_time}
        slow_s = HOUR_S / speed_of_A
        assert runs == {
            A: (speed_of_A, slow_s, pytest.approx(8 * 2 * slow_s / HOUR_S)),
            H: (1.0, HOUR_S, 48.0),
        }


def test_speeds_that_nobody_told_are_those_of_the_described_model() -> None:
    ways = options(asking(models=(), trains=MODEL, choose="time"), BOTH, PRICES)
    assert told(ways) == [(H, "on_demand"), (A, "on_demand")]
    assert [way.speed for way in ways] == [1.0, pytest.approx(312 / 989.4)]


def test_a_job_that_describes_its_model_and_lists_none_takes_the_fastest_first() -> None:
    assert [way.model for way in options(asking(models=(), trains=MODEL), BOTH, PRICES)] == [H, A]


def test_a_speed_that_is_not_known_counts_as_one_and_says_so() -> None:
    (only,) = [w for w in options(asking(speeds=((H, 1.0),)), BOTH, PRICES) if w.model == A]
    assert (only.speed, only.run_s) == (None, HOUR_S)
    assert only.notes == ("speed on A100-80GB is not known, counted as 1",)


def test_a_price_that_is_not_known_goes_last_by_cost() -> None:
    ways = options(asking(choose="cost"), BOTH, prices(H=(6.0, None)))
    assert [(way.model, way.run_USD) for way in ways] == [(H, 48.0), (A, None)]
    assert "the on-demand price of A100-80GB is not known" in ways[1].notes


def test_a_run_of_unknown_time_has_no_price_but_its_rate_still_counts() -> None:
    ways = options(asking(choose="cost", expected_s=None), BOTH, PRICES)
    assert [(way.model, way.run_s, way.run_USD) for way in ways] == [
        (A, None, None),
        (H, None, None),
    ]
    limited = options(asking(expected_s=None, time_limit_s=2 * HOUR_S), BOTH, PRICES)
    assert limited[0].run_s == 2 * HOUR_S


def test_a_job_without_wishes_stays_as_it_is() -> None:
    """Whatever it is placed on, as ever; where there is but one model, its price is known."""
    plain = asking(models=())
    (anywhere,) = options(plain, BOTH, PRICES)
    assert (anywhere.model, anywhere.run_USD) == (None, None)
    (known,) = options(plain, fabric((A, None)), PRICES)
    assert (known.model, known.run_USD) == (A, 16.0)
    assert anywhere.job is plain
    assert known.job is plain


def test_models_that_are_not_there_are_left_to_the_search_to_explain() -> None:
    job = asking(models=("B200-180GB",))
    (way,) = options(job, BOTH, PRICES)
    assert way.job is job
    assert way.open
    assert [way.model for way in options(asking(models=("B200-180GB", H)), BOTH, PRICES)] == [H]


def test_roles_that_share_a_model_share_the_way_and_others_keep_their_own() -> None:
    roles = (
        Role("w", 1, Shape(gpus=4, models=(H, A))),
        Role("v", 1, Shape(gpus=4, models=(A,))),
        Role("cpus", 1, Shape(cpus=1)),
    )
    (way,) = options(asking(roles=roles), BOTH, PRICES)
    assert [role.shape.models for role in way.job.roles] == [(A,), (A,), ()]
    apart = (roles[1], Role("u", 1, Shape(gpus=4, models=(H,))))
    (each,) = options(asking(roles=apart), BOTH, PRICES)
    assert [role.shape.models for role in each.job.roles] == [(A,), (H,)]


def test_a_job_without_gpus_costs_nothing_that_is_known_here() -> None:
    job = asking(roles=(Role("w", 1, Shape(cpus=4)),))
    (way,) = options(job, BOTH, PRICES)
    assert (way.run_USD, way.notes) == (0.0, ())


def test_a_share_of_a_gpu_costs_its_part() -> None:
    job = asking(roles=(Role("w", 2, Shape(gpu_share=0.25, models=(A,))),))
    assert [way.run_USD for way in options(job, BOTH, PRICES)] == [1.0]
    mig = asking(roles=(Role("w", 1, Shape(mig="1g.10gb", models=(A,))),))
    assert [way.run_USD for way in options(mig, BOTH, PRICES)] == [pytest.approx(2 / 7)]


# ----- what is closed


def test_a_model_without_the_memory_is_never_a_way() -> None:
    mixed = fabric((T, None), (A, None))
    job = asking(models=(T, A), trains=MODEL)
    small, large = {way.model: way for way in options(job, mixed, PRICES)}.items().__iter__()
    assert (small[0], large[0]) == (A, T)
    assert small[1].open
    assert large[1].gate is Gate.SHAPE
    assert "T4-16GB has 16 GiB, a rank needs at least" in large[1].why_not
    alone = options(job, fabric((T, None)), PRICES)
    verdict = refused(job, alone)
    assert verdict is not None
    assert (verdict.gate, verdict.never) == (Gate.SHAPE, True)
    assert refused(job, options(job, mixed, PRICES)) is None


def test_gpus_of_no_name_are_no_way_round_memory() -> None:
    """None of a named model may be taken by who may run "anywhere"."""
    nameless = Machine("x", 8)
    nodes = (Node("n0", T), Node("n1", "x"), Node("n2", A))
    machines = {T: Machine(T, 8, T), A: Machine(A, 8, A), "x": nameless}
    mixed = Fabric.build(Cluster("c", ("node",), machines, nodes))
    ways = options(asking(models=(), trains=MODEL), mixed, PRICES)
    assert [(way.model, way.open) for way in ways] == [(A, True), (T, False)]
    small = replace(MODEL, parameters=1e9)
    assert [way.model for way in options(asking(models=(), trains=small), mixed, PRICES)] == [
        A,
        T,
        None,
    ]


def test_a_budget_closes_what_is_dearer_and_what_nobody_knows_the_price_of() -> None:
    job = asking(budget_USD=20.0)
    ways = {way.model: way for way in options(job, BOTH, PRICES)}
    assert ways[A].open
    assert (ways[H].gate, ways[H].why_not) == (
        Gate.LIMIT, "H100-80GB on-demand: about $48.00, the budget is $20.00",
    )  # fmt: skip
    timeless = replace(job, expected_s=None)
    verdict = refused(timeless, options(timeless, BOTH, PRICES))
    assert verdict is not None
    assert verdict.gate is Gate.LIMIT
    assert "run time is not known" in verdict.sentence


@pytest.mark.parametrize("ways", [(), (("data", 16),)])
def test_an_elastic_gang_shrinks_no_further_than_its_memory_goes_round(
    ways: tuple[tuple[str, int], ...],
) -> None:
    """Data ways shrink with the members, whether they are written or not."""
    model = replace(MODEL, parameters=30e9, batch=4096)
    roles = (Role("w", 16, Shape(gpus=1, models=(A,))),)
    job = asking(roles=roles, trains=model, elastic=Elastic(2, 32), parallelism=ways)
    (way,) = options(job, fabric((A, None), (A, None)), PRICES)
    least = way.job.elastic
    assert least is not None
    assert 2 < least.min <= 16
    for members, fit in ((least.min, True), (least.min - 1, False)):
        of_size = replace(job, roles=(replace(roles[0], members=members),), parallelism=())
        assert fits(of_size, A) in {fit, None}


# ----- spot


def test_only_jobs_that_say_so_and_save_are_offered_spot() -> None:
    for job in (asking(), asking(spot=True), asking(checkpoint=Checkpoint(every_s=900))):
        assert {way.market for way in options(job, BOTH, PRICES)} == {"on_demand"}
    ways = options(on_spot(asking(choose="cost")), BOTH, PRICES)
    assert told(ways) == [(A, "spot"), (A, "on_demand"), (H, "spot"), (H, "on_demand")]


def test_the_price_of_spot_has_what_interruptions_lose_in_it() -> None:
    """8 GPUs on one node, taken back once a day: each time half of 15 minutes and a minute."""
    (way,) = [w for w in options(on_spot(asking(models=(A,))), BOTH, PRICES) if w.market == "spot"]
    lost_s = HOUR_S / DAY_S * (450 + 60)
    assert way.expected_loss_gpu_s == pytest.approx(8 * lost_s, rel=0.01)
    assert way.run_USD == 8.0
    assert way.expected_USD == pytest.approx(8.0 * (1 + lost_s / HOUR_S), rel=1e-3)
    wider = on_spot(asking(members=16, models=(A,)))
    (many,) = [w for w in options(wider, BOTH, PRICES) if w.market == "spot"]
    assert many.expected_loss_gpu_s == pytest.approx(16 * 16 * 8 * lost_s, rel=0.1)


def test_spot_that_is_taken_back_too_often_is_no_bargain() -> None:
    """Every 2 minutes, with a checkpoint every 15: the run is far longer than the price is lower."""
    rough = fabric((A, None), (A, 720.0))
    ways = options(on_spot(asking(models=(A,), choose="cost")), rough, PRICES)
    assert told(ways)[0] == (A, "on_demand")
    wild = fabric((A, 1e6))
    (never,) = options(on_spot(asking(models=(A,))), wild, PRICES)
    assert never.why_not == "A100-80GB spot: taken back too often for a run to end"


def test_without_an_interval_nothing_counts_as_saved_before_the_end() -> None:
    job = on_spot(asking(models=(A,)), every_s=None)
    (way,) = [w for w in options(job, BOTH, PRICES) if w.market == "spot"]
    assert way.expected_loss_gpu_s == pytest.approx(8 * HOUR_S * (stretch(HOUR_S, 60, 1.0) - 1))
    assert "checkpoint.every is not told, counted as none before the end" in way.notes


def test_members_without_gpus_go_beside_spot_or_not() -> None:
    roles = (Role("w", 1, Shape(gpus=8, models=(A,))), Role("cpus", 1, Shape(cpus=1)))
    (way,) = [w for w in options(on_spot(asking(roles=roles)), BOTH, PRICES) if w.market == "spot"]
    assert [role.shape.labels for role in way.job.roles] == [
        ((MARKET_LABEL, SPOT),), ((MARKET_LABEL, ANY_MARKET),),
    ]  # fmt: skip


@given(st.floats(60, 7200), st.floats(0, 600), st.floats(0, 48))
def test_interruptions_cost_at_least_half_an_interval_and_a_restart_each(
    interval_s: float, restart_s: float, per_day: float
) -> None:
    first_order = 1 + per_day / DAY_S * (interval_s / 2 + restart_s)
    rare = per_day / DAY_S * (interval_s + restart_s)
    assert first_order * (1 - 1e-9) <= stretch(interval_s, restart_s, per_day)
    if rare < 0.1:
        assert stretch(interval_s, restart_s, per_day) <= first_order + rare**2 + 1e-9


def test_the_stretch_is_the_mean_of_runs_that_are_interrupted_at_random() -> None:
    """A plain walk through 3000 intervals: until one passes unhit, a restart and the whole interval again."""
    random_source = random.Random(7)
    interval_s, restart_s, per_day = 900.0, 120.0, 48.0
    took_s = 0.0
    for _ in range(3000):
        left_s = interval_s
        while (until_s := random_source.expovariate(per_day / DAY_S)) < left_s:
            took_s += until_s
            left_s = restart_s + interval_s
        took_s += left_s
    assert took_s / (3000 * interval_s) == pytest.approx(
        stretch(interval_s, restart_s, per_day), rel=0.05
    )


# ----- with the search


sites = st.lists(
    st.tuples(st.sampled_from([A, H, T]), st.sampled_from([None, None, 0.5, 6.0])),
    min_size=1,
    max_size=6,
)
jobs = st.builds(
    asking,
    members=st.integers(1, 4),
    gpus=st.integers(1, 8),
    models=st.lists(st.sampled_from([A, H, T]), unique=True, max_size=3).map(tuple),
    trains=st.none() | st.just(MODEL) | st.just(replace(MODEL, parameters=1e9)),
    spot=st.booleans(),
    checkpoint=st.none() | st.just(Checkpoint(every_s=900)),
    choose=st.sampled_from(["order", "time", "cost"]),
    budget_USD=st.none() | st.sampled_from([1.0, 20.0, 100.0]),
)


@given(sites, jobs)
def test_a_gang_goes_where_its_way_says_and_only_there(
    site: list[tuple[str, float | None]], job: Job
) -> None:
    where = Occupancy(fabric(*site))
    for way in options(job, where.fabric, PRICES):
        verdict = place(where, way.job)
        if isinstance(verdict, Refused) or not way.open:
            continue
        assert problems_of(where, way.job, verdict) == []
        for member in verdict.members:
            node = where.fabric.nodes[where.fabric.index_of_node[member.node]]
            assert way.model in {None, node.machine}
            assert (node.spot is not None) == (way.market == "spot")
            assert node.spot is None or (job.spot and job.checkpoint)
            assert fits(job, node.machine) is not False


@given(sites, jobs)
def test_a_gang_that_asks_for_no_market_is_never_on_spot(
    site: list[tuple[str, float | None]], job: Job
) -> None:
    where = Occupancy(fabric(*site))
    kept = Occupancy(fabric(*[node for node in site if node[1] is None] or [(T, None)]))
    verdict = place(where, job)
    if isinstance(verdict, Placement):
        spot = [
            where.fabric.nodes[where.fabric.index_of_node[m.node]].spot for m in verdict.members
        ]
        assert spot == [None] * len(spot)
    elif any(node[1] is None for node in site):
        assert isinstance(place(kept, job), Refused)


@given(sites, jobs)
def test_open_ways_stand_in_the_order_that_the_job_chooses_by(
    site: list[tuple[str, float | None]], job: Job
) -> None:
    ways = options(job, fabric(*site), PRICES)
    open_ways = [way for way in ways if way.open]
    assert [way.open for way in ways] == sorted((way.open for way in ways), reverse=True)
    assert (refused(job, ways) is None) == bool(open_ways)
    if job.choose == "cost":
        money = [way.expected_USD for way in open_ways]
        assert money == sorted(money, key=lambda USD: (USD is None, USD or 0.0))
    if job.choose == "time":
        ends_s = [way.run_s * _longer(way) for way in open_ways if way.run_s is not None]
        assert ends_s == pytest.approx(sorted(ends_s))
    if job.budget_USD is not None:
        assert all(
            way.expected_USD is not None and way.expected_USD <= job.budget_USD for way in open_ways
        )


def _longer(way: Option) -> float:
    assert way.run_s is not None
    assert way.expected_loss_gpu_s is not None
    return 1 + way.expected_loss_gpu_s / (way.run_s * way.job.gpus)


@pytest.mark.parametrize(
    "labels", [((MARKET_LABEL, ON_DEMAND),), ((MARKET_LABEL, ANY_MARKET),), ()]
)
def test_a_cluster_of_spot_alone_says_why_nothing_fits(labels: tuple[tuple[str, str], ...]) -> None:
    where = Occupancy(fabric((A, 1.0)))
    job = asking(roles=(Role("w", 1, Shape(gpus=8, labels=labels)),))
    verdict = place(where, job)
    if (MARKET_LABEL, ANY_MARKET) in labels:
        assert isinstance(verdict, Placement)
    else:
        assert isinstance(verdict, Refused)
        assert verdict.sentence == (
            "Never fits: no node has label gantree.market=on-demand, which role w asks for."
            if labels
            else "Never fits: every node is a spot node, which role w does not ask for; write `spot: true` and "
            "`checkpoint` in the job file, or `any` in the column `market` of a trace."
        )


def test_a_job_cannot_talk_itself_onto_spot_by_a_label() -> None:
    job = asking(roles=(Role("w", 1, Shape(gpus=8, labels=((MARKET_LABEL, SPOT),), models=(A,))),))
    (way,) = options(job, BOTH, PRICES)
    assert way.job.roles[0].shape.labels == ()


def test_what_a_footprint_needs_is_what_the_option_tells() -> None:
    job = asking(models=(T,), trains=MODEL)
    need = gpu_bytes(job, LEANEST).GiB
    assert f"at least {need:.0f} GiB" in options(job, fabric((T, None)), PRICES)[0].why_not
