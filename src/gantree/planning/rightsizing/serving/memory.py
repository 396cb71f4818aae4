"""Memory that serving a model takes on each GPU, part by part, and the requests for which there is room.

Per GPU, with T ways of tensor parallelism, N parameters, L layers, width h, keys and values of width k:

- weights: parameters x bytes of each / T. The tables of the vocabulary stay at 16 bits in 8 and 4 bit formats (a 70B
  model in 8 bits takes 67.7 GiB, vLLM pull request 12569; 65.7 would be one byte for each parameter).
- cache: 2 x L x k x bytes a value x context, for each request (vLLM documentation; Pope et al. 2023, arXiv:2211.05102).
  Heads of keys and values are shared out over T; where T is larger than their number, each GPU has one.
- activations: ACTIVATION_WIDTHS x h x 2 bytes for each token that is read at once, at most CHUNK of them.
- reserve: RESERVE_GiB.
- of a GPU's memory an engine uses USED_SHARE.

USED_SHARE: vLLM's default (`gpu_memory_utilization`). CHUNK: vLLM's largest default of `max_num_batched_tokens` for a
service. ACTIVATION_WIDTHS: Llama 3.1 8B took 2.07 GiB for 20,000 tokens and 2.99 for 29,000, 13 x h x 2 bytes each
(vLLM issue 10517). RESERVE_GiB: with these, what pull request 10511 prints beside weights and cache of Llama 3 8B on an
H100, 3.05 GiB; context of CUDA, libraries, buffers of NCCL, graphs and logits.
"""

from dataclasses import dataclass

from gantree.model.served_models import ServedModel, ServingDemand
from gantree.planning.rightsizing.serving.devices import Device

GIB = float(1 << 30)
USED_SHARE = 0.9
CHUNK = 8192
ACTIVATION_WIDTHS = 13
RESERVE_GiB = 2.0
TABLE_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """GiB on each GPU. usable is what the engine may use, request what the cache of one request takes."""

    usable: float
    weights: float
    activations: float
    reserve: float
    request: float

    @property
    def cache(self) -> float:
        """What is left for the cache; less than 0 where even the model does not fit."""
        return self.usable - self.weights - self.activations - self.reserve

    @property
    def requests(self) -> int:
        """Requests of the full context for which there is room; 0 for none."""
        return max(0, int(self.cache / self.request))


def serving_memory(model: ServedModel, device: Device, demand: ServingDemand) -> ServingMemory:
    """Return what each GPU of a device needs."""
    read_at_once = min(demand.context, CHUNK)
    return ServingMemory(
        usable=USED_SHARE * device.memory_GiB,
        weights=weight_bytes(model, demand, model.parameters) / device.gpus / GIB,
        activations=ACTIVATION_WIDTHS * model.hidden * 2.0 * read_at_once / GIB,
        reserve=RESERVE_GiB,
        request=cache_bytes(model, demand, demand.context) * cache_part(model, device.gpus) / GIB,
    )


def weight_bytes(model: ServedModel, demand: ServingDemand, parameters: float) -> float:
    """Bytes of so many of a model's parameters, the tables of its vocabulary among them, on all GPUs together."""
    tables = min(model.table_parameters, parameters)
    return (parameters - tables) * demand.weight_bytes + tables * max(
        demand.weight_bytes, TABLE_BYTES
    )


def cache_bytes(model: ServedModel, demand: ServingDemand, tokens: float) -> float:
    """Bytes of the keys and values of so many tokens, all layers and heads."""
    return 2.0 * model.layers * model.kv_width * demand.cache_bytes * tokens


def cache_part(model: ServedModel, ways: int) -> float:
    """The part of all keys and values that each of so many GPUs has."""
    return 1.0 / ways if model.kv_heads is None else max(1.0 / ways, 1.0 / model.kv_heads)
