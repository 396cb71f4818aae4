"""GPU utilisation by job, from the counters of its GPUs, as plain JSON values. No HTTP here.

Counters are those of whole GPUs. Where a job holds a part of one, the figures are of all who share it; a GPU that
somebody shares whom the caller may not see tells him nothing, as on the page of the cluster.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gantree.api.access.access import Caller
from gantree.api.access.permissions import sees
from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.state import JobState
from gantree.telemetry.gpu_use import GpuUse, UseOfGpu

Json = dict[str, Any]
Gpu = tuple[str, int]
"""A node, and the index of a GPU there."""


def held(view: ReadView, caller: Caller) -> Json:
    """The nodes of the site, and a row for each job that holds GPUs and that the caller may see.

    `gpus` of a row are those of which he may know how busy they are.
    """
    ledger = view.ledger
    states = list(ledger.holding.values())
    hidden = {gpu for state in states if not sees(caller, state) for gpu in gpus_of(state)}
    fabric = ledger.fabric
    return {
        "nodes": [] if fabric is None else [node.name for node in fabric.cluster.nodes],
        "rows": [
            _row(state, hidden) for state in states if sees(caller, state) and any(gpus_of(state))
        ],
    }


def measured(rows: Sequence[Json], use_of_node: Mapping[str, UseOfGpu]) -> list[Json]:
    """The rows with what counters tell in the place of `gpus`, the least busy first, those that tell nothing last."""
    told = [_measured(row, use_of_node) for row in rows]
    return sorted(told, key=lambda row: (row["busy"] is None, row["busy"] or 0.0, row["name"]))


def _row(state: JobState, hidden: set[Gpu]) -> Json:
    gpus = dict.fromkeys(gpus_of(state))
    parts = any(
        member.mig or member.share
        for member in (state.placement.members if state.placement else ())
    )
    return {
        "name": state.job,
        "user": state.spec.user,
        "queue": state.spec.queue,
        "phase": state.phase.value,
        "held_gpus": len(gpus),
        "is_shared": parts,
        "gpus": [gpu for gpu in gpus if gpu not in hidden],
    }


def gpus_of(state: JobState) -> Iterator[Gpu]:
    """The GPUs of which a job holds anything."""
    for member in state.placement.members if state.placement is not None else ():
        for gpu in (*member.gpus, *(part.gpu for part in member.mig)):
            yield member.node, gpu
        if member.share is not None:
            yield member.node, member.share.gpu


def _measured(row: Json, use_of_node: Mapping[str, UseOfGpu]) -> Json:
    known = [
        use for node, gpu in row["gpus"] if (use := use_of_node.get(node, {}).get(gpu)) is not None
    ]
    busy = _known_figures(known, lambda use: use.busy)
    return {
        **{name: value for name, value in row.items() if name != "gpus"},
        "told_gpus": len(busy),
        "busy": sum(busy) / len(busy) if busy else None,
        "least_busy": min(busy, default=None),
        "memory_GiB": _sum(_known_figures(known, lambda use: use.memory_GiB)),
        "power_W": _sum(_known_figures(known, lambda use: use.power_W)),
    }


def _known_figures(
    known: Sequence[GpuUse], figure: Callable[[GpuUse], float | None]
) -> list[float]:
    return [value for use in known if (value := figure(use)) is not None]


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values else None
