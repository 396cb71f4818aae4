"""A request to a service whose prompts are read by prefill instances and whose answers are written by decode instances.

    step = reading the prompt + traffic of prefill + keys and values on their way + one token + traffic of decode

That is the time to the first token that the decode instance writes, without any waiting (Zhong et al. 2024, DistServe,
arXiv:2401.09670; Patel et al. 2024, Splitwise, arXiv:2311.18677). An instance is the next so many GPUs of its role in
rank order, the model split over all of them.

Bytes are told by the job or derived from its model, with b prompts of s tokens read at a time, a answers written at a
time, hidden width h, L layers, v bytes a value, P and D GPUs of an instance:

- prefill: two all-reduces of b s h v a layer, over the P GPUs (Shoeybi et al. 2019, section 3, forward only).
- kv: 2 b s h v x kv_share x L from one prefill instance to one decode instance. Each GPU holds its share of the heads;
  where D is r times P, each prefill GPU sends to r decode GPUs in turn, where P is r times D each decode GPU receives
  from r.
  Every prefill instance sends to every decode instance at some time; the price is that of the slowest pair. At one time
  an instance has one partner.
- decode: two all-reduces of a h v a layer, over the D GPUs, for one token.

Arithmetic of a prompt is 2 operations for each parameter that a token meets; a token of the answer takes as long as the
GPU reads its share of the parameters from memory (Pope et al. 2023, arXiv:2211.05102, section 2).
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import SERVING_TRAFFIC, AxisTraffic, Job, Serving, Transformer
from gantree.topology.cost.flow_cost import FlowCost, Step, cost_of_flow
from gantree.topology.cost.pricing import Pricer, Ranks
from gantree.topology.cost.roofline import MEMORY_GBps
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.hardware.constants import DEFAULT_MFU, traits
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.traffic.traffic import Flow, met_parameters

MOST_PARTNERS = 32
"""Decode instances to which each prefill instance is priced (and the other way round), evenly among all."""


def request_time(pricer: Pricer, job: Job, serving: Serving, ranks: Ranks) -> Step | None:
    """Price a request; None where the job tells neither its traffic nor its model.

    ranks are (node, GPU) of each rank, by index (`cost.ranks_of`). Raises BadInput where the roles are not whole
    instances, or a GPU's figures are not known.
    """
    if serving.model is None and serving.traffic is None:
        return None
    instances = {
        "prefill": _instances(job, "prefill", serving.prefill, ranks),
        "decode": _instances(job, "decode", serving.decode, ranks),
    }
    compute_s, assumed = _compute_s(pricer.traffic_index.fabric, job, serving, instances)
    flows = [
        _flow_cost(pricer, flow, instances)
        for flow in _flows(serving)
        if flow.calls and flow.size_bytes
    ]
    traffic_s = sum(flow.seconds for flow in flows)
    return Step(
        step_s=compute_s + traffic_s,
        compute_s=compute_s,
        bubble_s=0.0,
        comm_s=traffic_s,
        exposed_s=traffic_s,
        flows=tuple(flow for flow in flows if flow.group_size > 1),
        assumed=tuple(assumed),
    )


def _instances(job: Job, name: str, ways: int, ranks: Ranks) -> IntArray:
    """Places of a role, [instance, rank of the instance, (node, GPU)]."""
    first = 0
    for role in job.roles:
        gpus = role.members * role.shape.gpus
        if role.name == name and gpus and gpus % ways == 0:
            table = np.array(ranks[first : first + gpus], dtype=np.int64)
            if len(table) == gpus:
                return table.reshape(-1, ways, 2)
        first += gpus
    raise BadInput(f"job {job.name}: the role {name} does not have whole instances of {ways} GPUs")


def _flows(serving: Serving) -> Iterator[Flow]:
    """What one request sends: what the job tells of a kind, else what its model implies."""
    told = {each.axis: each for each in serving.traffic.axes} if serving.traffic else {}
    implied = _derived(serving.model) if serving.model else map(_silent, SERVING_TRAFFIC)
    for flow in (_as_told(flow, told.get(flow.axis)) for flow in implied):
        yield _by_pairs(flow, serving) if flow.axis == "kv" else flow


def _as_told(flow: Flow, told: AxisTraffic | None) -> Flow:
    if told is None:
        return flow
    collective = told.collective or flow.collective
    return Flow(flow.axis, collective, told.size_bytes / told.calls, told.calls)


def _silent(kind: str) -> Flow:
    """Traffic of a kind of which nothing is known."""
    return Flow(kind, "send_recv" if kind == "kv" else "all_reduce", 0.0, 0)


def _derived(model: Transformer) -> Iterator[Flow]:
    of_a_token = model.hidden * model.value_bytes
    tokens = model.micro_batch * model.sequence
    yield Flow("prefill", "all_reduce", tokens * of_a_token, 2 * model.layers)
    yield Flow("kv", "send_recv", 2 * tokens * of_a_token * model.kv_share * model.layers, 1)
    yield Flow("decode", "all_reduce", model.batch * of_a_token, 2 * model.layers)


def _by_pairs(flow: Flow, serving: Serving) -> Flow:
    """Keys and values of a whole instance as what one pair of GPUs sends, as often as a GPU has partners."""
    most, least = max(serving.prefill, serving.decode), min(serving.prefill, serving.decode)
    return replace(flow, size_bytes=flow.size_bytes / most, calls=flow.calls * (most // least))


def _flow_cost(pricer: Pricer, flow: Flow, instances: dict[str, IntArray]) -> FlowCost:
    if flow.axis != "kv":
        places = instances[flow.axis]
        return cost_of_flow(pricer, flow, places, np.zeros(len(places), dtype=np.int64))
    pairs, turns = kv_pairs(instances["prefill"], instances["decode"])
    return cost_of_flow(pricer, flow, pairs, turns)


def kv_pairs(prefill: IntArray, decode: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs of GPUs between which keys and values go, and the turn of each: no GPU has two partners in one turn.

    prefill and decode are [instance, rank, (node, GPU)]; pairs are [pair, 2, (node, GPU)].
    """
    more_readers = len(prefill) > len(decode)
    instance = np.arange(min(len(prefill), len(decode)), dtype=np.int64)
    rank = np.arange(min(prefill.shape[1], decode.shape[1]), dtype=np.int64)
    parts = max(prefill.shape[1], decode.shape[1]) // len(rank)
    turns = []
    for offset in _offsets(max(len(prefill), len(decode))):
        readers = prefill[(instance + offset) % len(prefill) if more_readers else instance]
        writers = decode[instance if more_readers else (instance + offset) % len(decode)]
        for part in range(parts):
            both = [each[:, _part(each, rank, part)] for each in (readers, writers)]
            turns.append(np.stack(both, axis=2).reshape(-1, 2, 2))
    turn_of_pair = np.repeat(np.arange(len(turns), dtype=np.int64), len(turns[0]))
    return np.concatenate(turns), turn_of_pair


def _part(places: IntArray, rank: IntArray, part: int) -> IntArray:
    """Ranks of an instance that take part in one part of a transfer: all, or of the wider instance every so manyth."""
    parts = places.shape[1] // len(rank)
    return rank * parts + part if parts > 1 else rank


def _offsets(instances: int) -> list[int]:
    """By how much the partner of an instance is shifted in each turn: all, or MOST_PARTNERS evenly among them."""
    if instances <= MOST_PARTNERS:
        return list(range(instances))
    return [turn * instances // MOST_PARTNERS for turn in range(MOST_PARTNERS)]


def _compute_s(
    fabric: Fabric, job: Job, serving: Serving, instances: dict[str, IntArray]
) -> tuple[float, list[str]]:
    """(seconds of reading a prompt and of writing a token, what was assumed for it)."""
    if serving.traffic is not None and serving.traffic.compute_s is not None:
        return serving.traffic.compute_s, []
    if serving.model is None:
        return 0.0, ["no computing: the job tells neither traffic.compute nor a model"]
    model = serving.model
    of_role = {role: _gpus(fabric, places) for role, places in instances.items()}
    peak = model.peak_TFLOPS or min(traits(gpu).peak_TFLOPS for gpu in of_role["prefill"])
    GBps = min(_memory_GBps(gpu) for gpu in of_role["decode"])
    if not peak or not GBps:
        unknown = ", ".join(
            sorted({gpu or "an unnamed model" for gpus in of_role.values() for gpu in gpus})
        )
        raise BadInput(
            f"job {job.name}: the arithmetic or the memory of GPUs of {unknown} is not known; write traffic.compute"
        )
    mfu = model.mfu or DEFAULT_MFU
    operations = 2.0 * met_parameters(model) * model.sequence * model.micro_batch
    prompt_s = operations / (serving.prefill * peak * 1e12 * mfu)
    token_s = model.parameters * model.value_bytes / (serving.decode * GBps * 1e9)
    return prompt_s + token_s, [] if model.mfu else [f"mfu {DEFAULT_MFU:g}"]


def _gpus(fabric: Fabric, places: IntArray) -> list[str | None]:
    """The GPU models of a role."""
    return list(
        {fabric.machine_of_node(node).gpu: None for node in np.unique(places[:, :, 0]).tolist()}
    )


def _memory_GBps(gpu: str | None) -> float:
    """0 for a model whose memory bandwidth is not known."""
    model = gpu_model(gpu)
    return MEMORY_GBps.get(model.name, 0.0) if model else 0.0
