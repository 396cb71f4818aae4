"""Response models of why, when, what-if and defragment."""

from pydantic import BaseModel, Field, JsonValue

from gantree.api.http.response_models.base import Check, Domain, OpenModel, Straggler


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
    attempt: int | None = None
    check: Check | None = Field(None, description="Of a job that holds a place and has a check.")
    stragglers: list[Straggler] = Field(
        [], description="Of a job that runs, ranks that are slower than their peers."
    )


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


class ForecastResponse(BaseModel):
    """When and where a job would start that is not submitted yet."""

    job: str = Field(description="The id that it would get.")
    asked_at: float
    forecast: Alternative


class Move(OpenModel):
    """A gang that moves."""

    job: str
    gpus: int
    source: Place
    target: Place
    cost_gpu_s: float


class MovePlan(OpenModel):
    """Moves, and the place that they make."""

    digest: str = Field(
        description="The same for the same moves and places, whatever they cost.",
        examples=["4f0c92ab17de"],
    )
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
