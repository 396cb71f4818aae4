"""What `gantree replay` prints for people: figures beside each other, queues, starts that move, and how sure it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantree.cli.output.printing import columns, moment, printable, span
from gantree.sim.replay.comparison import Comparison
from gantree.text.words import plural

SIDES = {"recorded": "recorded", "recorded_policy": "recorded policy", "policy": "this policy"}
MOVED_SHOWN = 3
ERROR_OF_STARTS = "starts differ from the record by {p50} at the median and {p95} at p95"


def replay_lines(
    comparison: Comparison, document: dict[str, Any], out: Path | None
) -> Iterator[str]:
    """All that is printed."""
    recording = comparison.recording
    yield f"{plural(len(recording.jobs), 'job')} from {moment(recording.began_at)} to {moment(recording.read_to)}"
    yield ""
    yield _figures(document)
    yield ""
    yield _queues(document["queues"])
    yield ""
    yield from _starts(document["starts"])
    yield ""
    yield from _sure(document)
    if out is not None:
        yield f"Written to {out}."


def _figures(document: dict[str, Any]) -> str:
    sides = [side for side in SIDES if document[side] is not None]
    rows = [
        (
            "finished",
            *(f"{document[side]['finished']} of {document[side]['jobs']}" for side in sides),
        ),
        *(_times("wait", "wait_s", document, sides)),
        *(_times("completion", "jct_s", document, sides)),
        ("makespan", *(span(document[side]["makespan_s"]) for side in sides)),
        ("GPU utilisation", *(f"{document[side]['gpu_utilisation']:.1%}" for side in sides)),
        ("preemptions", *(str(document[side]["preemptions"]) for side in sides)),
        ("GPU hours lost", *(f"{document[side]['gpu_hours_lost']:.2f}" for side in sides)),
    ]
    return columns(["", *(SIDES[side] for side in sides)], rows)


def _times(
    noun: str, field: str, document: dict[str, Any], sides: list[str]
) -> Iterator[tuple[str, ...]]:
    for name in ("mean", "p50", "p99"):
        yield f"{noun} {name}", *(_span(document[side][field][name]) for side in sides)


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return span(seconds) if seconds >= 60 else f"{seconds:.1f}s"


def _queues(queues: dict[str, Any]) -> str:
    rows = [
        (
            printable(queue) if number == 0 else "",
            SIDES[side],
            f"{found['finished']} of {found['jobs']}",
            _span(found["wait_s"]["mean"]),
            _span(found["wait_s"]["p99"]),
            _span(found["jct_s"]["mean"]),
            str(found["preemptions"]),
            f"{found['gpu_hours']:.2f}",
        )
        for queue, of_side in queues.items()
        for number, (side, found) in enumerate(of_side.items())
    ]
    head = (
        "queue",
        "",
        "finished",
        "wait mean",
        "wait p99",
        "completion mean",
        "preemptions",
        "GPU hours",
    )
    return columns(head, rows)


def _starts(starts: dict[str, Any]) -> Iterator[str]:
    yield (
        f"Starts: {plural(starts['earlier'], 'job')} earlier, {starts['later']} later, {starts['same']} at the same"
        " time (within 1 s)."
    )
    for name, jobs in (("Earlier", starts["most_earlier"]), ("Later", starts["most_later"])):
        shown = (
            f"{printable(job['job'])} by {_span(abs(job['by_s']))}" for job in jobs[:MOVED_SHOWN]
        )
        if jobs:
            yield f"{name} most: {', '.join(shown)}."
    if starts["only_before"]:
        yield f"{plural(starts['only_before'], 'job')} would not have started at all."
    if starts["only_under_policy"]:
        yield f"{plural(starts['only_under_policy'], 'job')} would have started that did not."


def _sure(document: dict[str, Any]) -> Iterator[str]:
    """What the comparison rests on."""
    assumed, error = document["assumed"], document["error"]
    works = (f"{count} from {source}" for source, count in assumed["work_from"].items())
    yield f"Work of jobs: {', '.join(works)}."
    yield (
        f"A start takes {assumed['start_s']:.2f} s, a stop {assumed['stop_s']:.2f} s, a requested checkpoint"
        f" {assumed['save_s']:.2f} s (medians of {assumed['starts_measured']}, {assumed['stops_measured']} and"
        f" {assumed['saves_measured']} recorded ones)."
    )
    if assumed["carried_over"]:
        yield (
            f"{plural(assumed['carried_over'], 'job')} had not ended when the time began: submitted then with the work"
            " that was left, and not counted in waits and completions."
        )
    if assumed["policies"] > 1:
        yield f"{assumed['policies']} policies ruled in turn; the last of them is simulated as the recorded one."
    if assumed["jobs_not_in_the_journal"]:
        left_out = plural(assumed["jobs_not_in_the_journal"], "job")
        yield f"{left_out} had ended and are no longer in the journal: left out."
    if assumed["requests_since"] is not None:
        gone_before = moment(assumed["requests_since"])
        yield f"Requests of users and operators before {gone_before} are no longer in the journal."
    if error is None:
        yield "The recorded policy is not simulated, so nothing tells the error of the simulation."
    else:
        yield _error(error)


def _error(error: dict[str, Any]) -> str:
    starts = error["start_s"]
    told = (
        "nothing started"
        if starts["p50"] is None
        else ERROR_OF_STARTS.format(p50=_span(starts["p50"]), p95=_span(starts["p95"]))
    )
    makespan = "" if error["makespan"] is None else f", the makespan by {error['makespan']:+.1%}"
    return f"Error: under the recorded policy, {told}{makespan}; smaller differences mean nothing."
