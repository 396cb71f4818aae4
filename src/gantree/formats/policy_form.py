"""What policy.yaml may hold, field by field.

Fields of `NOT_YET` are known words of the format that this version cannot honour. They are named here so that
they are refused as such, and not as typing errors.
"""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.fields import Count, Duration, Name, whole, wrong
from gantree.formats.forms import Form
from gantree.formats.job_form import MAX_PRIORITY
from gantree.text.document import Truth

NOT_YET = ("queues", "half_life", "backfill", "fragmentation_weight", "cells")
NOT_YET_PRESETS = ("fair",)


def _truth(value: Any) -> bool:
    if not isinstance(value, Truth):
        raise wrong("true or false")
    return bool(value)


Switch = Annotated[bool, PlainValidator(_truth), WithJsonSchema({"type": "boolean"})]
PriorityNumber = Annotated[
    int,
    PlainValidator(whole(-MAX_PRIORITY, MAX_PRIORITY, "a whole number")),
    WithJsonSchema({"type": "integer"}),
]


class EvictionsForm(Form):
    """How gently running work is stopped."""

    per_job_per_day: Count | None = None
    min_run: Duration | None = None
    grace: Duration | None = None


class PolicyForm(Form):
    """policy.yaml: a preset and what overrides it."""

    preset: Name = "gantree"
    priorities: dict[Name, PriorityNumber] = {}
    preempt: Switch | None = None
    evictions: EvictionsForm = EvictionsForm()
