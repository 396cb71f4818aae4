"""Shared response models: models that allow further fields, errors, domains."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

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


class Domain(BaseModel):
    """A domain of the fabric."""

    tier: str = Field(examples=["leaf"])
    name: str = Field(examples=["s0/l0"])


class Check(OpenModel):
    """The check of an attempt before its start. Its figures are in the record of the attempt."""

    state: str = Field(
        description="`checking`, or what came of it: `passed`, `short`, `unfinished`, `skipped`.",
        examples=["checking"],
    )
    began_at: float
    seconds: float = Field(description="What it may take.")
    done: int = Field(description="Measurements that are made.")
    total: int
    sentence: str = Field(examples=["checking its links, 12 s of 60 s"])
    warnings: list[str] = Field(
        [], description="Such as a fallback of NCCL to sockets; they are in the sentence too."
    )


class Straggler(OpenModel):
    """A rank that is slower than its peers, or varies more, by its own times; or whose GPU has a low clock."""

    rank: int
    role: str
    node: str
    gpus: list[int] = Field(description="Of its process.")
    sign: str = Field(
        description="`slow`, `jitter` for a rank that varies, `clock` for a GPU whose clock is low."
    )
    ratio: float = Field(
        description="Its own time, its spread, or its clock, over that of its peers."
    )
    steps: int = Field(
        description="For so many steps in a row it has been named, at least; 0 for a clock."
    )
    peers: int = Field(description="Ranks that it was compared with.")
    suspect: str = Field(examples=["GPU 2 or host n3"])
    at: float = Field(description="When rank 0 reported last.")
    sentence: str
