"""Response models of the history: ended jobs, use and waits over time."""

from pydantic import BaseModel, Field

from gantree.api.http.response_models.base import OpenModel


class EndedJobRow(OpenModel):
    """A job that has ended, as it stays on record. Times in seconds since 1970."""

    job: str = Field(examples=["llama-7b-2"])
    name: str
    queue: str
    user: str
    priority: int
    outcome: str = Field(examples=["succeeded"])
    reason: str
    exit_code: int | None = Field(description="Of the last attempt.")
    last_failure: str = Field(description="Why the last attempt failed that did.")
    submitted_at: float
    started_at: float | None = Field(description="When it first ran; null: never.")
    ended_at: float
    attempts: int
    failures: int
    preemptions: int
    members: int
    processes: int
    gpus: int = Field(description="Of the last attempt; of a job that never started, as asked for.")
    gpu_model: str = Field(examples=["H100-80GB"], description="Several with commas.")
    nodes: str = Field(examples=["n[0-3]"], description="A hostlist: those of the last attempt.")
    held_gpu_s: float = Field(description="GPU-seconds that it held, over all attempts.")
    lost_gpu_s: float = Field(description="Of these, those whose work was done again.")
    waited_s: float = Field(description="Seconds in which it was pending and not held.")
    project: str = Field("", description='`project` of its job file; "": none.')
    useful_gpu_s: float = Field(0.0, description="Of these, those in which GPUs computed.")
    idle_gpu_s: float = Field(0.0, description="Of these, those in which they did not.")


class EndedJobsResponse(BaseModel):
    """A page of ended jobs, the last that ended first."""

    jobs: list[EndedJobRow]
    next: int | None = Field(description="Give it as `before` for the next page; null at the end.")


class HistoryPeriod(BaseModel):
    """Steps of a period. Times in seconds since 1970."""

    by: str
    since: float
    until: float
    step_s: int = Field(examples=[3600])
    starts: list[int] = Field(description="The beginning of each step.")


Amounts = list[float]


class UsageHistoryRow(OpenModel):
    """Of one queue, user, GPU model, project or device, or of all (name ""). Each list has a number for each step."""

    name: str
    capacity_gpu_s: Amounts = Field(description="GPU-seconds that there were; by queue or user 0.")
    allocated_gpu_s: Amounts = Field(description="GPU-seconds that gangs held.")
    used_gpu_s: Amounts = Field(description="Of these, those on which all processes ran.")
    starting_gpu_s: Amounts = Field(description="Of these, until all processes first ran.")
    restart_gpu_s: Amounts = Field(
        description="Of these, the same of later attempts, and from an order to stop to the end."
    )
    checkpoint_gpu_s: Amounts = Field(description="Of these, while gangs saved before a stop.")
    useful_gpu_s: Amounts = Field(
        description="Of these, in which GPUs computed. Below 0 where lost work is taken out."
    )
    idle_gpu_s: Amounts = Field(description="Of these, in which GPUs did not compute.")
    lost_gpu_s: Amounts = Field(
        description="Of these, those whose work was done again, when that was known."
    )
    unmeasured_gpu_s: Amounts = Field(description="The rest: no counters told of them.")
    down_gpu_s: Amounts = Field(description="Not held, on nodes that are not usable.")
    held_gpu_s: Amounts = Field(description="Claimed for gangs while others leave.")
    reserved_gpu_s: Amounts = Field(description="Reserved for promised starts.")
    stranded_gpu_s: Amounts = Field(description="Free, and of no use for any GPU job.")
    free_gpu_s: Amounts = Field(description="The rest of the capacity; by queue or user 0.")
    waited_s: Amounts = Field(description="Seconds for which jobs waited, summed over jobs.")
    slower_gpu_s: Amounts = Field(
        default=[],
        description="Of those held, the part that gangs would be without at their best places.",
    )
    cpu_s: Amounts = Field(default=[], description="Core-seconds held.")
    memory_GiB_s: Amounts = Field(default=[], description="GiB-seconds of memory held.")
    powered_gpu_s: Amounts = Field(
        default=[], description="Of those held, in which counters told what GPUs drew."
    )
    energy_kWh: Amounts = Field(default=[], description="What GPUs drew in these.")
    nvlink_GB: Amounts = Field(default=[], description="Sent over NVLink, where counters told it.")
    nic_GB: Amounts = Field(default=[], description="Sent by NICs, where counters told it.")
    capacity_cpu_s: Amounts = Field(default=[], description="Core-seconds that there were.")
    capacity_memory_GiB_s: Amounts = Field(default=[], description="The same of memory.")
    submitted: list[int]
    started: list[int] = Field(description="Attempts that were placed.")
    succeeded: list[int]
    failed: list[int]
    cancelled: list[int]
    timed_out: list[int]
    preempted: list[int]


class UsageHistoryResponse(HistoryPeriod):
    """Use over time: rows, the largest holder first."""

    rows: list[UsageHistoryRow]


class Waits(OpenModel):
    """Jobs that were placed for the first time; null without any. Quantiles are right within 9 %."""

    jobs: int
    mean_s: float | None
    p50_s: float | None
    p99_s: float | None


class WaitHistoryRow(OpenModel):
    """Of one queue or user, or of all (name "")."""

    name: str
    steps: list[Waits]
    all: Waits


class NodeSignsRow(OpenModel):
    """What a node showed: how often each came, not how long it lasted."""

    node: str
    lemon: bool = Field(description="It showed signs on `lemon_days` days or more.")
    days: int = Field(description="Days, by UTC, on which it showed any sign.")
    faults: int = Field(description="Faults that a source reported.")
    out: int = Field(description="Times that it became unusable.")
    links: int = Field(description="Times that a NIC or a link of a GPU carried less.")
    slow_ranks: int = Field(description="Ranks there that stayed slower than their peers.")
    last_at: float


class NodeSignsResponse(OpenModel):
    """The nodes that showed signs, those on the most days first. complete: the record goes back to since."""

    since: float
    until: float
    complete: bool
    lemon_days: int
    rows: list[NodeSignsRow]


class WaitHistoryResponse(HistoryPeriod):
    """Waits over time: rows, those with the most jobs first."""

    rows: list[WaitHistoryRow]
