"""What policy.yaml may hold, field by field.

Fields of `NOT_YET` are known words of the format that this version cannot honour. They are named here so that
they are refused as such, and not as typing errors.
"""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.fields import (
    AmountAboveZero,
    Count,
    Duration,
    Name,
    Text,
    TextValue,
    YesNo,
    number,
    whole,
)
from gantree.formats.forms import Form, Listed
from gantree.formats.job_form import MAX_PRIORITY, EachForm

NOT_YET = ("queues", "half_life", "backfill", "cells")
NOT_YET_PRESETS = ("fair",)
MAX_FRAGMENTATION_WEIGHT = 10

PriorityNumber = Annotated[
    int,
    PlainValidator(whole(-MAX_PRIORITY, MAX_PRIORITY, "a whole number")),
    WithJsonSchema({"type": "integer"}),
]


FragmentationWeight = Annotated[
    float,
    PlainValidator(
        number(0, MAX_FRAGMENTATION_WEIGHT, f"a number from 0 to {MAX_FRAGMENTATION_WEIGHT}")
    ),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_FRAGMENTATION_WEIGHT}),
]


class EvictionsForm(Form):
    """How gently running work is stopped."""

    per_job_per_day: Count | None = None
    min_run: Duration | None = None
    grace: Duration | None = None


class DemandForm(Form):
    """Members that usually come: what one needs on a node, and how often they come beside the others."""

    each: EachForm
    gpu: Listed[Text] = []
    node_labels: dict[Text, TextValue] = {}
    weight: AmountAboveZero = 1.0


class PolicyForm(Form):
    """policy.yaml: a preset and what overrides it."""

    preset: Name = "gantree"
    priorities: dict[Name, PriorityNumber] = {}
    preempt: YesNo | None = None
    evictions: EvictionsForm = EvictionsForm()
    fragmentation_weight: FragmentationWeight | None = None
    exact: Duration | None = None
    demand: list[DemandForm] = []
