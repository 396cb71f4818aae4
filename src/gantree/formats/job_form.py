"""What job.yaml may hold, field by field. Rules that join fields stand in `jobs`."""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from pydantic import Field, PlainValidator, WithJsonSchema

from gantree.formats.fields import (
    MAX_COUNT,
    Amount,
    AmountAboveZero,
    Command,
    Count,
    CountFromOne,
    Duration,
    DurationAboveZero,
    Name,
    QueuePath,
    Text,
    TextValue,
    matching,
    number,
    whole,
    wrong,
)
from gantree.formats.forms import AlsoWritten, Form, Listed
from gantree.text.document import Table, Truth, written
from gantree.text.words import NAME_PATTERN, did_you_mean

SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT")
"""Signals that a job may declare for its checkpoint: those a process can catch and that mean nothing else."""
MAX_JOBS = 10_000
MAX_MEMBERS = 1_000_000
"""Members of one role. Far above any cluster; it keeps a typing error from being counted through."""
MAX_PROCESSES = 4096
"""Processes of one member."""
MAX_PRIORITY = 1_000_000_000

_INDICES = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*", re.ASCII)


def _signal(value: Any) -> str:
    if value in SIGNALS:
        return str(value)
    raise wrong(f"one of {', '.join(SIGNALS)}", did_you_mean(str(value), list(SIGNALS)))


def _priority(value: Any) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_PRIORITY:
        return int(value)
    if isinstance(value, str) and re.fullmatch(NAME_PATTERN, value, re.ASCII):
        return value
    raise wrong("a priority class such as batch, or a whole number")


def _array(value: Any) -> list[range]:
    """Return the indices of `0-9`, `3` or `0-3,7` as ranges, in order."""
    text = None if isinstance(value, Truth) else written(value)
    allowed = f"indices such as 0-9 or 0-3,7, at most {MAX_JOBS}"
    if text is None or not _INDICES.fullmatch(text):
        raise wrong(allowed)
    bounds = [part.partition("-") for part in text.split(",")]
    spans = [range(int(low), int(high or low) + 1) for low, _, high in bounds]
    if not all(spans):
        raise wrong(allowed, "A range runs from the smaller to the larger index.")
    if sum(len(span) for span in spans) > MAX_JOBS:
        raise wrong(allowed)
    in_order = sorted(spans, key=lambda span: span.start)
    if any(later.start < earlier.stop for earlier, later in pairwise(in_order)):
        raise wrong("each index once")
    return spans


def _limit_alone(value: Any) -> Any:
    """Make `{limit: 3}` of a bare 3."""
    if isinstance(value, Table):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise wrong(
            "a number of restarts, or a mapping with the fields limit, backoff, backoff_max"
        )
    table = Table("", 0)
    table["limit"] = value
    return table


Members = Annotated[
    int,
    PlainValidator(whole(1, MAX_MEMBERS, "a whole number of 1 or more")),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_MEMBERS}),
]
Processes = Annotated[
    int,
    PlainValidator(whole(1, MAX_PROCESSES, "a whole number of 1 or more")),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_PROCESSES}),
]
Signal = Annotated[str, PlainValidator(_signal), WithJsonSchema({"enum": list(SIGNALS)})]
Priority = Annotated[
    str | int, PlainValidator(_priority), WithJsonSchema({"type": ["string", "integer"]})
]
Array = Annotated[
    list[range], PlainValidator(_array), WithJsonSchema({"type": ["string", "integer"]})
]
MigProfile = Annotated[
    str,
    PlainValidator(
        matching(r"\d+(c\.\d+)?g\.\d+gb(\+(me|gfx|me\.all))?", "a MIG profile such as 3g.40gb")
    ),
    WithJsonSchema({"type": "string"}),
]
Share = Annotated[
    float,
    PlainValidator(number(1e-6, 1, "a share of one GPU above 0, at most 1")),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
]
EnvName = Annotated[
    str,
    PlainValidator(
        matching(r"[A-Za-z_][A-Za-z0-9_]*", "a variable of letters, digits and `_`, no digit first")
    ),
    WithJsonSchema({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
]


class EachForm(Form):
    """What one member needs on one node."""

    gpus: Count = 0
    cpus: Amount = 0.0
    memory_GiB: Amount = 0.0
    nics: Count = 0
    mig: MigProfile | None = None
    gpu_share: Share | None = None
    gpu_memory_GiB: AmountAboveZero | None = None
    devices: dict[Text, CountFromOne] = {}


class SlicesForm(Form):
    """Runs of consecutive members that stay together."""

    members: CountFromOne
    required: Name
    role: Name | None = None


class TopologyForm(Form):
    """Where members may be, seen from each other."""

    required: Name | None = None
    preferred: Name | None = None
    slices: Listed[SlicesForm] = []


class RoleForm(Form):
    """Members of one kind."""

    role: Name
    members: Members
    processes: Processes = 1
    each: EachForm = EachForm()
    gpu: Listed[Text] = []
    node_labels: dict[Text, TextValue] = {}
    topology: TopologyForm = TopologyForm()
    image: Text | None = None
    run: Command = []
    env: dict[EnvName, TextValue] = {}
    workdir: Text | None = None


class ElasticForm(Form):
    """Members between min and max."""

    min: CountFromOne
    max: CountFromOne


class CheckpointForm(Form):
    """How the job saves its state."""

    every: DurationAboveZero | None = None
    signal: Signal | None = None
    grace: Duration | None = None
    path: Text | None = None


class RestartsForm(Form):
    """How often, and how soon, a gang is started again after a failure."""

    limit: Count | None = None
    backoff: Duration | None = None
    backoff_max: Duration | None = None


class ParallelismForm(Form):
    """How many ways the model is split along each axis. Axes keep the order in which they are written."""

    tensor: CountFromOne | None = None
    pipeline: CountFromOne | None = None
    data: CountFromOne | None = None
    expert: CountFromOne | None = None
    context: CountFromOne | None = None

    def axes(self) -> tuple[tuple[str, int], ...]:
        """Return (axis, ways) as written."""
        return tuple((axis, getattr(self, axis)) for axis in self.written_fields())


class JobForm(Form):
    """One document of job.yaml."""

    STAND_INS: ClassVar[Mapping[str, Any]] = {"name": "unnamed"}

    name: Name
    queue: QueuePath = "default"
    priority: Priority = "batch"
    gang: Annotated[list[RoleForm], Field(min_length=1)]
    topology: TopologyForm = TopologyForm()
    parallelism: ParallelismForm = ParallelismForm()
    elastic: ElasticForm | None = None
    checkpoint: CheckpointForm | None = None
    restarts: Annotated[
        RestartsForm, AlsoWritten(_limit_alone, {"type": "integer", "minimum": 0})
    ] = RestartsForm()
    time_limit: DurationAboveZero | None = None
    after: Listed[Name] = []
    array: Array | None = None
