"""Response models of queues, the cluster and the daemon."""

from pydantic import BaseModel, Field, JsonValue

from gantree.api.http.response_models.base import OpenModel


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
