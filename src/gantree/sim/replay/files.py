"""The files of a replay: replay.json, jobs.csv, and a directory of each simulation as `gantree simulate` writes it."""

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from gantree.model.errors import BadInput
from gantree.sim import files
from gantree.sim.replay.comparison import Comparison
from gantree.sim.replay.outcomes import JobOutcome

HEAD = ("job", "name", "queue", "user", "gpus", "submit_s", "work_s", "ended_by")
OF_A_SIDE = ("start_s", "end_s", "wait_s", "attempts", "preemptions", "outcome")
RECORDED, POLICY = "recorded-policy", "policy"
"""Directories of the simulations."""


def write(comparison: Comparison, out: Path) -> None:
    """Write all into a directory, made where it is missing. Raises BadInput if that cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(comparison.document(), indent=2) + "\n"
        (out / "replay.json").write_text(text, encoding="utf-8")
        (out / "jobs.csv").write_text(jobs_csv(comparison), encoding="utf-8", newline="")
    except OSError as error:
        raise BadInput(f"{out}: results cannot be written there: {error.strerror}") from error
    if comparison.as_recorded is not None:
        files.write(comparison.as_recorded.result, out / RECORDED, comparison.as_recorded.inputs)
    files.write(comparison.under_policy.result, out / POLICY, comparison.under_policy.inputs)


def jobs_csv(comparison: Comparison) -> str:
    """A row a job: what it is, and its times in the record and in each simulation, in seconds since the beginning."""
    sides = comparison.sides()
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*HEAD, *(f"{side}_{column}" for side in sides for column in OF_A_SIDE)])
    began_at = comparison.recording.began_at
    for number, record in enumerate(comparison.recording.jobs):
        job = record.outcome
        what = (job.job, job.name, job.queue, job.user, job.gpus)
        seconds = (files.seconds(job.submitted_at - began_at), files.seconds(record.work_s))
        of_sides = (cell for jobs in sides.values() for cell in _cells(jobs[number], began_at))
        writer.writerow([*what, *seconds, record.ending.value, *of_sides])
    return text.getvalue()


def _cells(job: JobOutcome, began_at: float) -> Iterator[str | int]:
    for at in (job.started_at, job.ended_at):
        yield files.seconds(None if at is None else at - began_at)
    yield files.seconds(job.wait_s)
    yield from (job.attempts, job.preemptions, job.outcome)
