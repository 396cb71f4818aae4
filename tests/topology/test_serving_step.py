"""What a request to a service costs: who sends keys and values to whom, and what the place adds to the first token."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats import read_cluster
from gantree.model.errors import BadInput
from gantree.model.jobs import AxisTraffic, Job, Serving, Traffic, Transformer
from gantree.testing.builders import job
from gantree.topology.cost.pricing import Pricer
from gantree.topology.cost.serving_step import MOST_PARTNERS, kv_pairs
from gantree.topology.cost.step import step_time
from gantree.topology.fabric.fabric import Fabric
from support.examples import examples

FABRIC = Fabric.build(
    read_cluster(
        """
name: two-leaves
tiers: [leaf, node]
nodes:
  - {names: "n[0-1]", machine: dgx-h100, at: {leaf: l0}}
  - {names: "n[2-3]", machine: dgx-h100, at: {leaf: l1}}
""",
        "cluster.yaml",
    )
)
MODEL = Transformer(70e9, layers=80, hidden=8192, sequence=8192, batch=32, kv_share=1 / 8)


def service(prefill: int, decode: int, ways: Serving) -> Job:
    """A gang with so many members of one instance each."""
    role = job("chat", 1, 1).roles[0]
    roles = tuple(
        replace(role, name=name, members=members, shape=replace(role.shape, gpus=gpus))
        for name, members, gpus in (
            ("prefill", prefill, ways.prefill),
            ("decode", decode, ways.decode),
        )
    )
    return replace(job("chat", 1, 1), roles=roles, serving=ways)


def on(node: int, *gpus: int) -> list[tuple[int, int]]:
    return [(node, gpu) for gpu in gpus]


def places(instances: int, ways: int, first: int) -> np.ndarray:
    """Places that all differ; those of a role carry its number as node."""
    gpu = np.arange(instances * ways, dtype=np.int64).reshape(instances, ways)
    return np.stack([np.full_like(gpu, first), gpu], axis=2)


@settings(max_examples=examples(60))
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_each_prefill_instance_reaches_each_decode_instance_rank_by_rank(
    readers: int, writers: int, narrow: int, times: int, wide_writers: bool
) -> None:
    read_ways, write_ways = (narrow, narrow * times) if wide_writers else (narrow * times, narrow)
    pairs, turns = kv_pairs(places(readers, read_ways, 0), places(writers, write_ways, 1))
    widest = max(read_ways, write_ways)
    expected = {
        (
            reader * read_ways + head * read_ways // widest,
            writer * write_ways + head * write_ways // widest,
        )
        for reader in range(readers)
        for writer in range(writers)
        for head in range(widest)
    }
    found = [(int(one[0, 1]), int(one[1, 1])) for one in pairs]
    assert set(found) == expected
    assert len(found) == len(expected)
    assert {(int(one[0, 0]), int(one[1, 0])) for one in pairs} == {(0, 1)}
    for turn in range(int(turns.max()) + 1):
        of_turn = [
            pair for pair, number in zip(found, turns.tolist(), strict=True) if number == turn
        ]
        assert len({reader for reader, _ in of_turn}) == len(of_turn)
        assert len({writer for _, writer in of_turn}) == len(of_turn)


def test_of_many_instances_partners_are_taken_evenly() -> None:
    many = 10 * MOST_PARTNERS
    pairs, turns = kv_pairs(places(1, 1, 0), places(many, 1, 1))
    assert int(turns.max()) + 1 == MOST_PARTNERS
    writers = pairs[:, 1, 1].tolist()
    assert writers == [10 * turn for turn in range(MOST_PARTNERS)]


def test_keys_and_values_take_the_time_of_the_link_that_they_cross() -> None:
    """8,192 tokens of a model with 8 of 64 heads for keys and values: 2.5 GiB (320 KiB a token)."""
    asked = service(1, 1, Serving(1, 1, MODEL))
    near = step_time(Pricer(FABRIC), asked, [*on(0, 0), *on(0, 1)])
    far = step_time(Pricer(FABRIC), asked, [*on(0, 0), *on(1, 0)])
    assert near and far
    (kv,) = far.flows
    assert (kv.axis, kv.groups, kv.size_bytes) == ("kv", 1, 320 * 1024 * 8192)
    assert kv.seconds == pytest.approx(kv.size_bytes / 50e9, rel=0.15)
    assert near.step_s == pytest.approx(far.step_s - kv.seconds + near.comm_s)
    assert near.comm_s < kv.seconds / 5


def test_a_gpu_sends_to_several_partners_one_after_the_other() -> None:
    one = step_time(Pricer(FABRIC), service(1, 1, Serving(1, 1, MODEL)), [*on(0, 0), *on(1, 0)])
    four = step_time(
        Pricer(FABRIC), service(1, 1, Serving(1, 4, MODEL)), [*on(0, 0), *on(1, 0, 1, 2, 3)]
    )
    assert one and four
    kv = next(flow for flow in four.flows if flow.axis == "kv")
    assert (kv.groups, kv.calls) == (4, 4)
    assert kv.size_bytes * 4 == one.flows[0].size_bytes
    assert kv.seconds == pytest.approx(one.comm_s, rel=0.05)


def test_the_slowest_pair_counts() -> None:
    asked = service(2, 1, Serving(1, 1, MODEL))
    beside = step_time(Pricer(FABRIC), asked, [*on(0, 0), *on(0, 1), *on(0, 2)])
    one_apart = step_time(Pricer(FABRIC), asked, [*on(0, 0), *on(1, 0), *on(0, 2)])
    both_apart = step_time(Pricer(FABRIC), asked, [*on(1, 1), *on(1, 0), *on(0, 2)])
    assert beside and one_apart and both_apart
    assert beside.step_s < one_apart.step_s == both_apart.step_s


def test_instances_over_several_gpus_sum_activations() -> None:
    step = step_time(
        Pricer(FABRIC),
        service(1, 1, Serving(4, 4, MODEL)),
        [*on(0, 0, 1, 2, 3), *on(0, 4, 5, 6, 7)],
    )
    assert step is not None
    sizes = {flow.axis: (flow.collective, flow.size_bytes, flow.calls) for flow in step.flows}
    assert sizes["prefill"] == ("all_reduce", 8192 * 8192 * 2, 160)
    assert sizes["decode"] == ("all_reduce", 32 * 8192 * 2, 160)
    prompt_s = 2 * 70e9 * 8192 / (4 * 989e12 * 0.4)
    token_s = 70e9 * 2 / (4 * 3350e9)
    assert step.compute_s == pytest.approx(prompt_s + token_s, rel=0.01)
    assert step.assumed == ("mfu 0.4",)


def test_what_the_job_tells_counts_before_its_model() -> None:
    told = Traffic((AxisTraffic("kv", 1 << 30),), compute_s=0.5)
    step = step_time(
        Pricer(FABRIC), service(1, 1, Serving(2, 2, traffic=told)), [*on(0, 0, 1), *on(1, 0, 1)]
    )
    assert step is not None
    (kv,) = step.flows
    assert (kv.size_bytes, kv.calls, step.compute_s) == (1 << 29, 1, 0.5)


def test_a_service_that_tells_nothing_has_no_price() -> None:
    assert step_time(Pricer(FABRIC), service(1, 1, Serving(1, 1)), [*on(0, 0), *on(1, 0)]) is None


def test_roles_that_are_no_whole_instances_are_refused() -> None:
    asked = service(1, 1, Serving(2, 2, MODEL))
    with pytest.raises(BadInput, match="the role decode does not have whole instances of 2 GPUs"):
        step_time(Pricer(FABRIC), asked, [*on(0, 0, 1), *on(1, 0)])


@settings(max_examples=examples(20))
@given(st.data())
def test_turns_priced_together_cost_what_each_costs_alone(data: st.DataObject) -> None:
    """The plain twin: a request is as slow as its slowest turn, each priced as the only one."""
    readers, writers = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    slots = data.draw(st.permutations([(node, gpu) for node in range(4) for gpu in range(8)]))
    ranks = slots[: readers * 2 + writers * 2]
    asked = service(readers, writers, Serving(2, 2, MODEL))
    pricer = Pricer(FABRIC)
    step = step_time(pricer, asked, ranks)
    assert step is not None
    kv = next(flow for flow in step.flows if flow.axis == "kv")
    table = np.array(ranks, dtype=np.int64)
    pairs, turns = kv_pairs(
        table[: readers * 2].reshape(-1, 2, 2), table[readers * 2 :].reshape(-1, 2, 2)
    )
    slowest_s = 0.0
    for turn in range(int(turns.max()) + 1):
        one = pairs[turns == turn]
        prices = pricer.price_together("send_recv", kv.size_bytes, one[:, :, 0], one[:, :, 1])
        slowest_s = max(slowest_s, float(prices.seconds.max()))
    assert kv.seconds == pytest.approx(slowest_s * kv.calls)
    assert len(turns) == readers * writers * 2
