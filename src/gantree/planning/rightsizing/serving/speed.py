"""Time to the first token and between tokens of a copy of a model that writes answers to b requests at once.

    first token  = the larger of  2 x active parameters x prompt + attention  over the arithmetic
                              and the weights over the memory bandwidth,  + traffic of 2 all-reduces a layer
    step         = the larger of  (weights + cache of b requests) over the memory bandwidth
                              and 2 x active parameters x b  over the arithmetic,  + traffic of 2 all-reduces a layer
    between tokens = step + b x first token / tokens of an answer

The last term: while b answers are written, one prompt is read for each answer that ends (continuous batching).
Attention of a prompt of s tokens is 2 x layers x width x s^2 operations, half of it saved by being causal (Korthikanti
et al. 2022, arXiv:2205.05198). A step reads keys and values of the prompt and of half an answer. Of a mixture of
experts it reads those that b tokens meet. Traffic is priced as elsewhere (`topology.cost`), at NCCL's figures; engines'
own small all-reduces are faster.

MEMORY_SHARE and ARITHMETIC_SHARE of the data sheet's rates are fitted: `tests/planning/serving` compares 24 published
figures of lmdeploy (Llama 2 7B and 70B on A100) and TensorRT-LLM (A100, H100, L40S); most are within a quarter.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gantree.model.served_models import ServedModel, ServingDemand
from gantree.planning.rightsizing.serving.devices import Device
from gantree.planning.rightsizing.serving.memory import cache_bytes, cache_part, weight_bytes

MEMORY_SHARE = 0.65
ARITHMETIC_SHARE = 0.5
MOST_REQUESTS = 1024
"""Requests that one copy answers at once at most: vLLM's default of `max_num_seqs` on large GPUs."""

AllReduce = Callable[[float], float]
"""Seconds of an all-reduce of so many bytes over the GPUs of a device."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds by what limits them."""

    bandwidth: float = 0.0
    compute: float = 0.0
    traffic: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.bandwidth + self.compute + self.traffic

    @property
    def limit(self) -> str:
        """What most of the time is for: bandwidth, compute or traffic."""
        parts = ("bandwidth", self.bandwidth), ("compute", self.compute), ("traffic", self.traffic)
        return max(parts, key=lambda part: part[1])[0]

    def plus(self, other: "Spent", times: float) -> "Spent":
        """This and so many times another."""
        return Spent(
            self.bandwidth + times * other.bandwidth,
            self.compute + times * other.compute,
            self.traffic + times * other.traffic,
        )


class CopySpeed:
    """The speed of one copy of a model on a device, whose rates are known."""

    def __init__(
        self, model: ServedModel, device: Device, demand: ServingDemand, all_reduce: AllReduce
    ) -> None:
        self._model, self._device, self._demand = model, device, demand
        self._all_reduce = all_reduce
        ways = device.gpus
        self._bytes_s = device.GBps * 1e9 * MEMORY_SHARE * ways
        is_8bit = demand.weight_bytes == 1.0
        peak = device.TFLOPS_8bit if is_8bit else device.TFLOPS
        self._operations_s = peak * 1e12 * ARITHMETIC_SHARE * ways
        self.first_token = self._first_token()

    def _first_token(self) -> Spent:
        model, demand = self._model, self._demand
        attention = 2.0 * model.layers * model.hidden * demand.prompt**2
        compute_s = (2.0 * model.active_parameters * demand.prompt + attention) / self._operations_s
        memory_s = self._weights_read(demand.prompt) / self._bytes_s
        return self._larger(memory_s, compute_s, demand.prompt)

    def between_tokens(self, requests: int) -> Spent:
        """Mean time from a token to the next of one answer, while so many are written."""
        model, demand = self._model, self._demand
        tokens = demand.prompt + demand.answer / 2.0
        held = cache_part(model, self._device.gpus) * self._device.gpus
        cache = requests * cache_bytes(model, demand, tokens) * held
        memory_s = (self._weights_read(requests) + cache) / self._bytes_s
        compute_s = 2.0 * model.active_parameters * requests / self._operations_s
        step = self._larger(memory_s, compute_s, requests)
        return step.plus(self.first_token, requests / demand.answer)

    def most_requests(self) -> int:
        """Requests at once that the target between tokens allows, at most MOST_REQUESTS; 0 for not one."""
        least, most = 0, MOST_REQUESTS
        while least < most:
            middle = (least + most + 1) // 2
            if self.between_tokens(middle).total <= self._demand.token_s:
                least = middle
            else:
                most = middle - 1
        return least

    def _weights_read(self, tokens: float) -> float:
        model = self._model
        met = model.parameters - model.expert_parameters + model.read_experts(tokens)
        return weight_bytes(model, self._demand, met)

    def _larger(self, memory_s: float, compute_s: float, tokens: float) -> Spent:
        size_bytes = tokens * self._model.hidden * 2.0
        traffic_s = 2.0 * self._model.layers * self._all_reduce(size_bytes)
        if memory_s >= compute_s:
            return Spent(bandwidth=memory_s, traffic=traffic_s)
        return Spent(compute=compute_s, traffic=traffic_s)
