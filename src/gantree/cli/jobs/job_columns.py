"""The columns of job tables: their names on the command line, their heads, and the cell of a row of `GET /v1/jobs`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gantree.cli.input.words import checked_words
from gantree.cli.output.printing import moment, span
from gantree.model.phases import ENDED, Phase

Row = dict[str, Any]
MOST_STRAGGLERS = 1
"""Ranks that the note names; `gantree why` names all."""


class Column(NamedTuple):
    """A column: its head, and the text of its cell for a row at a time in seconds since 1970."""

    head: str
    cell: Callable[[Row, float], str]


def _of_field(field: str) -> Callable[[Row, float], str]:
    return lambda row, now: _or_nothing(row.get(field))


def _now_of(field: str) -> Callable[[Row, float], str]:
    """A field as it was written, or, of a gang that runs with other than its file says, "2 of 4"."""

    def cell(row: Row, now: float) -> str:
        running, written = row.get(f"{field}_now"), row[field]  # an older daemon says no GPUs
        as_written = running is None or row["members_now"] == row["members"]
        return _or_nothing(written) if as_written else f"{running} of {written}"

    return cell


def _moment_of(field: str) -> Callable[[Row, float], str]:
    return lambda row, now: "" if row[field] is None else moment(row[field])


def _or_nothing(value: object) -> str:
    return "" if value is None else str(value)


def _job(row: Row, now: float) -> str:
    """The id, of an array with the indices of its jobs that wait: sweep[64-9999]."""
    elements = row.get("elements")
    return row["job"] if elements is None else f"{row['job']}[{elements['stands_for']}]"


def _place(row: Row, now: float) -> str:
    domain = row["domain"]
    return "" if domain is None else domain["name"] or domain["tier"]


def _for(row: Row, now: float) -> str:
    """How long the job has been waiting or running, or took."""
    since = row["started_at"] or row["submitted_at"]
    return "" if since is None else span((row["ended_at"] or now) - since)


def _step(row: Row, now: float) -> str:
    return "" if row["progress"] is None else str(row["progress"]["step"])


def _note(row: Row, now: float) -> str:
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
    parts += idle_notes(row, now) + check_notes(row)
    if row["progress"] is not None:
        parts.append(_progress(row["progress"], row["predicted_step_s"]))
    parts += [each["sentence"] for each in row.get("stragglers", ())][:MOST_STRAGGLERS]
    if row.get("elements") is not None:
        parts.append(_array_in_words(row["elements"]))
    return "; ".join(parts)


def idle_notes(row: Row, now: float) -> list[str]:
    """Since when its GPUs have not computed, and when it is reclaimed; its lease."""
    idle = row.get("idle")  # an older daemon does not say it
    if idle is None:
        return []
    parts = []
    if idle["since"] is not None:
        parts.append(f"idle for {span(now - idle['since'])}")
    if idle["reclaim_at"] is not None:
        left_s = idle["reclaim_at"] - now
        when = f"in {span(left_s)}" if left_s > 0 else "with the next sample"
        parts.append(f"{idle['action']} {when} (gantree extend {row['job']} 2h)")
    if idle["exempt"]:
        parts.append("exempt from reclaiming")
    elif (idle["extended_until"] or 0.0) > now:
        parts.append(f"lease for {span(idle['extended_until'] - now)}")
    return parts


def check_notes(row: Row) -> list[str]:
    """How the check before the start stands; of one that is over and passed, its warnings."""
    check = row.get("check")
    if check is None:
        return []
    if check["state"] == "passed" and row["phase"] != Phase.STARTING:
        return list(check["warnings"])
    return [check["sentence"]]


def _array_in_words(elements: Row) -> str:
    phases = ", ".join(f"{count} {phase}" for phase, count in elements["phases"].items())
    return f"array of {elements['count']}: {phases}"


def _progress(progress: Row, predicted_step_s: float | None) -> str:
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


COLUMNS = {
    "job": Column("JOB", _job),
    "name": Column("NAME", _of_field("name")),
    "phase": Column("PHASE", _of_field("phase")),
    "queue": Column("QUEUE", _of_field("queue")),
    "user": Column("USER", _of_field("user")),
    "priority": Column("PRIORITY", _of_field("priority")),
    "gpus": Column("GPUS", _now_of("gpus")),
    "members": Column("MEMBERS", _now_of("members")),
    "processes": Column("PROCESSES", _of_field("processes")),
    "place": Column("PLACE", _place),
    "for": Column("FOR", _for),
    "submitted": Column("SUBMITTED", _moment_of("submitted_at")),
    "started": Column("STARTED", _moment_of("started_at")),
    "ended": Column("ENDED", _moment_of("ended_at")),
    "starts": Column("STARTS", _moment_of("starts_at")),
    "attempt": Column("ATTEMPT", _of_field("attempt")),
    "exit-code": Column("EXIT", _of_field("exit_code")),
    "preemptions": Column("PREEMPTED", _of_field("preemptions")),
    "failures": Column("FAILURES", _of_field("failures")),
    "checkpoint": Column("CHECKPOINT", _of_field("checkpoint_step")),
    "step": Column("STEP", _step),
    "reason": Column("REASON", _of_field("reason")),
    "note": Column("NOTE", _note),
}
"""By name on the command line; docs/cli.md lists them, and a test holds the two equal."""
DEFAULT = ("job", "phase", "queue", "priority", "gpus", "members", "place", "for", "note")


def chosen_columns(text: str | None) -> tuple[Column, ...]:
    """The columns that a comma-separated list names, in its order; None: the default. Raises BadInput."""
    names = DEFAULT if text is None else checked_words("--columns", [text], COLUMNS)
    return tuple(COLUMNS[name] for name in names)
