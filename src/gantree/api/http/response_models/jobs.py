"""Response models of jobs: rows, receipts, the example of a job file."""

from typing import Any, Literal

from pydantic import BaseModel, Field, JsonValue

from gantree.api.http.response_models.base import Check, Domain, OpenModel, Straggler

PHASES = Literal[
    "pending", "starting", "running", "saving", "stopping", "succeeded", "failed", "cancelled", "timed-out"
]  # fmt: skip


class SubmittedJob(BaseModel):
    """A job that was taken."""

    job: str = Field(description="Its id from now on.", examples=["llama-7b-2"])
    name: str = Field(examples=["llama-7b"])
    array: str | None = Field(
        None,
        description="Of an array its indices. Its jobs have its id with their index behind: `sweep-7`.",
        examples=["0-9"],
    )


class SubmittedService(BaseModel):
    """A service that was taken, new or as another description of a live one."""

    service: str = Field(examples=["chat"])


class ReceiptResponse(BaseModel):
    """The jobs and services are durable."""

    jobs: list[SubmittedJob]
    services: list[SubmittedService] = []
    warnings: list[str] = Field(
        description="Sentences on jobs that can never start as things are, or will be rejected."
    )


class JobCommandResponse(BaseModel):
    """Whom a wish is about."""

    job: str = Field(description="The job's id.", examples=["llama-7b-2"])


class JobIdResponse(BaseModel):
    """The job that a person means by an id or a name."""

    job: str = Field(description="The job's id.", examples=["llama-7b-2"])
    instead_of: str | None = Field(
        description="The id that was given, where that job has ended and a live one has its name.",
        examples=["llama-7b"],
    )


class Progress(BaseModel):
    """How far a job says that it is, by `gantree.training.progress`; a number may be "NaN" or "Infinity"."""

    step: int
    loss: float | str | None
    samples_per_s: float | str | None
    step_s: float | str | None = Field(description="Seconds a step, as measured.")
    at: float = Field(description="When it said so.")


class AttemptCurve(OpenModel):
    """The reports of one attempt over time, oldest first, at most about a thousand.

    Steps that an attempt redid come again.
    """

    attempt: int
    points: list[Progress]


class CurveResponse(OpenModel):
    """The reports of a job over time, attempt by attempt; attempts without reports are left out."""

    job: str = Field(description="The job's id.", examples=["llama-7b"])
    attempts: list[AttemptCurve]


class ArrayElements(BaseModel):
    """The jobs of an array."""

    indices: str = Field(examples=["0-9999"])
    count: int
    phases: dict[str, int] = Field(
        description="How many are in each phase; phases with none are left out."
    )
    stands_for: str = Field(
        description="The indices of those that wait and do not differ, or that were cancelled so."
    )


class JobIdleness(BaseModel):
    """Of a job whose GPUs do not compute, or that has a lease. Times in seconds since 1970."""

    since: float | None = Field(description="The last sample in which they did; null: they do.")
    warned_at: float | None
    reclaim_at: float | None = Field(description="From when on it is reclaimed; null: not.")
    action: str | None = Field(description="What is done with it then.", examples=["requeue"])
    extended_until: float | None = Field(description="The end of its lease.")
    exempt: bool = Field(description="It is never reclaimed.")


class JobRow(OpenModel):
    """A job as a list shows it. Of a job that was rejected only name, phase and reason are known."""

    job: str = Field(examples=["llama-7b"])
    name: str
    phase: str = Field(examples=["running"])
    queue: str | None
    user: str | None
    priority: str | int | None
    gpus: int | None
    members: int | None
    members_now: int | None = Field(description="Members that hold a place.")
    gpus_now: int | None = Field(description="GPUs that it holds whole.")
    processes: int | None
    attempt: int | None
    domain: Domain | None
    submitted_at: float | None
    started_at: float | None
    ended_at: float | None
    held: bool = Field(description="It waits until it is released.")
    suspended: bool = Field(
        description="It keeps its place, and it is not its turn on a shared GPU."
    )
    exit_code: int | None = Field(description="Of the last attempt that is over.")
    reason: str
    checkpoint_step: int | None
    preemptions: int
    failures: int
    last_failure: str = Field("", description="Why the last attempt failed that did.")
    starts_at: float | None = Field(description="The start that it was told.")
    promised: bool
    predicted_step_s: float | None = Field(None, description="Seconds a step, as predicted.")
    progress: Progress | None = Field(
        None, description="Of a job that runs; asked for alone, of one that has ended too."
    )
    check: Check | None = Field(None, description="Of a job that holds a place and has a check.")
    stragglers: list[Straggler] = Field(
        [], description="Of a job that runs, ranks that are slower than their peers."
    )
    idle: JobIdleness | None = Field(
        None, description="Of a job whose GPUs do not compute, or that has a lease."
    )
    array: str | None = Field(None, description="The array of which it is a job.")
    elements: ArrayElements | None = Field(None, description="Of an array; null for a job.")


class JobsResponse(BaseModel):
    """A page of jobs in order of arrival."""

    jobs: list[JobRow]
    next: str | None = Field(description="Give it as `after` for the next page; null at the end.")


class JobResponse(JobRow):
    """A job with what it asked for and where it is. version is its ETag."""

    version: str
    spec: dict[str, JsonValue] | None
    placement: dict[str, JsonValue] | None


EXAMPLE_JOB: dict[str, Any] = {
    "name": "llama-7b",
    "gang": [{"role": "worker", "members": 2, "each": {"gpus": 8}, "run": ["python", "train.py"]}],
}


EXAMPLE_JOB_FILE = """name: llama-7b
gang:
  - {role: worker, members: 2, each: {gpus: 8}, run: [python, train.py]}
"""
