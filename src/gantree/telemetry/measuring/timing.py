"""How a rank of torch.distributed times one collective: `series` is the way in.

A time is the median over batches of the slowest rank's mean over a batch. Programs of ranks import this; it imports
torch, which is an optional dependency, so nothing else may.
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

BYTES_OF_ELEMENT = 4
BATCH_S = 0.02
"""How long a batch should take; so many collectives are in it, up to MOST_IN_BATCH."""
MOST_IN_BATCH = 200
BATCHES = 5
WARM_UP = 3


def series(
    name: str, ranks: tuple[int, ...], handle: Any, sizes: list[int], device: torch.device
) -> dict[str, Any]:
    """Time one collective at all sizes: {"times": [[bytes, seconds], ...]}, or {"unsupported": why}."""
    times = []
    for size in sizes:
        elements = len(ranks) * max(1, round(size / BYTES_OF_ELEMENT / len(ranks)))
        try:
            operation = _operation(name, ranks, handle, elements, device)
            operation()
        except (RuntimeError, NotImplementedError, ValueError) as error:
            return {"unsupported": str(error).splitlines()[0][:200] if str(error) else repr(error)}
        times.append([elements * BYTES_OF_ELEMENT, _time_s(operation, handle, device)])
    return {"times": times}


def _operation(
    name: str, ranks: tuple[int, ...], handle: Any, elements: int, device: torch.device
) -> Callable[[], object]:
    """Return a collective with its buffers: `elements` is what nccl-tests call the size, over 4 bytes."""
    whole = torch.zeros(elements, device=device)
    other = torch.zeros_like(whole)
    share = torch.zeros(elements // len(ranks), device=device)
    parts = list(whole.chunk(len(ranks)))
    operations: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=handle),
        "all_gather": lambda: dist.all_gather(parts, share, group=handle),
        "reduce_scatter": lambda: dist.reduce_scatter(share, parts, group=handle),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=handle),
        "broadcast": lambda: dist.broadcast(whole, ranks[0], group=handle),
        "reduce": lambda: dist.reduce(whole, ranks[0], group=handle),
        "send_recv": _ring_step(ranks, handle, whole, other),
    }
    return operations[name]


def _ring_step(
    ranks: tuple[int, ...], handle: Any, whole: torch.Tensor, other: torch.Tensor
) -> Callable[[], object]:
    """Every rank sends to the next one and receives from the one before."""
    here = ranks.index(dist.get_rank())

    def step() -> None:
        after, before = ranks[(here + 1) % len(ranks)], ranks[here - 1]
        both = [
            dist.P2POp(dist.isend, whole, after, handle),
            dist.P2POp(dist.irecv, other, before, handle),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    return step


def _time_s(operation: Callable[[], object], handle: Any, device: torch.device) -> float:
    for _ in range(WARM_UP - 1):
        operation()
    once_s = _batch_s(operation, 1, handle, device)
    count = max(1, min(MOST_IN_BATCH, math.ceil(BATCH_S / once_s)))
    return statistics.median(_batch_s(operation, count, handle, device) for _ in range(BATCHES))


def _batch_s(
    operation: Callable[[], object], count: int, handle: Any, device: torch.device
) -> float:
    """Seconds of one collective of a batch, on the rank where it took longest; the same on all ranks."""
    slowest = torch.zeros(1, device=device)
    dist.all_reduce(slowest, group=handle)  # all begin together
    finish(device)
    began = time.perf_counter()
    for _ in range(count):
        operation()
    finish(device)
    slowest[0] = (time.perf_counter() - began) / count
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=handle)
    return float(slowest.item())


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
