"""Fields of calibration.yaml."""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

from collections.abc import Callable, Sequence
from datetime import date
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.cluster.form import LinkForm
from gantree.formats.validation.fields import (
    Amount,
    AmountAboveZero,
    CountFromOne,
    Text,
    Word,
    whole,
    wrong,
)
from gantree.formats.validation.forms import Form
from gantree.model.jobs import COLLECTIVES
from gantree.text.words import did_you_mean

BACKENDS = ("nccl", "rccl", "gloo")
MAX_BYTES = 1 << 50


def _one_of(words: Sequence[str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            hint = did_you_mean(value, words) if isinstance(value, str) else ""
            raise wrong(", ".join(words), hint)
        return str(value)

    return check


def _date(value: Any) -> str:
    try:
        return date.fromisoformat(value if len(value) == 10 else "").isoformat()
    except (TypeError, ValueError):
        raise wrong("a date such as 2026-11-21") from None


Backend = Annotated[
    str, PlainValidator(_one_of(BACKENDS)), WithJsonSchema({"enum": list(BACKENDS)})
]
Collective = Annotated[
    str, PlainValidator(_one_of(COLLECTIVES)), WithJsonSchema({"enum": list(COLLECTIVES)})
]
Date = Annotated[str, PlainValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]
Bytes = Annotated[
    int,
    PlainValidator(whole(0, MAX_BYTES, "a whole number of 0 or more")),
    WithJsonSchema({"type": "integer", "minimum": 0}),
]


class MeasuredForm(Form):
    """With what, where and when it was measured."""

    backend: Backend
    host: Text
    date: Date


class RowForm(Form):
    """One measured point."""

    collective: Collective
    ranks: CountFromOne
    nodes: CountFromOne
    bytes: Bytes
    time_s: AmountAboveZero
    busbw_GBps: Amount
    within: Word


class CalibrationForm(Form):
    """calibration.yaml: links as they were measured, and the points they were made of."""

    measured: MeasuredForm
    links: dict[Word, LinkForm] = {}
    rows: list[RowForm] = []
