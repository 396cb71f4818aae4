"""Fields of running.yaml."""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

import re
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.validation.fields import (
    Amount,
    AmountAboveZero,
    Count,
    CountFromOne,
    Duration,
    DurationAboveZero,
    Name,
    QueuePath,
    Share,
    Text,
    YesNo,
    number,
    one_of,
    wrong,
)
from gantree.formats.validation.forms import Form

REALISTIC = "realistic"
PRESET_NAMES = (REALISTIC,)
_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])")


def _time_of_day(value: Any) -> str:
    found = _TIME_OF_DAY.fullmatch(value) if isinstance(value, str) else None
    if found is None or second_of_day(value) > 86_400:
        raise wrong('a time of day in quotes, from "00:00" to "24:00"')
    return str(value)


def second_of_day(text: str) -> float:
    """Seconds since midnight of a time such as "09:30"."""
    hour, minute = text.split(":")
    return int(hour) * 3600.0 + int(minute) * 60.0


TimeOfDay = Annotated[
    str,
    PlainValidator(_time_of_day),
    WithJsonSchema({"type": "string", "pattern": _TIME_OF_DAY.pattern}),
]
Speed = Annotated[
    float,
    PlainValidator(number(1e-3, 1e3, "a number above 0")),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0}),
]
ShareAboveZero = Annotated[
    float,
    PlainValidator(number(1e-3, 1.0, "a number above 0, 1 at most")),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
]
Preset = Annotated[
    str, PlainValidator(one_of(PRESET_NAMES)), WithJsonSchema({"enum": list(PRESET_NAMES)})
]


class CheckpointsForm(Form):
    """What checkpoints cost."""

    every: DurationAboveZero | None = None
    save: Duration = 0.0
    restore: Duration = 0.0
    store_GBps: AmountAboveZero | None = None
    state_GB_per_GPU: Amount = 0.0


class RateForm(Form):
    """How often a component fails, and how long its repair takes."""

    per_day: Amount
    repair: Duration = 0.0


class NodeRateForm(RateForm):
    """The same of nodes, and which share of their failures has a sign before it, how long ahead."""

    announced: Share | None = None
    lead: Duration | None = None


class LinkRateForm(Form):
    """How often up-links degrade, for how long, and what is left of them meanwhile."""

    per_day: Amount
    repair: Duration
    health: Share = 0.5


class FailuresForm(Form):
    """Rates by component; domains and links by tier."""

    process: RateForm | None = None
    GPU: RateForm | None = None
    node: NodeRateForm | None = None
    domains: dict[Name, RateForm] = {}
    links: dict[Name, LinkRateForm] = {}
    restarts: Count = 1_000


class StragglersForm(Form):
    """Shares of slow nodes and attempts."""

    nodes: Share = 0.0
    attempts: Share = 0.0
    speed: Speed
    named_after: Duration | None = None


class SpotForm(Form):
    """Spot nodes."""

    notice: Duration = 120.0
    away: Duration = 3600.0


class ServiceScalingForm(Form):
    """The autoscaler of a service, and how its replicas serve."""

    target: ShareAboveZero = 0.8
    spare: Count = 0
    every: DurationAboveZero = 15.0
    start: Duration = 60.0
    stabilise: Duration = 300.0
    slots: CountFromOne = 8
    request: DurationAboveZero = 5.0
    wait: Duration = 60.0
    predict: YesNo = False


class ServiceForm(Form):
    """A service and its load by time of day."""

    name: Name
    gpus: CountFromOne
    trough: Count
    peak: Count
    curve: dict[TimeOfDay, Share]
    queue: QueuePath = "default"
    priority: Name = "serving"
    gpu: Text | None = None
    scale: ServiceScalingForm | None = None


class RunningForm(Form):
    """running.yaml: all that is given is simulated; the rest as the preset has it, if one is named."""

    preset: Preset | None = None
    step_time: YesNo | None = None
    contention: YesNo | None = None
    checkpoints: CheckpointsForm | None = None
    failures: FailuresForm | None = None
    stragglers: StragglersForm | None = None
    spot: SpotForm | None = None
    services: list[ServiceForm] = []
