"""The program of one rank: `python -m gantree.telemetry.measuring.rank SPEC.json LOCAL_INDEX`, started by `ranks`.

All ranks make the same plan and go through it together, one set of ranks and one collective at a time; the others
wait. A time is the median over batches of the slowest rank's mean over a batch. Rank 0 appends what was found to a
file, a JSON object a line. A rank ends itself when its deadline has passed or its parent is gone, so nothing here can
hang.

Only this module imports torch, which is an optional dependency, and nothing imports this module.
"""

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gantree.telemetry.measuring.lifetime import end_with_parent
from gantree.telemetry.measuring.plan import Together, all_groups

BYTES_OF_ELEMENT = 4
BATCH_S = 0.02
"""How long a batch should take; so many collectives are in it, up to MOST_IN_BATCH."""
MOST_IN_BATCH = 200
BATCHES = 5
WARM_UP = 3


def main() -> None:
    """Take part as the rank that the arguments name."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    local = int(sys.argv[2])
    end_with_parent(spec["seconds"], os.getppid())
    device = (
        torch.device("cuda", spec["first_gpu"] + local) if spec["cuda"] else torch.device("cpu")
    )
    if spec["cuda"]:
        torch.cuda.set_device(device)
    dist.init_process_group(
        spec["backend"],
        init_method=spec["meet"],
        rank=spec["first_rank"] + local,
        world_size=spec["world"],
        timeout=timedelta(seconds=spec["seconds"]),
    )
    _go_through(spec, device)
    dist.destroy_process_group()


def _go_through(spec: dict[str, Any], device: torch.device) -> None:
    nodes: list[Any] = [None] * spec["world"]
    dist.all_gather_object(nodes, spec["node"])
    groups = all_groups(
        nodes,
        [Together(within, tuple(ranks)) for within, ranks in spec["in_first_node"]],
        spec["tiers"],
        spec["place_of_node"],
    )
    here = dist.get_rank()
    handles = [dist.new_group(list(group.ranks)) for group in groups]
    if here == 0:
        library = "rccl" if spec["cuda"] and torch.version.hip else spec["backend"]
        _tell(spec, {"library": library, "nodes": sorted(set(nodes))})
    tasks = [(number, name) for number in range(len(groups)) for name in spec["collectives"]]
    for done, (number, name) in enumerate(tasks, start=1):
        group = groups[number]
        found: dict[str, Any] = {}
        if here in group.ranks:
            found = _series(name, group.ranks, handles[number], spec["sizes"], device)
        found_by_rank: list[Any] = [None] * spec["world"]
        dist.all_gather_object(found_by_rank, found if here == group.ranks[0] else None)
        if here == 0:
            on = len({nodes[rank] for rank in group.ranks})
            named = {
                "within": group.within,
                "ranks": len(group.ranks),
                "nodes": on,
                "collective": name,
            }
            _tell(spec, named | found_by_rank[group.ranks[0]] | {"done": done, "total": len(tasks)})


def _tell(spec: dict[str, Any], found: dict[str, Any]) -> None:
    with Path(spec["out"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")


def _series(
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
    _finish(device)
    began = time.perf_counter()
    for _ in range(count):
        operation()
    _finish(device)
    slowest[0] = (time.perf_counter() - began) / count
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=handle)
    return float(slowest.item())


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
