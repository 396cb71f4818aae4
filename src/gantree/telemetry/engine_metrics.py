"""What a model server tells of its load at /metrics: vLLM, SGLang, TGI, Dynamo's frontend, llama.cpp, TensorRT-LLM.

One text has gauges of this moment and counters since the process began; what happened between two moments is the
difference of two texts (`between`). Names by engine and version are in NAMES; series of one name (ranks, models) are
summed. A histogram becomes a quantile as in Prometheus' `histogram_quantile`: linear within its bucket.

https://docs.vllm.ai/en/latest/design/metrics/                 https://docs.sglang.io/references/production_metrics.html
https://huggingface.co/docs/text-generation-inference/reference/metrics
https://docs.nvidia.com/dynamo/latest/reference/observability/metrics-catalog
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from gantree.telemetry.exposition import Labels, finite, names_matcher

RUNNING, WAITING, DONE, TOKENS = "running", "waiting", "done", "tokens"
TTFT, ITL, LATENCY = "ttft", "itl", "latency"
TIMES = (TTFT, ITL, LATENCY)
"""Histograms, in seconds."""
TRT_LLM = "nv_trt_llm_request_metrics"
"""TensorRT-LLM under Triton: one gauge, whose label says which requests it counts."""

NAMES: Mapping[str, tuple[str, ...]] = {
    RUNNING: (
        "vllm:num_requests_running", "sglang:num_running_reqs", "sglang_num_running_reqs", "tgi_batch_current_size",
        "dynamo_frontend_inflight_requests", "llamacpp:requests_processing",
    ),
    WAITING: (
        "vllm:num_requests_waiting", "sglang:num_queue_reqs", "sglang_num_queue_reqs", "tgi_queue_size",
        "dynamo_frontend_queued_requests", "llamacpp:requests_deferred",
    ),
    DONE: (
        "vllm:request_success_total", "sglang:num_requests_total", "sglang_num_requests_total", "tgi_request_count",
        "dynamo_frontend_requests_total", "nv_inference_request_success",
    ),
    TOKENS: (
        "vllm:generation_tokens_total", "sglang:generation_tokens_total", "sglang_generation_tokens_total",
        "tgi_request_generated_tokens_sum", "dynamo_frontend_output_tokens_total", "llamacpp:tokens_predicted_total",
    ),
    TTFT: (
        "vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds", "sglang_time_to_first_token_seconds",
        "dynamo_frontend_time_to_first_token_seconds",
    ),
    ITL: (
        "vllm:inter_token_latency_seconds", "sglang:inter_token_latency_seconds", "sglang_inter_token_latency_seconds",
        "tgi_request_mean_time_per_token_duration", "dynamo_frontend_inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds", "sglang:time_per_output_token_seconds",
        "sglang_time_per_output_token_seconds",
    ),
    LATENCY: (
        "vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds", "sglang_e2e_request_latency_seconds",
        "tgi_request_duration", "dynamo_frontend_request_duration_seconds",
    ),
}  # fmt: skip
"""Names of each figure. Of one that an engine has under several names the first counts."""
WITHIN_RUNNING = frozenset({"dynamo_frontend_inflight_requests"})
"""Gauges of running requests that count those that wait, too."""

_BUCKET = "_bucket"
_KIND_OF = {
    name + (_BUCKET if kind in TIMES else ""): kind for kind, names in NAMES.items() for name in names
}  # fmt: skip
_FIND = names_matcher((*_KIND_OF, TRT_LLM))

Buckets = Mapping[float, float]
"""Of a histogram: how many were at most so long, by upper bound in seconds."""


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """One text: requests in work and waiting (gauges), requests done and tokens written (counters), times.

    None: the engine does not tell it.
    """

    running: float | None = None
    waiting: float | None = None
    done: float | None = None
    tokens: float | None = None
    times: Mapping[str, Buckets] = field(default_factory=dict)

    @property
    def present(self) -> float | None:
        """Requests in work or waiting."""
        return None if self.running is None else self.running + (self.waiting or 0.0)


@dataclass(frozen=True, slots=True)
class EngineUse:
    """What happened between two texts: requests done and tokens written, and times of what ended in between."""

    done: float | None
    tokens: float | None
    times: Mapping[str, Buckets]


def figures_in(text: str) -> EngineFigures:
    """Read a text of /metrics. Raises BadInput for one that is none."""
    sums: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    for name, labels, value in finite(text, _FIND):
        if name == TRT_LLM:
            kind = {"active": RUNNING, "waiting": WAITING}.get(labels.get("request_type", ""), "")
            sums[kind] = sums.get(kind, 0.0) + value
        elif _KIND_OF[name] in TIMES:
            of_name = buckets.setdefault(name, {})
            bound = _bound(labels)
            of_name[bound] = of_name.get(bound, 0.0) + value
        else:
            sums[name] = sums.get(name, 0.0) + value
    running, waiting = _first(RUNNING, sums), _first(WAITING, sums)
    if running is not None and waiting is not None and WITHIN_RUNNING & sums.keys():
        running = max(0.0, running - waiting)
    return EngineFigures(
        sums.get(RUNNING, running),
        sums.get(WAITING, waiting),
        _first(DONE, sums),
        _first(TOKENS, sums),
        {kind: found for kind in TIMES if (found := _first_buckets(kind, buckets))},
    )


def between(before: EngineFigures, after: EngineFigures) -> EngineUse:
    """Return what happened between two texts of one server; one that has started again counts from 0."""
    times = {
        kind: _since(before.times.get(kind, {}), buckets) for kind, buckets in after.times.items()
    }
    return EngineUse(
        _counted(before.done, after.done), _counted(before.tokens, after.tokens), times
    )


def quantile(share: float, of_servers: Iterable[Buckets]) -> float | None:
    """Return the time that this share of the requests of all servers did not exceed; None of none."""
    together: dict[float, float] = {}
    for buckets in of_servers:
        for bound, count in buckets.items():
            together[bound] = together.get(bound, 0.0) + count
    bounds = sorted(together)
    if not bounds or not together[bounds[-1]]:
        return None
    rank = share * together[bounds[-1]]
    low, below = 0.0, 0.0
    for bound in bounds:
        if together[bound] >= rank and together[bound] > below:
            if bound == inf:
                return low
            return low + (bound - low) * (rank - below) / (together[bound] - below)
        low, below = bound, max(below, together[bound])
    return low


def _bound(labels: Labels) -> float:
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return inf


def _first(kind: str, sums: Mapping[str, float]) -> float | None:
    return next((sums[name] for name in NAMES[kind] if name in sums), None)


def _first_buckets(kind: str, buckets: Mapping[str, Buckets]) -> Buckets | None:
    names = (name + _BUCKET for name in NAMES[kind])
    return next((buckets[name] for name in names if name in buckets), None)


def _counted(before: float | None, after: float | None) -> float | None:
    if after is None:
        return None
    return after if before is None or after < before else after - before


def _since(before: Buckets, after: Buckets) -> Buckets:
    """The histogram of what came between; of a server that started again all that it has."""
    if any(after.get(bound, 0.0) < count for bound, count in before.items()):
        return after
    return {bound: count - before.get(bound, 0.0) for bound, count in after.items()}
