"""Response models of services."""

from pydantic import BaseModel, Field, JsonValue

from gantree.api.http.response_models.base import Domain, OpenModel


class ServiceLoadResponse(OpenModel):
    """What all routers together report of a service, over the last seconds.

    Of the quantiles the largest of all routers; null where nobody measured them.
    """

    at: float = Field(description="When the oldest of these reports came.")
    requests: int
    errors: int
    shed: int = Field(description="Requests that were refused since too many waited.")
    in_flight: int
    queued: int
    concurrency: float = Field(description="Requests in work or waiting, on average.")
    rate: float = Field(description="Requests a second.")
    latency_p50_s: float | None
    latency_p99_s: float | None
    ttft_p99_s: float | None = Field(description="Time to the first token.")
    itl_p99_s: float | None = Field(description="Time between two tokens.")
    tokens_per_s: float | None


class AutoscalerResponse(OpenModel):
    """What the autoscaler of a service said at its last sample."""

    replicas: int = Field(description="How many it recommends.")
    reason: str = Field(examples=["concurrency 31 over 4 replicas, target 8"])
    kept_by: str = Field(
        description='What keeps it from the number that the load asks for; "" nothing.'
    )
    problems: list[str] = Field(description="Values that are not known, and why.")


class ServiceRow(OpenModel):
    """A service as a list shows it. Times in seconds since 1970."""

    service: str = Field(examples=["chat"])
    queue: str
    user: str
    priority: str | int
    keeper: str = Field(
        description="Who decides how many replicas there are: gantree, a GangService of Kubernetes, or the controllers"
        " of pods.",
        examples=["gantree"],
    )
    revision: int | str = Field(
        description="Of its description; an update makes the next one. On Kubernetes a digest."
    )
    state: str = Field(
        description="ready, starting, updating, at zero, ending or ended.", examples=["ready"]
    )
    wanted: int | None = Field(
        description="Replicas that are to run; null where controllers of pods decide that."
    )
    ready: int = Field(description="Replicas that answer requests and do not drain.")
    current: int = Field(description="Replicas that run what is described now, and are not to end.")
    placed: int = Field(description="Replicas that hold a place.")
    draining: int
    min: int | None
    max: int | None
    floor: int
    spare: int
    gpus: int = Field(description="Of each replica.")
    models: list[str] = Field(description="Names of models by which clients mean it.")
    taken_models: dict[str, str] = Field(
        description="Models of these whose requests routers send to another service, and which: the oldest that has it."
    )
    accepted_at: float
    updated_at: float
    ended_at: float | None
    reason: str = Field(
        description="Why it ends, or has ended; of a GangService, why it is not as it is wanted."
    )
    scaled_at: float | None = Field(description="When another number was wanted last.")
    scaled_for: str
    scaled_automatically: bool
    load: ServiceLoadResponse | None = Field(description="Null while no router reports it.")
    autoscaler: AutoscalerResponse | None = Field(description="Null without targets to scale on.")


class ServicesResponse(BaseModel):
    """The live services in order of arrival."""

    services: list[ServiceRow]


class ReplicaRow(OpenModel):
    """A replica that has not ended."""

    replica: str = Field(examples=["chat.3"])
    job: str | None = Field(
        description="The job that it is, on Kubernetes of another name; null where pods are not complete yet.",
        examples=["chat.3"],
    )
    number: int
    revision: int | str
    attempt: int
    phase: str = Field(examples=["running"])
    ready: bool
    draining: bool
    drain_ends_at: float | None = Field(description="When it is stopped at the latest.")
    since: float | None = Field(description="When it became ready, or ceased to be.")
    reason: str = Field(description="Why it is not ready, or drains.")
    preemptible: bool
    failures: int
    last_failure: str
    nodes: list[str]
    domain: Domain | None = Field(description="The narrowest that holds all its members.")
    host: str | None = Field(description="Where its first member listens.")
    port: int | None
    in_flight: int | None = Field(description="Requests; null while no router reports them.")


class Scaling(OpenModel):
    """That another number of replicas was wanted, and why."""

    at: float
    before: int
    replicas: int
    reason: str
    automatic: bool = Field(description="By the autoscaler.")


class ServiceResponse(ServiceRow):
    """A service with its description, its replicas by number and its last scalings, oldest first."""

    spec: dict[str, JsonValue]
    replicas: list[ReplicaRow]
    scalings: list[Scaling]


class ServiceCommandResponse(BaseModel):
    """The service that a request is about."""

    service: str = Field(examples=["chat"])
