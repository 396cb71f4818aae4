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
