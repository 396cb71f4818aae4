"""Response models of run records."""

from pydantic import Field, JsonValue

from gantree.api.http.response_models.base import Domain, OpenModel


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
    check: dict[str, JsonValue] | None = Field(
        None, description="The report of the check before the start: figures, verdict, faults."
    )
    gantree: str | None = None
    policy: str | None = Field(None, description="A digest of the policy in force.")
    roles: dict[str, RecordedRole]
    nodes: dict[str, dict[str, str]] = Field(description="Versions of driver and CUDA by node.")
    tiers: list[str]
    members: list[RecordedMember]
    data: list[dict[str, str | None]] = Field(description="As declared in the job file.")
