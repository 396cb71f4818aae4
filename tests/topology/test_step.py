"""A training step: what adds up, what hides, and which place is better for which group."""

from dataclasses import replace

import pytest

from gantree.model.cluster import Cluster, Link, Machine, Node
from gantree.model.errors import BadInput
from gantree.model.jobs import AxisTraffic, Job, Traffic, Transformer
from gantree.testing.builders import job
from gantree.topology.cost.cost import Pricer, Step, step_time
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.hardware.constants import DEFAULT_MFU

MODEL = Transformer(parameters=13e9, layers=40, hidden=5120, sequence=4096, batch=256)


def pricer(model: Machine | None = None, nodes: int = 4) -> Pricer:
    model = model or machine("dgx-h100")
    there = tuple(Node(f"n{n}", "m", (f"l{n // 2}",)) for n in range(nodes))
    links = {"leaf": Link(25.0, 6.0, 400.0)}
    return Pricer(Fabric.build(Cluster("s", ("leaf", "node"), {"m": model}, there, links)))


H100 = pricer()
RANKS = [(node, gpu) for node in range(4) for gpu in range(8)]


def training(model: Transformer | None = MODEL, /, **ways: int) -> Job:
    plain = job("j", members=4, gpus=8)
    return replace(plain, trains=model, parallelism=tuple(ways.items()))


def priced(asked: Job, of: Pricer = H100, ranks: list[tuple[int, int]] | None = None) -> Step:
    step = step_time(of, asked, ranks or RANKS)
    assert step is not None
    return step


def test_a_job_that_tells_nothing_has_no_step() -> None:
    assert step_time(H100, job("j", 4, 8), RANKS) is None


def test_computing_is_arithmetic_over_what_the_gpus_reach() -> None:
    flops = 6 * 13e9 * 4096 * 256
    step = priced(training(data=32))
    assert step.compute_s == pytest.approx(flops / (32 * 989.4e12 * DEFAULT_MFU))
    assert step.assumed == (f"mfu {DEFAULT_MFU:g}",)
    told = priced(training(replace(MODEL, mfu=0.5, peak_TFLOPS=500.0), data=32))
    assert told.compute_s == pytest.approx(flops / (32 * 500e12 * 0.5))
    assert told.assumed == ()


def test_a_gpu_whose_arithmetic_is_not_known_is_asked_for() -> None:
    unknown = pricer(replace(machine("dgx-h100"), gpu="X9-80GB"))
    with pytest.raises(BadInput, match=r"write model\.peak_TFLOPS"):
        step_time(unknown, training(data=32), RANKS)


def test_the_parts_of_a_step_add_up() -> None:
    for ways in ({"data": 32}, {"tensor": 8, "pipeline": 4}, {"tensor": 4, "context": 2}):
        step = priced(training(**ways))
        exposed = sum(flow.exposed_s for flow in step.flows)
        assert step.step_s == pytest.approx(step.compute_s + step.bubble_s + exposed)
        assert step.comm_s == pytest.approx(sum(flow.seconds for flow in step.flows))
        assert 0 <= step.exposed_s <= step.comm_s
        for flow in step.flows:
            assert flow.seconds == pytest.approx(flow.calls * flow.price.seconds)


def test_a_pipeline_waits_for_its_first_and_last_stage() -> None:
    step = priced(training(tensor=8, pipeline=4))
    waited = sum(flow.exposed_s for flow in step.flows)
    assert step.bubble_s == pytest.approx((step.compute_s + waited) * 3 / 256)
    assert priced(training(tensor=8, data=4)).bubble_s == 0


def test_gradients_hide_behind_the_backward_pass_and_no_further() -> None:
    by_default = priced(training(data=32)).flows[0]
    assert by_default.exposed_s == pytest.approx(0.2 * by_default.seconds)
    shown = priced(replace(training(data=32), overlap=(("data", 0.0),)))
    assert shown.flows[0].exposed_s == shown.flows[0].seconds
    tiny = replace(MODEL, sequence=16, batch=32)
    step = priced(replace(training(tiny, data=32), overlap=(("data", 1.0),)))
    hidden = step.flows[0].seconds - step.flows[0].exposed_s
    assert hidden == pytest.approx(2 / 3 * step.compute_s)


def test_two_flows_of_replicas_do_not_hide_behind_the_same_computing() -> None:
    tiny = replace(MODEL, sequence=16, batch=32, sharded="optimizer")
    step = priced(replace(training(tiny, data=32), overlap=(("data", 1.0),)))
    hidden = sum(flow.seconds - flow.exposed_s for flow in step.flows)
    assert len(step.flows) == 2
    assert hidden == pytest.approx(2 / 3 * step.compute_s)


def test_groups_tell_how_far_they_reach() -> None:
    flows = {flow.axis: flow for flow in priced(training(tensor=8, pipeline=2, data=2)).flows}
    reach = {axis: (flow.groups, flow.group_size, flow.within) for axis, flow in flows.items()}
    assert reach == {
        "tensor": (4, 8, "node"),
        "data": (16, 2, "leaf"),
        "pipeline": (16, 2, "fabric"),
    }
    assert dict(flows["pipeline"].domains) == {"fabric": 1, "leaf": 2, "node": 2}


def test_replicas_side_by_side_share_the_nics() -> None:
    model = machine("dgx-h100")
    one_nic = replace(model, nics=(replace(model.nics[0], near=tuple(range(8))),))
    shared = priced(training(tensor=8, data=4), pricer(one_nic)).flows[-1]
    own = priced(training(tensor=8, data=4)).flows[-1]
    assert shared.axis == own.axis == "data"
    assert shared.price.busbw_GBps < own.price.busbw_GBps / 3


def test_ranks_that_keep_tensor_groups_inside_nodes_make_the_faster_step() -> None:
    asked = training(tensor=8, data=4)
    across = [(node, gpu) for gpu in range(8) for node in range(4)]
    assert priced(asked, ranks=across).step_s > 1.5 * priced(asked).step_s


def test_told_traffic_needs_no_model() -> None:
    told = Traffic((AxisTraffic("data", 26e9, 40),), compute_s=2.0)
    step = priced(replace(training(None, data=32), traffic=told))
    assert step.compute_s == 2.0
    assert [(flow.axis, flow.size_bytes, flow.calls) for flow in step.flows] == [
        ("data", 0.65e9, 40)
    ]
    bare = priced(replace(training(None, data=32), traffic=replace(told, compute_s=None)))
    assert bare.step_s == pytest.approx(bare.comm_s)
    assert "no computing" in bare.assumed[0]


def test_the_slowest_gpu_holds_all() -> None:
    models = {"h": machine("dgx-h100"), "a": machine("dgx-a100")}
    nodes = tuple(Node(f"n{n}", "ha"[n], ("l0",)) for n in range(2))
    mixed = Pricer(Fabric.build(Cluster("s", ("leaf", "node"), models, nodes)))
    step = priced(training(data=16), mixed, [(n, g) for n in range(2) for g in range(8)])
    assert step.compute_s == pytest.approx(6 * 13e9 * 4096 * 256 / (16 * 312e12 * DEFAULT_MFU))


def test_inner_stages_send_to_one_neighbour_at_a_time() -> None:
    """Each stage fills a leaf; 8 ranks share 100 GB/s of up-links, whichever way they send."""
    nodes = tuple(Node(f"n{n}", "m", (f"l{n}",)) for n in range(4))
    links = {"leaf": Link(50.0, 6.0, 100.0)}
    of = Pricer(
        Fabric.build(Cluster("s", ("leaf", "node"), {"m": machine("dgx-h100")}, nodes, links))
    )
    two, four = (
        priced(replace(training(tensor=8, pipeline=stages), trains=replace(MODEL, hidden=1 << 20)),
               of, RANKS[: 8 * stages]).flows[-1]
        for stages in (2, 4)
    )  # fmt: skip
    assert two.price.limit == four.price.limit == "leaf"
    assert four.price.busbw_GBps == pytest.approx(two.price.busbw_GBps)
    assert two.price.busbw_GBps == pytest.approx(100 / 8, rel=0.02)


def test_ways_that_the_job_leaves_open_are_said() -> None:
    mfu = f"mfu {DEFAULT_MFU:g}"
    assert priced(training(tensor=8)).assumed == ("data 4 (the ways that are left)", mfu)
    assert priced(training()).assumed == ("data 32 (no parallelism is told)", mfu)
    assert priced(training(tensor=8, pipeline=4)).assumed == (mfu,)


def test_of_model_and_traffic_the_one_that_holds_is_said() -> None:
    traffic = Traffic((AxisTraffic("data", 1e9),), compute_s=2.0, micro_batches=4)
    both = priced(replace(training(tensor=8, data=4), traffic=traffic))
    assert both.compute_s == 2.0
    assert both.assumed == (
        "traffic.data and traffic.compute before what the model implies",
        "micro-batches as the model's, not traffic.micro_batches",
    )
    alone = priced(replace(training(None, tensor=8, data=4), traffic=traffic))
    assert alone.assumed == ("no traffic along tensor (none is told)",)
