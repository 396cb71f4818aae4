"""What model servers tell at /metrics: each engine's names, what happened between two texts, and quantiles."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gantree.model.errors import BadInput
from gantree.telemetry.engine_metrics import (
    ITL,
    LATENCY,
    TTFT,
    EngineFigures,
    between,
    figures_in,
    quantile,
)

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="llama"} 3.0
vllm:num_requests_running{engine="1",model_name="llama"} 4.0
vllm:num_requests_waiting{engine="0",model_name="llama"} 2.0
vllm:num_requests_waiting{engine="1",model_name="llama"} 0.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="llama"} 90.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="llama"} 10.0
vllm:generation_tokens_total{engine="0",model_name="llama"} 12000.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="llama"} 50.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="llama"} 100.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="llama"} 100.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="llama"} 12.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="llama"} 100.0
vllm:time_per_output_token_seconds_bucket{engine="0",le="0.1",model_name="llama"} 7.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.1",model_name="llama"} 9.0
"""
SGLANG = """\
sglang:num_running_reqs{model_name="llama"} 162.0
sglang:num_queue_reqs{model_name="llama"} 2826.0
sglang:num_requests_total{model_name="llama"} 40.0
sglang:generation_tokens_total{model_name="llama"} 7.557572e+06
sglang:time_per_output_token_seconds_bucket{le="0.005",model_name="llama"} 1.0
sglang:e2e_request_latency_seconds_bucket{le="+Inf",model_name="llama"} 3.0
"""
TGI = """\
tgi_batch_current_size 5
tgi_queue_size 8
tgi_request_count 70
tgi_request_generated_tokens_sum 900
tgi_request_generated_tokens_count 70
tgi_request_mean_time_per_token_duration_bucket{le="0.02"} 4
tgi_request_duration_bucket{le="1"} 6
"""
DYNAMO = """\
dynamo_frontend_inflight_requests{model="llama"} 9
dynamo_frontend_queued_requests{model="llama"} 4
dynamo_frontend_requests_total{model="llama",status="success"} 11
dynamo_frontend_output_tokens_total{model="llama"} 100
dynamo_frontend_time_to_first_token_seconds_bucket{le="1",model="llama"} 2
"""
TRITON = """\
nv_inference_request_success{model="llama",version="1"} 100
nv_trt_llm_request_metrics{model="llama",request_type="active",version="1"} 6
nv_trt_llm_request_metrics{model="llama",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="llama",request_type="waiting",version="1"} 2
"""
LLAMA_CPP = """\
llamacpp:requests_processing 1
llamacpp:requests_deferred 3
llamacpp:tokens_predicted_total 512
"""


@pytest.mark.parametrize(
    ("text", "figures", "times"),
    [
        (VLLM, (7, 2, 100, 12000), {TTFT, ITL}),
        (SGLANG, (162, 2826, 40, 7557572), {ITL, LATENCY}),
        (TGI, (5, 8, 70, 900), {ITL, LATENCY}),
        (DYNAMO, (5, 4, 11, 100), {TTFT}),
        (TRITON, (6, 2, 100, None), set()),
        (LLAMA_CPP, (1, 3, None, 512), set()),
        ("python_gc_objects_collected_total 4\n", (None, None, None, None), set()),
    ],
)
def test_the_figures_of_each_engine(
    text: str, figures: tuple[float | None, ...], times: set[str]
) -> None:
    found = figures_in(text)
    assert (found.running, found.waiting, found.done, found.tokens) == figures
    assert set(found.times) == times


def test_of_one_figure_under_two_names_the_newer_name_counts() -> None:
    assert figures_in(VLLM).times[ITL] == {0.1: 9.0}


def test_what_a_client_library_writes_is_read_and_its_difference_is_what_happened() -> None:
    registry = CollectorRegistry()
    running = Gauge("vllm:num_requests_running", "", ["model_name"], registry=registry)
    done = Counter("vllm:request_success", "", ["finished_reason"], registry=registry)
    times = Histogram(
        "vllm:time_to_first_token_seconds", "", buckets=(0.1, 0.2, 0.4), registry=registry
    )
    running.labels("llama").set(2)
    done.labels("stop").inc(5)
    times.observe(9.0)
    before = figures_in(generate_latest(registry).decode())
    done.labels("length").inc(7)
    for seconds in (0.15, 0.15, 0.15, 0.3):
        times.observe(seconds)
    after = figures_in(generate_latest(registry).decode())
    use = between(before, after)
    assert (use.done, use.tokens) == (7, None)
    assert quantile(0.5, [use.times[TTFT]]) == pytest.approx(0.1 + 0.1 * 2 / 3)
    assert quantile(1.0, [use.times[TTFT], use.times[TTFT]]) == pytest.approx(0.4)


def test_a_server_that_started_again_counts_from_zero() -> None:
    before, after = (
        EngineFigures(0.0, 0.0, done, done * 10, {TTFT: {0.1: done}}) for done in (50.0, 3.0)
    )
    assert between(before, after).done == 3
    assert between(before, after).times == {TTFT: {0.1: 3.0}}


def test_a_quantile_of_nothing_is_none_and_beyond_the_last_bound_it_is_that_bound() -> None:
    assert quantile(0.99, []) is None
    assert quantile(0.99, [{0.1: 0.0, float("inf"): 0.0}]) is None
    assert quantile(0.99, [{0.1: 1.0, float("inf"): 100.0}]) == 0.1


def test_a_text_that_breaks_off_is_refused() -> None:
    with pytest.raises(BadInput, match="breaks off"):
        figures_in("vllm:num_requests_running 3")
