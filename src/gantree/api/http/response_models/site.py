"""Response models of queues, the cluster and the daemon."""

from pydantic import BaseModel, Field, JsonValue

from gantree.api.http.response_models.base import OpenModel


class Cell(OpenModel):
    """A cell: its tier, where it is bound, whether it has lost its place."""

    tier: str
    domain: str | None
    lost: bool


class BudgetUseRow(OpenModel):
    """A budget of a queue: what is used of it, in its unit, and when it runs out at the present rate."""

    period: str
    unit: str
    amount: float
    used: float
    level: float
    closed: bool
    at_limit: str
    per_hour: float
    forecast: float
    runs_out_at: float | None
    ends_at: float | None


class QueueLending(OpenModel):
    """What a queue lends that it has not used of late, when it lends more, and how fast that comes back."""

    idle_after_s: float
    keeps: dict[str, float]
    lends_unused: dict[str, float]
    lends_more_at: float | None
    return_within_s: float | None


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
    lending: QueueLending | None
    limit: dict[str, float]
    cells: list[Cell]
    budgets: list[BudgetUseRow]
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


class DomainRow(OpenModel):
    """A domain: its GPUs, those of usable nodes, the free ones of these, and the same of what is in it."""

    name: str = Field(examples=["s0/l3"])
    gpus: int
    usable: int
    free: int
    state: str = Field(description="Of a node, as `GET /v1/nodes` has it; else empty.")
    strip: list[list[int]] = Field(
        description="[usable, free] of each domain in it, of a node of each GPU, in topology order. Of more than 64"
        " neighbours are counted together."
    )


class DomainsResponse(OpenModel):
    """The domains one tier below a domain."""

    cluster: str | None
    inside: str | None = Field(description="Whose domains these are; null: the site's.")
    parent: str | None = Field(description="The domain above that.")
    tier: str | None = Field(examples=["leaf"])
    gpus: int
    usable: int
    free: int
    domains: list[DomainRow]
    left_out: int = Field(description="Domains behind the limit.")


class HealthResponse(OpenModel):
    """Who answers."""

    version: str = Field(examples=["0.1.0"])
    pid: int
    cluster: str | None
    epoch: int
    turns: int
    started_at: float
    set_aside: int = Field(description="Events that the scheduler could not handle.")
