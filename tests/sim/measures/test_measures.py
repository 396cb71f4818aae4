"""Measures of a run by hand: over time, fragmentation, sizes, stops, energy, money; and against plain twins."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats import read_cluster
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Allocation, Cluster
from gantree.policy.rules import Policy, QueueRule
from gantree.sim.cluster import Overheads
from gantree.sim.measures.energy import energy_of
from gantree.sim.measures.gpu_hours import GpuHours, gpu_hours
from gantree.sim.measures.money import costs_of
from gantree.sim.measures.size_classes import BOUNDS, by_class, class_names, class_of
from gantree.sim.measures.stop_costs import StopCost, stop_costs
from gantree.sim.measures.summary import measures_of
from gantree.sim.measures.timeline import Timeline, span_of, timeline_of
from gantree.sim.results import Result
from gantree.sim.run import simulate
from gantree.sim.running.model import RunningModel, Service
from gantree.testing.builders import cluster
from gantree.topology.hardware.gpu_models import GPU_MODELS
from gantree.topology.hardware.power import LIMIT_W, power_of
from gantree.topology.hardware.prices import LIST_PRICES, PriceList, Quote
from support.examples import examples

SITE = cluster(leaves=2, nodes=2, gpus=4)
MIXED = read_cluster(
    """
    name: mixed
    tiers: [leaf, node]
    nodes:
      - {names: h0, machine: dgx-h100, at: {leaf: l0}}
      - {names: h1, machine: dgx-h100, at: {leaf: l0}}
      - {names: a0, machine: dgx-a100, at: {leaf: l1}}
    """,
    "mixed.yaml",
)


def job(
    name: str, submit_s: float, duration_s: float, members: int, gpus: int, queue: str = "q"
) -> TraceJob:
    return TraceJob(name, submit_s, duration_s, members, gpus, queue=queue)


def run(*trace: TraceJob, site: Cluster = SITE, policy: Policy | None = None) -> Result:
    return simulate(site, trace, policy or Policy())


def timeline(*trace: TraceJob, parts: int = 4, policy: Policy | None = None) -> Timeline:
    return timeline_of(run(*trace, policy=policy), parts)


# ----- over time


def test_what_is_held_waits_and_is_free_over_time_by_hand() -> None:
    """wide holds 12 of 16 GPUs for 20 s; pair waits for it, then holds 8 for 20 s."""
    told = timeline(job("wide", 0, 20, 3, 4), job("pair", 0, 20, 2, 4))
    assert told.edges_s == (0, 10, 20, 30, 40)
    assert [part.mean for part in told.held] == [12, 12, 8, 8]
    assert [part.mean for part in told.waiting] == [1, 1, 0, 0]
    assert told.useful == (12, 12, 8, 8)
    assert told.free_in_whole == {
        "spine": (0, 0, 0, 0),
        "leaf": (0, 0, 8, 8),
        "node": (4, 4, 8, 8),
    }


def test_useful_gpus_are_those_whose_work_was_kept() -> None:
    """low works 40 s in vain and then 100 s; 100 of its 140 s are kept."""
    low = replace(job("low", 0, 100, 4, 4), priority="research")
    high = replace(job("high", 40, 10, 4, 4), priority="serving")
    result = run(low, high)
    told = timeline_of(result, 15)
    assert told.useful[:6] == pytest.approx((16 * 100 / 140,) * 4 + (16, 16 * 100 / 140))
    measures = measures_of(result)
    assert measures["goodput"] == pytest.approx((100 + 10) / 150, abs=1e-6)
    assert measures["gpu_hours_lost_by_cause"] == {"priority": round(16 * 40 / 3600, 6)}


def test_queues_are_measured_against_their_fair_shares() -> None:
    """a weighs 3 and b 1; both ask for 16 GPUs, and b holds 12 of them at first: 4 / 12 and 12 / 4."""
    policy = Policy(queues=(QueueRule("a", weight=3), QueueRule("b", weight=1)))
    jobs = [job("b0", 0, 20, 3, 4, "b"), job("a0", 0, 20, 1, 4, "a")]
    waiting = [job("b1", 0, 20, 1, 4, "b"), *(job(f"a{n}", 0, 20, 1, 4, "a") for n in range(1, 4))]
    told = timeline_of(run(*jobs, *waiting, policy=policy), 2)
    first = {queue: values[0] for queue, values in told.held_of_queue.items()}
    shares = {queue: values[0] for queue, values in told.share_of_queue.items()}
    assert shares == {"a": 12, "b": 4}
    x = [first["a"] / 12, first["b"] / 4]
    assert told.jain[0] == pytest.approx(sum(x) ** 2 / (2 * sum(each**2 for each in x)), abs=1e-6)


def test_jobs_that_can_never_start_ask_for_nothing() -> None:
    told = timeline(job("a", 0, 10, 1, 4, "a"), job("never", 0, 1, 9, 4, "b"))
    assert told.share_of_queue == {"a": (4,) * 4, "b": (0,) * 4}
    assert told.jain == (1.0,) * 4


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 4), st.integers(0, 4)),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=examples(25))
def test_what_is_whole_and_free_is_what_a_walk_over_the_attempts_finds(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    """The twin looks at each second which nodes have no attempt that holds GPUs."""
    trace = [job(f"j{n}", *each) for n, each in enumerate(drawn)]
    result = run(*trace)
    start_s, end_s = span_of(result)
    if end_s == start_s:
        return
    told = timeline_of(result, int(end_s - start_s))
    for part, from_s in enumerate(range(int(start_s), int(end_s))):
        taken = {
            member.node
            for span in result.spans
            for member in span.placement.members
            if member.gpus and span.from_s <= from_s and (span.to_s is None or span.to_s > from_s)
        }
        free_nodes = [node for node in SITE.nodes if node.name not in taken]
        assert told.free_in_whole["node"][part] == 4 * len(free_nodes)
        leaves = {
            leaf: [n for n in SITE.nodes if n.at == leaf] for leaf in {n.at for n in SITE.nodes}
        }
        free_leaves = [nodes for nodes in leaves.values() if not taken & {n.name for n in nodes}]
        assert told.free_in_whole["leaf"][part] == sum(4 * len(nodes) for nodes in free_leaves)


def test_gpus_that_the_site_itself_holds_are_in_no_free_domain() -> None:
    site = replace(SITE, allocations=(Allocation("old", "n0", (0,)),))
    told = timeline_of(run(job("a", 0, 10, 1, 4), site=site), 1)
    assert (told.gpus, told.free_in_whole["node"], told.free_in_whole["leaf"]) == (15, (8,), (8,))


def test_a_run_without_time_has_no_timeline() -> None:
    told = timeline_of(run())
    assert (told.parts, told.jain, told.held) == (0, (), ())
    measures = measures_of(run())
    assert measures["free_gpus_in_whole_domains"] == {"spine": None, "leaf": None, "node": None}


def test_a_bounded_run_without_its_attempts_has_the_measures_of_its_rows() -> None:
    """No job is stopped here, so each has one attempt, and nothing is lost between a start and its order."""
    trace = [job(f"j{n}", n, 30 + n % 7, 1 + n % 3, 4, f"q{n % 2}") for n in range(20)]
    whole = run(*trace)
    bounded = simulate(SITE, trace, Policy(), bounded=True)
    assert bounded.spans == () != whole.spans
    assert timeline_of(bounded) == timeline_of(whole)
    assert measures_of(bounded) == measures_of(whole)


def test_replicas_of_services_hold_gpus_of_their_queue() -> None:
    service = Service("chat", 4, 2, 2, ((0.0, 0.0),), queue="web")
    result = simulate(
        SITE, [job("a", 0, 100, 1, 4)], Policy(), running=RunningModel(services=(service,))
    )
    told = timeline_of(result, 2)
    assert set(told.held_of_queue) == {"q", "web"}
    assert sum(told.held_of_queue["web"]) > 0


# ----- sizes and stops


def test_classes_of_sizes_have_no_gaps() -> None:
    assert [class_of(gpus) for gpus in (0, 1, 2, 4, 5, 64, 65, 256, 257)] == [
        "no GPUs", "up to 1 GPU", "2-4 GPUs", "2-4 GPUs", "5-8 GPUs", "17-64 GPUs", "65-256 GPUs",
        "65-256 GPUs", "over 256 GPUs",
    ]  # fmt: skip
    assert class_names() == list(dict.fromkeys(class_of(gpus) for gpus in range(BOUNDS[-1] + 2)))


def test_a_class_has_the_statistics_of_its_jobs() -> None:
    result = run(job("wide", 0, 10, 3, 4), job("one", 0, 30, 1, 1), job("two", 0, 90, 1, 1))
    small, large = by_class(result.jobs, 3)
    assert (small.name, small.jobs, small.jct_s["mean"]) == ("up to 1 GPU", 2, 60.0)
    assert small.domains == (None, None, None)
    assert (large.name, large.domains) == ("9-16 GPUs", (1.0, 2.0, 3.0))
    assert large.gpu_hours == round(120 / 3600, 3)


def test_stops_cost_what_their_attempts_lost_and_add_up_to_the_summary() -> None:
    low = replace(job("low", 0, 100, 4, 4), priority="research", checkpoint_s=15)
    highs = [replace(job(f"h{n}", 40 + 60 * n, 10, 2, 4), priority="serving") for n in range(2)]
    result = simulate(SITE, [low, *highs], Policy(), overheads=Overheads(start_s=5, stop_s=5))
    [cost] = stop_costs(result.spans)
    assert (cost.cause, cost.stops) == ("priority", 2)
    assert cost.lost_gpu_hours == result.summary()["gpu_hours_lost"] > 0


def test_the_most_expensive_cause_comes_first() -> None:
    [span] = run(job("a", 0, 10, 1, 1)).spans
    spans = [
        replace(span, cause=cause, lost_gpu_s=lost)
        for cause, lost in (("b", 3600), ("a", 7200), ("", 0))
    ]
    assert stop_costs(spans) == [StopCost("a", 1, 2.0), StopCost("b", 1, 1.0)]


# ----- GPU-hours, energy, money


def test_gpu_hours_are_counted_by_model() -> None:
    result = run(job("a", 0, 3600, 2, 8), job("b", 0, 7200, 1, 8), site=MIXED)
    rows = gpu_hours(result.fabric, result.spans, *span_of(result))
    assert [(row.gpu, row.gpus, row.capacity_h) for row in rows] == [
        ("H100-80GB", 16, 32.0), ("A100-80GB", 8, 16.0),
    ]  # fmt: skip
    assert sum(row.held_h for row in rows) == pytest.approx((16 * 3600 + 8 * 7200) / 3600)
    assert all(row.held_h + row.idle_h == pytest.approx(row.capacity_h) for row in rows)


def test_energy_is_of_held_and_idle_gpus() -> None:
    [row] = energy_of(
        [GpuHours("H100-80GB", "on-demand", 8, 100.0, 60.0), GpuHours("", "on-demand", 1, 9, 9)]
    )
    assert (row.held_kWh, row.idle_kWh) == pytest.approx((60 * 0.76 * 0.7, 40 * 0.07365))
    assert row.kWh == row.held_kWh + row.idle_kWh


def test_money_is_by_the_price_of_the_market() -> None:
    prices = PriceList(
        [
            Quote("H100-80GB", "on_demand", 4.0, "2026-01-01", "us"),
            Quote("H100-80GB", "spot", 1.0, "2026-01-01", "us"),
        ]
    )
    hours = [GpuHours("H100-80GB", market, 8, 100.0, 60.0) for market in ("on-demand", "spot")]
    assert [(row.held_USD, row.idle_USD) for row in costs_of(hours, prices)] == [
        (240, 160),
        (60, 40),
    ]
    assert costs_of([GpuHours("V100-16GB", "on-demand", 1, 1.0, 1.0)], LIST_PRICES) == []


def test_limits_of_power_are_of_models_of_the_catalogue() -> None:
    assert set(LIMIT_W) <= set(GPU_MODELS)
    assert power_of("V100-32GB") == power_of("V100-16GB")
    assert power_of(None) is None and power_of("TPUV4-32GB") is None
