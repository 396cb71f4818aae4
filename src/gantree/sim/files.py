"""The files of a simulation: summary.json, jobs.csv, timeline.csv, report.html.

Equal results give equal bytes: no dates, no machine names, one way to write each number.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from itertools import chain, groupby
from pathlib import Path
from typing import Any, TextIO

from gantree.model.errors import BadInput, Unsupported
from gantree.sim.inputs import Inputs
from gantree.sim.measures.summary import measures_of
from gantree.sim.measures.timeline import Timeline, timeline_of
from gantree.sim.report.page import page
from gantree.sim.results import DIGITS, JobRow, Result


def write(
    result: Result, out: Path, inputs: Inputs | None = None, *, report: bool = True
) -> str | None:
    """Write the files into a directory, made where it is missing. Raises BadInput if that cannot be.

    Where the extra with the charts is not installed, there is no report.html, and the reason is returned. Results that
    do not name their inputs cannot be compared. report: whether a page is wanted at all.
    """
    timeline = timeline_of(result)
    told = summary(result, inputs, timeline)
    texts: dict[str, str | None] = {
        "summary.json": json.dumps(told, indent=2) + "\n",
        "timeline.csv": timeline_csv(timeline),
    }
    texts["report.html"], missing = _report(result, timeline, told) if report else (None, None)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "jobs.csv").open("w", encoding="utf-8", newline="") as file:
            _write_jobs(result, file)
        for name, text in texts.items():
            if text is None:
                (out / name).unlink(
                    missing_ok=True
                )  # one of an earlier run would be of other results
            else:
                (out / name).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise BadInput(f"{out}: results cannot be written there: {error.strerror}") from error
    return missing


def _report(
    result: Result, timeline: Timeline, told: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """(the page, None), or (None, why there is none)."""
    try:
        return page(result, timeline, told), None
    except Unsupported as error:
        return None, str(error)


def summary_json(result: Result, inputs: Inputs | None = None) -> str:
    """The text of summary.json."""
    return json.dumps(summary(result, inputs), indent=2) + "\n"


def summary(
    result: Result, inputs: Inputs | None = None, timeline: Timeline | None = None
) -> dict[str, Any]:
    """The figures and measures of a run, and what was run where that is known."""
    told = result.summary() | measures_of(result, timeline)
    return told | ({} if inputs is None else {"inputs": inputs.document()})


def timeline_csv(timeline: Timeline) -> str:
    """The text of timeline.csv: a row for each part of the time, with means over it."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    tiers = list(timeline.free_in_whole)
    head = ["from_s", "to_s", "gpus", "held_gpus", "useful_gpus", "waiting_jobs", "jain_index"]
    writer.writerow([*head, *(f"free_gpus_in_whole_{tier}" for tier in tiers)])
    for part in range(timeline.parts):
        numbers = [
            *timeline.edges_s[part : part + 2],
            timeline.gpus,
            timeline.held[part].mean,
            timeline.useful[part],
            timeline.waiting[part].mean,
            timeline.jain[part],
            *(timeline.free_in_whole[tier][part] for tier in tiers),
        ]
        writer.writerow(map(seconds, numbers))
    return text.getvalue()


def jobs_csv(result: Result) -> str:
    """The text of jobs.csv: a header and a row a job, in the order of the trace; lines end with a line feed."""
    text = StringIO()
    _write_jobs(result, text)
    return text.getvalue()


def _write_jobs(result: Result, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    of_running = result.running.on
    writer.writerow([*columns(result.tiers), *(RUNNING_COLUMNS if of_running else ())])
    for row in chain(result.jobs, result.replicas):
        cells = _cells(row, len(result.tiers))
        writer.writerow([*cells, *_running_cells(row)] if of_running else cells)


RUNNING_COLUMNS = ("useful_gpu_s", "stretch", "failures", "gpu_s_lost_to_failures")
"""Columns that follow where a model of running is on."""


def columns(tiers: Sequence[str]) -> list[str]:
    """The header of jobs.csv."""
    return [
        *("job_id", "queue", "submit_s", "first_start_s", "end_s", "wait_s", "jct_s"),
        *("attempts", "gpus"),
        *(f"domains_{tier}" for tier in tiers),
        *("placement", "members", "preemptions", "gpu_s_lost", "outcome", "reason", "stops"),
    ]


def _cells(row: JobRow, tiers: int) -> list[str | int]:
    times = (row.submit_s, row.first_start_s, row.end_s, row.wait_s, row.jct_s)
    return [
        row.job_id,
        row.queue,
        *(seconds(time_s) for time_s in times),
        row.attempts,
        seconds(row.gpus),
        *(row.domains or ("",) * tiers),
        placement_text(row),
        row.members,
        row.preemptions,
        seconds(row.gpu_s_lost),
        row.outcome,
        row.reason,
        stops_text(row),
    ]


def _running_cells(row: JobRow) -> list[str | int]:
    return [
        seconds(row.useful_gpu_s),
        seconds(row.stretch),
        row.failures,
        seconds(row.gpu_s_lost_to_failures),
    ]


def seconds(time_s: float | None) -> str:
    """A number with at most DIGITS decimal places and no trailing zeros; empty for none."""
    if time_s is None:
        return ""
    text = f"{time_s:.{DIGITS}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def placement_text(row: JobRow) -> str:
    """Nodes and GPUs of the last attempt: "n0:0-7;n1:0-3,6"; a node alone where no GPU is held on it.

    A part of a GPU is its MIG profile or its share: "n0:0/3g.40gb", "n0:1/0.5".
    """
    if row.placement is None:
        return ""
    parts_of_node: dict[str, list[str]] = {}
    for member in row.placement.members:
        parts = [f"{part.gpu}/{part.profile}" for part in member.mig]
        parts += [f"{member.share.gpu}/{member.share.compute:g}"] if member.share else []
        parts_of_node.setdefault(member.node, []).extend(parts)
    held = (
        (node, ",".join(filter(None, (ranges(sorted(gpus)), *parts_of_node.get(node, ())))))
        for node, gpus in row.placement.gpus_of_node().items()
    )
    return ";".join(f"{node}:{text}" if text else node for node, text in held)


def stops_text(row: JobRow) -> str:
    """When the job was stopped, why, and for which job: "3600 reclaim b;7200 moved c"."""
    words = ((seconds(stop.at_s), stop.cause, stop.by) for stop in row.stops)
    return ";".join(" ".join(filter(None, each)) for each in words)


def ranges(rising: Iterable[int]) -> str:
    """Rising numbers as "0-3,6"."""
    runs = []
    for _, run in groupby(enumerate(rising), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        runs.append(f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0]))
    return ",".join(runs)
