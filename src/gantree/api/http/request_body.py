"""The limit on the fields of a request's body, checked before the fields themselves.

Pydantic reports each error of a body at far more cost than the few characters that cause it: a body of 4 MiB could keep
the daemon busy for seconds, before its caller is known. So the fields are counted first.
"""

from typing import Any, ClassVar

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, model_validator

MOST_FIELDS = 1000
"""In all mappings of a body together; those of job objects count on their own, where they are read."""
OF_JOBS = "jobs"


class Body(BaseModel):
    """A body. Unknown fields are errors."""

    MOST_FIELDS: ClassVar[int] = MOST_FIELDS
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, body: Any) -> Any:
        if fields_in(body, cls.MOST_FIELDS) > cls.MOST_FIELDS:
            raise ValueError(f"at most {cls.MOST_FIELDS} fields")
        return body


class NoFields(Body):
    """The body of a command that has no fields."""


async def _no_fields(body: NoFields | None = None) -> None:
    """FastAPI refuses every other body."""


WITHOUT_FIELDS = (Depends(_no_fields),)
"""Dependencies of a route that changes something and takes no fields: no body, or an empty object."""


def fields_in(body: object, most: int = MOST_FIELDS) -> int:
    """How many fields a body has, and the mappings in it; more than most are not all counted."""
    count, left = 0, [body]
    while left and count <= most:
        value = left.pop()
        if isinstance(value, dict):
            count += len(value)
            left += [each for name, each in value.items() if name != OF_JOBS]
        elif isinstance(value, list):
            left += value[: most + 1]
    return count
