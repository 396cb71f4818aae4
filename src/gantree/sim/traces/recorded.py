"""A trace of the jobs that a daemon has recorded in its journal.

A job runs for what it would have run undisturbed: its time less the work that it did again. Jobs that run still count
with what they had run by then; those that never ran are left out. Times count from the Monday before the first
submission, by UTC.
"""

from collections import Counter

from gantree.formats.traces import TraceJob
from gantree.sim.replay.recording import JobRecord, Recording
from gantree.sim.traces.rows import from_monday, row_of

NEVER_RAN = "never ran"


def recorded_jobs(recording: Recording) -> tuple[list[TraceJob], Counter[str]]:
    """The jobs of a recording in the order of submission, and how many records are no jobs, by reason."""
    left_out = Counter({NEVER_RAN: 0})
    ran: list[JobRecord] = []
    for record in recording.jobs:
        if record.outcome.started_at is None:
            left_out[NEVER_RAN] += 1
        else:
            ran.append(record)
    ran.sort(key=lambda record: (record.outcome.submitted_at, record.seq))
    zero = from_monday(ran[0].outcome.submitted_at) if ran else 0.0
    jobs = [
        row_of(
            record.spec,
            record.outcome.job,
            record.outcome.submitted_at - zero,
            (record.done_before_s or 0.0) + record.work_s,
        )
        for record in ran
    ]
    return jobs, +left_out
