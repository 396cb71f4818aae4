"""`gantree what-if JOB`: when a job of the daemon would start with other requests. Nothing changes.

Each option is an alternative of its own, each time it is given; with --together all of them are one.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import client, job_named
from gantree.cli.explain.start_lines import names, start_line
from gantree.cli.options import class_or_number
from gantree.cli.output.printing import print_json, span
from gantree.formats.validation.fields import duration_above_zero
from gantree.model.errors import BadInput
from gantree.text.words import plural

NEVER_NOW = 3

RelaxOption = Annotated[
    list[str] | None,
    typer.Option(
        "--relax", metavar="TIER", help="Place all members in one domain of TIER; none: anywhere."
    ),
]
SizeOption = Annotated[
    list[int] | None, typer.Option("--members", metavar="N", min=1, help="Use N members.")
]
GpuOption = Annotated[
    list[str] | None, typer.Option("--gpu", metavar="MODEL", help="Use GPUs of this model.")
]
PriorityOption = Annotated[
    list[str] | None,
    typer.Option("--priority", metavar="P", help="Use this priority class or number."),
]
TimeLimitOption = Annotated[
    list[str] | None,
    typer.Option("--time-limit", metavar="D", help="Use this time limit: 90m, 8h."),
]
QueueOption = Annotated[
    list[str] | None, typer.Option("--queue", metavar="Q", help="Use this queue.")
]
TogetherOption = Annotated[
    bool, typer.Option("--together", help="Combine all options into one alternative.")
]

Change = dict[str, str | int | float | None]
HOW = {
    "preempt": "preempts", "reclaim": "takes back what is borrowed by", "order": "goes before",
    "shrink": "shrinks", "move": "moves",
}  # fmt: skip


def changes_of(
    relax: Sequence[str] | None,
    members: Sequence[int] | None,
    gpu: Sequence[str] | None,
    priority: Sequence[str] | None,
    time_limit: Sequence[str] | None,
    queue: Sequence[str] | None,
    *,
    together: bool,
) -> list[Change]:
    """The alternatives that options ask for. Raises BadInput for a duration that is none, and for two of a kind."""
    given: dict[str, list[Any]] = {
        "topology.required": [None if tier == "none" else tier for tier in relax or ()],
        "members": list(members or ()),
        "gpu": list(gpu or ()),
        "priority": [class_or_number(each) for each in priority or ()],
        "time_limit": [_duration_s(each) for each in time_limit or ()],
        "queue": list(queue or ()),
    }
    if not together:
        return [{field: value} for field, values in given.items() for value in values]
    if any(len(values) > 1 for values in given.values()):
        raise BadInput("--together: found an option twice; allowed: each option once")
    joined: Change = {field: values[0] for field, values in given.items() if values}
    return [joined] if joined else []


def _duration_s(text: str) -> float:
    try:
        return float(duration_above_zero(text))
    except ValueError as error:
        raise BadInput(f"--time-limit: found {text!r}; allowed: {error}") from None


def answer(job: str, changes: Sequence[Change], state: Path | None, *, as_json: bool) -> None:
    """Print the daemon's answer. Exits with NEVER_NOW if the job would start at once in no alternative."""
    daemon = client(state)
    answer_json = daemon.what_if(job_named(daemon, job), changes)
    if as_json:
        print_json(answer_json)
    else:
        typer.echo("\n".join(_lines(answer_json, time.time())))
    found = answer_json["alternatives"]
    if not any(each["now"] for each in found[1:] or found):
        raise typer.Exit(NEVER_NOW)


def _lines(answer_json: Mapping[str, Any], now: float) -> Iterator[str]:
    for each in answer_json["alternatives"]:
        yield f"{_change(each['change'])}:"
        yield f"  {_start(each, now)}"
        stopped: dict[str, list[str]] = {}
        for one in each["stopped"]:
            stopped.setdefault(one["how"], []).append(one["job"])
        yield from (f"  {HOW.get(how, how)} {names(jobs)}" for how, jobs in stopped.items())
        cost = _cost(each)
        if cost:
            yield f"  {cost}"


def _change(change: Mapping[str, Any]) -> str:
    words = {
        "topology.required": "relaxed to {}", "members": "with {}", "gpu": "on {}", "priority": "priority {}",
        "time_limit": "time limit {}", "queue": "in queue {}",
    }  # fmt: skip
    shown = dict(change)
    if "time_limit" in shown:
        shown["time_limit"] = span(shown["time_limit"])
    if "members" in shown:
        shown["members"] = plural(shown["members"], "member")
    answer_json = [
        words[field].format("anywhere" if value is None else value)
        for field, value in shown.items()
    ]
    return ", ".join(answer_json) or "as it is"


def _start(each: Mapping[str, Any], now: float) -> str:
    if each["now"]:
        place = each["place"]
        domain = f"{place['domain']['tier']} {place['domain']['name']}".strip()
        return f"starts at once: {plural(place['gpus'], 'GPU')} on {plural(len(place['nodes']), 'node')} of {domain}"
    if each["start"] is not None:
        return start_line(each["start"], now)
    return f"its start cannot be estimated. {each['sentence']}"


def _cost(each: Mapping[str, Any]) -> str:
    """What a step, the run and its GPUs come to, as far as that is known."""
    parts = []
    if each["step_s"] is not None:
        parts.append(f"a step in {each['step_s']:.3g} s{_beside(each['step_ratio'])}")
    elif each["comm_ratio"] is not None:
        parts.append(f"communication{_beside(each['comm_ratio'])}")
    if each["run_s"] is not None:
        run = span(each["run_s"]) if each["run_s"] >= 1 else "less than a second"
        cut = ", but its time limit may end it first" if each.get("cut") else ""
        parts.append(f"runs {run}{cut}, {each['gpu_hours']:.3g} GPU-hours")
    if each["cost_USD"] is not None:
        parts.append(f"{each['cost_USD']:.2f} USD at list prices")
    return "; ".join(parts)


def _beside(ratio: float | None) -> str:
    if ratio is None:
        return ""
    percent = round((ratio - 1) * 100)
    if percent == 0:
        return " as fast as at its best placement"
    return f" {abs(percent)} % {'slower' if percent > 0 else 'faster'} than at its best placement"
