"""One measurement: what is there, the tool to time it with, and the resulting calibration.

NCCL chooses among algorithms by size, and in-network reduction makes an all-reduce faster than its links. So links are
fitted to a pass in which all-reduce is a ring (NCCL_ALGO=Ring), and the rows come from a second one in which NCCL
chooses as it does for jobs. An NCCL_ALGO of the caller's own holds for both. gloo has only rings: one pass is enough.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gantree.model.cluster import Link
from gantree.model.errors import BadInput, Unreachable, Unsupported
from gantree.telemetry.measuring.binaries import binary, time_with_binaries
from gantree.telemetry.measuring.fit import links_of
from gantree.telemetry.measuring.ranks import time_with_torch
from gantree.telemetry.measuring.request import Advance, Found, Task
from gantree.topology.fabric.calibration import Calibration, MeasuredRow

BACKENDS = ("auto", "nccl-tests", "nccl", "gloo")
RING = {"NCCL_ALGO": "Ring"}


def chosen_backend(wish: str, gpus: int, several_commands: bool, binaries: Path | None) -> str:
    """Return with what to measure: what was wished, or what there is.

    Raises BadInput for an unknown wish, Unreachable for GPUs where there are none, Unsupported for programs of
    nccl-tests across nodes.
    """
    if wish not in BACKENDS:
        raise BadInput(f"--backend {wish}: allowed: {', '.join(BACKENDS)}")
    if wish == "auto":
        if gpus == 0:
            return "gloo"
        return "nccl-tests" if not several_commands and binary("all_reduce", binaries) else "nccl"
    if wish != "gloo" and gpus == 0:
        raise Unreachable(
            f"--backend {wish} needs GPUs, and no driver tells of any here; say how many with --gpus, "
            "or measure the processors with --backend gloo"
        )
    if wish == "nccl-tests" and several_commands:
        raise Unsupported(
            "across nodes only --backend nccl and gloo measure; nccl-tests needs MPI there"
        )
    return wish


def visible_gpus(uuids: Sequence[str], env: Mapping[str, str]) -> tuple[int, ...]:
    """Return which GPUs of the driver's list this process may use: CUDA_VISIBLE_DEVICES by number or UUID, or all.

    As CUDA does, it stops at the first entry that names none.
    """
    told = env.get("CUDA_VISIBLE_DEVICES")
    if told is None:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for word in (part.strip() for part in told.split(",")):
        named = [
            i for i, uuid in enumerate(uuids) if word == str(i) or (word and uuid.startswith(word))
        ]
        if len(named) != 1 or named[0] in found:
            break
        found += named
    return tuple(found)


def measure(task: Task, backend: str, advance: Advance) -> Found | None:
    """Time a task with "nccl-tests", "nccl" or "gloo". None on commands without rank 0.

    The rows of links come first, those of other passes after them. Errors as in `binaries` and `ranks`.
    """
    until = time.monotonic() + task.timeout_s
    passes = _passes(task.collectives, backend)
    found: Found | None = None
    for number, (collectives, env) in enumerate(passes):
        left = replace(task, collectives=collectives, timeout_s=max(1.0, until - time.monotonic()))
        part = _one_pass(left, backend, env, number, _part_of(advance, number, len(passes)))
        found = part if found is None or part is None else _joined(found, part)
    return found


def _passes(
    collectives: tuple[str, ...], backend: str
) -> list[tuple[tuple[str, ...], dict[str, str]]]:
    """The collectives of each pass and what its environment says."""
    if backend == "gloo" or "NCCL_ALGO" in os.environ or "all_reduce" not in collectives:
        return [(collectives, {})]
    return [(("all_reduce",), RING), (collectives, {})]


def _one_pass(
    task: Task, backend: str, env: Mapping[str, str], number: int, advance: Advance
) -> Found | None:
    if backend == "nccl-tests":
        return time_with_binaries(task, task.collectives, env, advance)
    return time_with_torch(task, backend, env, number, advance)


def _part_of(advance: Advance, number: int, count: int) -> Advance:
    return lambda done, total: advance(number * total + done, count * total)


def _joined(first: Found, second: Found) -> Found:
    warnings = tuple(dict.fromkeys((*first.warnings, *second.warnings)))
    return replace(second, rows=(*first.rows, *second.rows), warnings=warnings)


def calibration_of(
    found: Found, host: str, now: datetime | None = None
) -> tuple[Calibration, tuple[str, ...]]:
    """Return what was found as a calibration of a host, dated in UTC, and warnings.

    Figures have as many digits as can be meant. Where a point was timed in two passes, links are fitted to the first
    and the row is the second.
    """
    first: dict[tuple[object, ...], MeasuredRow] = {}
    last: dict[tuple[object, ...], MeasuredRow] = {}
    for row in found.rows:
        point = (row.collective, row.ranks, row.nodes, row.size_bytes, row.within)
        first.setdefault(point, row)
        last[point] = row
    links = links_of(first.values())
    weak = [
        f"{name}: even the largest messages were mostly latency; its bandwidth is a lower bound, "
        "measure larger sizes"
        for name, fitted in links.items()
        if not fitted.told
    ]
    calibration = Calibration(
        found.library,
        host,
        (now or datetime.now(UTC)).date().isoformat(),
        {name: _link_rounded(fitted.link) for name, fitted in links.items()},
        tuple(
            replace(row, time_s=_rounded(row.time_s), busbw_GBps=_rounded(row.busbw_GBps))
            for row in last.values()
        ),
    )
    return calibration, (*found.warnings, *weak)


def _link_rounded(link: Link) -> Link:
    return replace(
        link, bandwidth_GBps=_rounded(link.bandwidth_GBps), latency_us=_rounded(link.latency_us)
    )


def _rounded(figure: float) -> float:
    return float(f"{figure:.4g}")
