"""`gantree jobs`: the queue as a table."""

import time
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import client
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import columns, print_json, span
from gantree.model.phases import ENDED, Phase

HEAD = ("JOB", "PHASE", "QUEUE", "PRIORITY", "GPUS", "MEMBERS", "PLACE", "FOR", "NOTE")


def jobs(
    all_jobs: Annotated[bool, typer.Option("--all", help="Include jobs that have ended.")] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List pending and running jobs."""
    rows = [job for job in client(state).jobs() if all_jobs or job["phase"] not in ENDED]
    if as_json:
        print_json({"jobs": rows})
    elif rows:
        typer.echo(columns(HEAD, [_cells(row, time.time()) for row in rows]))
    else:
        typer.echo(
            "No jobs." if all_jobs else "No pending or running jobs; --all includes ended ones."
        )


def _cells(row: dict[str, Any], now: float) -> tuple[str, ...]:
    domain = row["domain"]
    place = "" if domain is None else domain["name"] or domain["tier"]
    numbers = [_or_nothing(row[field]) for field in ("queue", "priority")]
    return (
        row["job"],
        row["phase"],
        *numbers,
        *(_now_of(row, field) for field in ("gpus", "members")),
        place,
        _for(row, now),
        _note(row, now),
    )


def _now_of(row: dict[str, Any], field: str) -> str:
    """A field as it was written, or, of a gang that runs with other than its file says, "2 of 4"."""
    now, written = row.get(f"{field}_now"), row[field]  # a daemon of an older version tells no GPUs
    as_written = now is None or row["members_now"] == row["members"]
    return _or_nothing(written) if as_written else f"{now} of {written}"


def _or_nothing(value: object) -> str:
    return "" if value is None else str(value)


def _for(row: dict[str, Any], now: float) -> str:
    """How long the job has been waiting or running, or took."""
    since = row["started_at"] or row["submitted_at"]
    return "" if since is None else span((row["ended_at"] or now) - since)


def _note(row: dict[str, Any], now: float) -> str:
    """What is unusual about the job, and its reservation."""
    succeeded = row["phase"] == Phase.SUCCEEDED
    parts = [row["reason"]] if row["reason"] and not succeeded else []
    if row.get("last_failure") and row["phase"] not in ENDED:  # an older daemon does not say it
        parts.append(f"last failure: {row['last_failure']}")
    parts += [word for word in ("held", "suspended") if row[word]]
    if row["starts_at"] is not None:
        progress = "starts in" if row["promised"] else "starts probably in"
        parts.append(f"{progress} {span(row['starts_at'] - now)}")
    if row["exit_code"] and row["phase"] in ENDED:
        parts.append(f"exit code {row['exit_code']}")
    if row["preemptions"]:
        parts.append(f"preempted {row['preemptions']} x")
    if row["checkpoint_step"] is not None:
        parts.append(f"checkpoint at step {row['checkpoint_step']}")
    if row["progress"] is not None:
        parts.append(_progress(row["progress"], row["predicted_step_s"]))
    return "; ".join(parts)


def _progress(progress: dict[str, Any], predicted_step_s: float | None) -> str:
    """How far the job says that it is, and how long its steps take beside what was predicted."""
    words = [f"step {progress['step']}"]
    words += [] if progress["loss"] is None else [f"loss {_short(progress['loss'])}"]
    if progress["samples_per_s"] is not None:
        words.append(f"{_short(progress['samples_per_s'])} samples/s")
    if progress["step_s"] is not None:
        beside = "" if predicted_step_s is None else f" ({_short(predicted_step_s)} s predicted)"
        words.append(f"{_short(progress['step_s'])} s a step{beside}")
    return ", ".join(words)


def _short(number: float | str) -> str:
    """A number in four digits; what is none comes as a word."""
    return number if isinstance(number, str) else f"{number:.4g}"
