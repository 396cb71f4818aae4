"""What a job that has ended used, as `seff` of Slurm prints it: lines, or one line."""

from collections.abc import Iterator
from typing import Any

from gantree.cli.output.figures import digits
from gantree.cli.output.printing import moment, span

Row = dict[str, Any]


def use_lines(row: Row) -> Iterator[tuple[str, str]]:
    """(name, value) of all that is on record."""
    yield "user, queue", ", ".join(filter(None, (row["user"], row["queue"])))
    yield "GPUs", _gpus(row)
    if row["started_at"] is not None:
        times = f"from {moment(row['started_at'])} to {moment(row['ended_at'])}"
        yield "wall time", f"{span(row['ended_at'] - row['started_at'])}, {times}"
    yield "queue wait", span(row["waited_s"])
    yield "attempts", ", ".join(_attempts(row))
    if row["held_gpu_s"]:
        yield "GPU-hours held", digits(row["held_gpu_s"] / 3600)
        yield "GPU-hours lost", _lost(row)
        yield from _measured(row)
    if row["last_failure"]:
        yield "last failure", row["last_failure"]


def end_line(row: Row) -> str:
    """The same in one line."""
    parts = [_gpus(row)]
    if row["started_at"] is not None:
        parts.append(f"wall time {span(row['ended_at'] - row['started_at'])}")
    parts.append(f"queue wait {span(row['waited_s'])}")
    if row["held_gpu_s"]:
        parts.append(f"{digits(row['held_gpu_s'] / 3600)} GPU-hours, {_lost(row)} lost")
    parts += _attempts(row)[1:]
    return "; ".join(parts)


def _gpus(row: Row) -> str:
    model = f" x {row['gpu_model']}" if row["gpu_model"] else ""
    where = f" on {row['nodes']}" if row["nodes"] else ", never placed"
    return f"{row['gpus']}{model or ' GPUs'}{where}"


def _lost(row: Row) -> str:
    lost = row["lost_gpu_s"]
    return f"{digits(lost / 3600)} ({lost / row['held_gpu_s']:.0%})" if lost else "0"


def _measured(row: Row) -> Iterator[tuple[str, str]]:
    """What counters told of its GPUs, where they told anything."""
    if row["useful_gpu_s"] or row["idle_gpu_s"]:
        for name in ("useful", "idle"):
            gpu_s = max(0.0, row[f"{name}_gpu_s"])
            yield f"GPU-hours {name}", f"{digits(gpu_s / 3600)} ({gpu_s / row['held_gpu_s']:.0%})"


def _attempts(row: Row) -> list[str]:
    parts = [str(row["attempts"])]
    parts += [f"preempted {row['preemptions']} x"] if row["preemptions"] else []
    return parts + ([f"failed {row['failures']} x"] if row["failures"] else [])
