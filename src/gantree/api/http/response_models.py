"""What answers hold, for the OpenAPI: models that describe the values of `views`. Nothing is validated with them.

Fields may come, none goes. Times are seconds since 1970; null where it has not come to that.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

PHASES = Literal[
    "pending", "starting", "running", "saving", "stopping", "succeeded", "failed", "cancelled", "timed-out"
]  # fmt: skip


Login = Annotated[
    str,
    Field(
        max_length=256,
        description="Who runs the program that asks: whose the jobs are where nobody else is named, and the token is"
        " the daemon's own, which is nobody's.",
    ),
]


class OpenModel(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="allow")


class FieldProblem(BaseModel):
    """One thing wrong in a file or request: where, what was found, what is allowed."""

    source: str = Field(examples=["job.yaml"])
    line: int | None = Field(examples=[3])
    field: str = Field(examples=["gang[0].members"])
    found: str = Field(examples=["-1"])
    allowed: str = Field(examples=["1 or more"])
    hint: str = ""


class ProblemResponse(BaseModel):
    """An error, application/problem+json (RFC 9457). title is the kind of error, detail a sentence for people."""

    title: str = Field(examples=["NotFound"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no job llama"])
    problems: list[FieldProblem] = []


class SubmittedJob(BaseModel):
    """A job that was taken."""

    job: str = Field(description="Its id from now on.", examples=["llama-7b-2"])
    name: str = Field(examples=["llama-7b"])


class ReceiptResponse(BaseModel):
    """The jobs are durable."""

    jobs: list[SubmittedJob]
    warnings: list[str] = Field(
        description="Sentences on jobs that can never start as things are, or will be rejected."
    )


class JobCommandResponse(BaseModel):
    """Whom a wish is about."""

    job: str = Field(description="The job's id.", examples=["llama-7b-2"])


class Domain(BaseModel):
    """A domain of the fabric."""

    tier: str = Field(examples=["leaf"])
    name: str = Field(examples=["s0/l0"])


class Progress(BaseModel):
    """How far a job says that it is, by `gantree.training.progress`; a number may be "NaN" or "Infinity"."""

    step: int
    loss: float | str | None
    samples_per_s: float | str | None
    step_s: float | str | None = Field(description="Seconds a step, as measured.")
    at: float = Field(description="When it said so.")


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
    starts_at: float | None = Field(description="The start that it was told.")
    promised: bool
    predicted_step_s: float | None = Field(None, description="Seconds a step, as predicted.")
    progress: Progress | None = Field(
        None, description="Of a job that runs; asked for alone, of one that has ended too."
    )


class JobsResponse(BaseModel):
    """A page of jobs in order of arrival."""

    jobs: list[JobRow]
    next: str | None = Field(description="Give it as `after` for the next page; null at the end.")


class JobResponse(JobRow):
    """A job with what it asked for and where it is. version is its ETag."""

    version: str
    spec: dict[str, JsonValue] | None
    placement: dict[str, JsonValue] | None


class RecordedGit(OpenModel):
    """What git said of the working directory."""

    revision: str | None
    branch: str | None


class RecordedFile(OpenModel):
    """A file that ran."""

    path: str
    sha256: str | None


class RecordedPython(OpenModel):
    """The Python that ran and what was installed for it."""

    version: str
    distributions: dict[str, str] | list[str]
    distributions_sha256: str


class RecordedRole(OpenModel):
    """What ran as a role."""

    command: list[str]
    workdir: str | None
    image: str | None
    git: RecordedGit | None
    executable: RecordedFile | None
    script: RecordedFile | None
    python: RecordedPython | None
    nccl: str | None
    torch: str | None
    env: dict[str, str]


class RecordedMember(OpenModel):
    """Where a member was."""

    role: str
    member: int
    node: str
    machine: str
    ranks: list[int] = Field(min_length=1)
    gpus: list[int]
    mig: list[str]
    nics: list[str]
    domains: dict[str, str]


class RecordResponse(OpenModel):
    """What ran as one attempt. roles tell, by the first member of each, what was found; members where each rank was."""

    job: str
    attempt: int
    world_size: int
    domain: Domain | None
    step_s: float | None = Field(description="Seconds a step, as predicted.")
    found: bool = Field(description="False until what was found is written down.")
    gantree: str | None = None
    policy: str | None = Field(None, description="A digest of the policy in force.")
    roles: dict[str, RecordedRole]
    nodes: dict[str, dict[str, str]] = Field(description="Versions of driver and CUDA by node.")
    tiers: list[str]
    members: list[RecordedMember]
    data: list[dict[str, str | None]] = Field(description="As declared in the job file.")


class Start(BaseModel):
    """A start that a job is told."""

    starts_at: float
    promised: bool
    reserved: bool
    slips: int | float
    domain: JsonValue
    waits_for: list[str]


class ShortBy(BaseModel):
    """What is missing."""

    resource: str
    amount: float


class NearestDomain(OpenModel):
    """The domain that comes nearest, and how many members or GPUs it has room for."""

    domain: str
    room: int


class FittingChange(OpenModel):
    """A change to the job with which it would fit, and what that does to its communication time."""

    patch: dict[str, JsonValue]
    comm_ratio: float | None


class Refusal(OpenModel):
    """Why there is no place: the gate that said no first, and what would help."""

    gate: str = Field(examples=["ROOM"])
    never: bool
    sentence: str
    short_by: ShortBy | None
    nearest: NearestDomain | None
    wakes_on: list[JsonValue]
    would_fit_if: list[FittingChange]


class InTheWay(BaseModel):
    """Who is in the way."""

    job: str
    because: str


class WhyResponse(OpenModel):
    """Why a job is where it is."""

    job: str
    phase: str
    sentence: str
    refused: Refusal | None
    ahead: list[str]
    ahead_count: int
    start: Start | None
    in_the_way: list[InTheWay]


class AwaitedEnd(BaseModel):
    """An end that a start waits for."""

    job: str
    phase: str | None
    ends_at: float | None
    enforced: bool
    time_limit_s: float | None


class WhenResponse(OpenModel):
    """When a job starts. start is null where it does not wait, and where nobody can say."""

    job: str
    phase: str
    asked_at: float
    started_at: float | None
    start: Start | None
    hangs_on: list[AwaitedEnd]
    why: str


class Place(OpenModel):
    """Where a gang is or would be."""

    domain: Domain
    members: int
    gpus: int
    nodes: list[str]


class StoppedJob(OpenModel):
    """Who would have to go, and how."""

    job: str
    how: str


class Alternative(OpenModel):
    """What would become of a job with a change; docs/schemas/what-if-job-output.schema.json has all fields."""

    change: dict[str, JsonValue]
    now: bool
    start: Start | None
    sentence: str
    refused: Refusal | None
    place: Place | None
    stopped: list[StoppedJob]
    step_s: float | None
    step_ratio: float | None
    comm_ratio: float | None
    run_s: float | None
    cut: bool
    gpu_hours: float | None
    cost_USD: float | None


class WhatIfResponse(BaseModel):
    """The job as it is, then one for each change."""

    job: str
    asked_at: float
    alternatives: list[Alternative]


class Move(OpenModel):
    """A gang that moves."""

    job: str
    gpus: int
    source: Place
    target: Place
    cost_gpu_s: float


class MovePlan(OpenModel):
    """Moves, and the place that they make."""

    place: Place
    moves: list[Move]
    cost_gpu_s: float
    gain_gpu_s: float
    proven: bool


class DefragmentResponse(BaseModel):
    """The moves that would let a job start, or null and why."""

    job: str
    plan: MovePlan | None
    reason: str


class Cell(OpenModel):
    """A cell: its tier, where it is bound, whether it has lost its place."""

    tier: str
    domain: str | None
    lost: bool


class QueueRow(OpenModel):
    """A node of the queue tree; docs/schemas/queues-output.schema.json has all fields."""

    name: str
    kind: str
    depth: int
    weight: float
    used_part: float
    guarantee: dict[str, float]
    used: dict[str, float]
    borrowed: dict[str, float]
    lent: dict[str, float]
    limit: dict[str, float]
    cells: list[Cell]
    running: int
    waiting: int


class QueuesResponse(BaseModel):
    """The cluster, then each queue, cohort and user below what it is in."""

    queues: list[QueueRow]


class ClusterResponse(OpenModel):
    """The site, its GPUs cut as they are now, and who holds what."""

    cluster: dict[str, JsonValue] | None
    owners: dict[str, list[str | None]]
    held: dict[str, list[dict[str, JsonValue]]]
    unusable: dict[str, JsonValue]


class HealthResponse(OpenModel):
    """Who answers."""

    version: str = Field(examples=["0.1.0"])
    pid: int
    cluster: str | None
    epoch: int
    turns: int
    started_at: float
    set_aside: int = Field(description="Events that the scheduler could not handle.")


EXAMPLE_JOB: dict[str, Any] = {
    "name": "llama-7b",
    "gang": [{"role": "worker", "members": 2, "each": {"gpus": 8}, "run": ["python", "train.py"]}],
}
EXAMPLE_JOB_FILE = """name: llama-7b
gang:
  - {role: worker, members: 2, each: {gpus: 8}, run: [python, train.py]}
"""
