"""A recording under a policy: submissions and requests at their moments, work as recorded, on the recorded site.

Ids: a job of the record is a row of the trace, so the simulation knows it as `t` and its id. Arrays are submitted as
their elements, one by one in the order written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gantree.formats.traces import TraceJob
from gantree.model.events import ClusterObserved
from gantree.model.jobs import Job
from gantree.policy.rules import Policy
from gantree.sim.inputs import CountedTrace, Inputs, inputs_of
from gantree.sim.overheads import Overheads
from gantree.sim.replay.agreement import Placed, placed
from gantree.sim.replay.outcomes import JobOutcome, outcome_of
from gantree.sim.replay.recording import Ending, JobRecord, Recording
from gantree.sim.replay.requests import told
from gantree.sim.replay.work import WorkEstimates, WorkOf
from gantree.sim.results import Result
from gantree.sim.run import Simulation
from gantree.sim.workload import job_id, row_id

SAVES_ON_REQUEST_S = 1e9
"""Interval of a job that saves when it is asked, and not by itself: longer than any run."""
NO_EXIT_CODE = -1
"""No process ends with it: a job that is restarted only after this one is not restarted when it fails by itself."""
TRACE = "recording"
"""What results call the trace."""
UNKNOWN_EXIT_CODE = 1
"""Exit code of a job that failed and left none."""

Advance = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A simulation of a recording: an outcome a job, in times of the journal, and the result as of any simulation."""

    jobs: tuple[JobOutcome, ...]
    result: Result
    ended_at: float
    placements: tuple[Placed, ...]
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class Workload:
    """A recording as rows of a trace: rows and jobs by the same number, exit codes by id in the simulation."""

    rows: tuple[TraceJob, ...]
    jobs: Mapping[str, Job]
    exit_codes: Mapping[str, int]
    work: Mapping[str, WorkOf]


def workload_of(recording: Recording) -> Workload:
    """The jobs of a recording with their work. Times are seconds since its first submission."""
    estimates = WorkEstimates(recording.jobs)
    work = {record.outcome.job: estimates.of(record) for record in recording.jobs}
    ids = frozenset(work)
    elements = elements_of(recording)
    rows, jobs, exit_codes = [], {}, {}
    for record in recording.jobs:
        work_s = work[record.outcome.job].seconds - (record.done_before_s or 0.0)
        row = _row(record, work_s, recording.began_at)
        rows.append(row)
        jobs[row.job_id] = _spec(record, ids, elements)
        if record.ending is Ending.BY_ITSELF and record.outcome.outcome == "failed":
            exit_codes[job_id(row)] = record.exit_code or UNKNOWN_EXIT_CODE
    return Workload(tuple(rows), jobs, exit_codes, work)


def elements_of(recording: Recording) -> dict[str, tuple[str, ...]]:
    """The jobs of each array, by its id."""
    found: dict[str, list[str]] = {}
    for record in recording.jobs:
        if record.array:
            found.setdefault(record.array, []).append(record.outcome.job)
    return {array: tuple(jobs) for array, jobs in found.items()}


def _row(record: JobRecord, work_s: float, began_at: float) -> TraceJob:
    spec = record.spec
    checkpoint_s = None
    if spec.checkpoint is not None:
        checkpoint_s = spec.checkpoint.every_s or SAVES_ON_REQUEST_S
    return TraceJob(
        job_id=record.outcome.job,
        submit_s=max(0.0, record.outcome.submitted_at - began_at),
        duration_s=work_s,
        members=spec.members,
        gpus_per_member=-(-spec.gpus // spec.members),
        queue=spec.queue,
        user=spec.user,
        checkpoint_s=checkpoint_s,
    )


def _spec(record: JobRecord, ids: frozenset[str], elements: Mapping[str, tuple[str, ...]]) -> Job:
    """The job as the simulation is handed it: it comes after jobs by their ids there, and fails for good if it did.

    A replica of a service is a job that runs as long as it did: nothing decides here how many there are, and it would
    start again for ever.
    """
    spec = record.spec
    after = [each for job in spec.after for each in elements.get(job, (job,)) if each in ids]
    restarts = spec.restarts
    if record.ending is Ending.BY_ITSELF and record.outcome.outcome == "failed":
        restarts = replace(restarts, exit_codes=(NO_EXIT_CODE,))
    return replace(spec, after=tuple(f"t{job}" for job in after), restarts=restarts, service=None)


def replay(
    recording: Recording,
    policy: Policy,
    overheads: Overheads | None = None,
    progress: Advance | None = None,
    policy_name: str = "policy",
) -> Replayed:
    """Simulate a recording under a policy; overheads are those of the record where None, policy_name is for results.

    Raises BadInput for a policy whose cells or queues the site or the jobs do not suit.
    """
    workload = workload_of(recording)
    simulation = Simulation(
        recording.site,
        workload.rows,
        policy,
        _with_ids(recording.measured.overheads) if overheads is None else overheads,
        lambda row: workload.jobs[row.job_id],
    )
    for job, code in workload.exit_codes.items():
        simulation.cluster.work_of_job[job].exit_code = code
    ids = {row.job_id: job_id(row) for row in workload.rows}
    requests = told(recording.requests, ids, elements_of(recording), recording.began_at)
    for event in requests:
        if not (isinstance(event, ClusterObserved) and event.cluster == recording.site):
            simulation.foretell(event)
    _run(simulation, len(workload.rows), progress)
    inputs = _inputs(recording, workload, policy, policy_name)
    return _replayed(recording, workload, simulation, inputs)


def _inputs(recording: Recording, workload: Workload, policy: Policy, policy_name: str) -> Inputs:
    trace = CountedTrace(workload.rows)
    for _ in trace:
        pass  # counted as they pass
    return inputs_of(recording.site, trace, policy, trace_name=TRACE, policy_name=policy_name)


def _with_ids(overheads: Overheads) -> Overheads:
    """Overheads of attempts by the ids of jobs in the simulation."""
    of_attempt = {(f"t{job}", number): own for (job, number), own in overheads.of_attempt.items()}
    return replace(overheads, of_attempt=of_attempt)


def _run(simulation: Simulation, jobs: int, progress: Advance | None) -> None:
    shown = -1
    while simulation.step():
        if progress is not None and simulation.record.ended > shown:
            shown = simulation.record.ended
            progress(min(shown, jobs), jobs)


def _replayed(
    recording: Recording, workload: Workload, simulation: Simulation, inputs: Inputs
) -> Replayed:
    states, now = simulation.scheduler.ledger.jobs, simulation.now
    jobs = []
    for record, row in zip(recording.jobs, workload.rows, strict=True):
        state = states.get(job_id(row))
        before = record.outcome
        if state is None:
            found = JobOutcome(
                job=before.job, name=before.name, queue=before.queue, user=before.user, gpus=before.gpus,
                submitted_at=before.submitted_at,
            )  # fmt: skip
        else:
            found = replace(outcome_of(state, now, recording.began_at), job=before.job)
        jobs.append(found)
    placements = (
        placed(span.from_s + recording.began_at, row_id(span.job), span.attempt, span.placement)
        for span in simulation.record.spans
    )
    ended_at = now + recording.began_at
    return Replayed(tuple(jobs), simulation.result(), ended_at, tuple(placements), inputs)
