"""Fields of job.yaml.

Its `topology`, `notify` and `check` stand in forms of their own, rules that join fields in `rules`.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from gantree.formats.job.check_form import CheckForm
from gantree.formats.job.idle_form import IdleLimitsForm
from gantree.formats.job.notify_form import NotifyForm
from gantree.formats.job.topology_form import GangTopologyForm, TopologyForm
from gantree.formats.validation.fields import (
    MAX_COUNT,
    Amount,
    AmountAboveZero,
    Command,
    ComputePartition,
    Count,
    CountFromOne,
    Duration,
    DurationAboveZero,
    Isolation,
    MigProfileName,
    Name,
    QueuePath,
    Text,
    TextValue,
    YesNo,
    matching,
    number,
    one_of,
    plain_text,
    whole,
    wrong,
)
from gantree.formats.validation.forms import AlsoWritten, Form, Listed, empty
from gantree.model.errors import BadInput
from gantree.model.jobs import (
    AXES,
    CHOICES,
    COLLECTIVES,
    LAUNCHERS,
    SERVING_TRAFFIC,
    SHARDED,
)
from gantree.text.document import Table, Truth, written
from gantree.text.words import NAME_PATTERN

SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT")
"""Signals that a job may declare: those a process can catch and that mean nothing else."""
MAX_JOBS = 10_000
MAX_MEMBERS = 1_000_000
"""Members of one role. Far above any cluster; it keeps a typing error from being counted through."""
MAX_PROCESSES = 4096
"""Processes of one member."""
MAX_PRIORITY = 1_000_000_000
AS_WRITTEN = "as-written"
JOB, SERVICE = "job", "service"
KINDS = (JOB, SERVICE)
RANK_ORDERS = ("usual", AS_WRITTEN)
"""In which order the axes of the parallelism count ranks: that of AXES, or that of the file."""

_INDICES = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*", re.ASCII)


def _priority(value: Any) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_PRIORITY:
        return int(value)
    if isinstance(value, str) and re.fullmatch(NAME_PATTERN, value, re.ASCII):
        return value
    allowed = "a priority class such as batch, or a whole number"
    is_number = isinstance(value, int) and not isinstance(value, bool)
    raise wrong(f"{allowed} from {-MAX_PRIORITY} to {MAX_PRIORITY}" if is_number else allowed)


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
        fields = "a mapping with the fields limit, backoff, backoff_max, exit_codes"
        raise wrong(f"a number of restarts from 0 to {MAX_COUNT}, or {fields}")
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
Signal = Annotated[str, PlainValidator(one_of(SIGNALS)), WithJsonSchema({"enum": list(SIGNALS)})]
Priority = Annotated[
    str | int, PlainValidator(_priority), WithJsonSchema({"type": ["string", "integer"]})
]
Array = Annotated[
    list[range], PlainValidator(_array), WithJsonSchema({"type": ["string", "integer"]})
]
ExitCode = Annotated[
    int,
    PlainValidator(whole(1, 255, "an exit code from 1 to 255")),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 255}),
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


_QUANTITY = re.compile(
    r"(\d{1,18}(?:\.\d{1,18})?)(?:[eE]\+?(\d{1,2}))?\s?([a-zA-Z]{0,3})", re.ASCII
)
_TIMES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
          "KIB": 2.0**10, "MIB": 2.0**20, "GIB": 2.0**30, "TIB": 2.0**40}  # fmt: skip
MOST_BYTES = 1e18


def _quantity(value: Any, units: Mapping[str, float], allowed: str) -> float:
    """A number, or a text of one and a unit, above 0 and at most 1e18."""
    amount = value
    if isinstance(value, str):
        found = _QUANTITY.fullmatch(value)
        if not found or found[3].upper() not in units:
            raise wrong(allowed)
        amount = float(found[1]) * 10.0 ** int(found[2] or 0) * units[found[3].upper()]
    if (
        isinstance(amount, bool)
        or not isinstance(amount, (int, float))
        or not 0 < amount <= MOST_BYTES
    ):
        raise wrong(allowed)
    return float(amount)


def _parameters(value: Any) -> float:
    return _quantity(value, _TIMES, "a number of parameters above 0, such as 7B, 350M or 1.2e9")


def _bytes(value: Any) -> float:
    allowed = "a size above 0, at most 1e18 bytes, such as 512MiB, 14GB or a number of bytes"
    return _quantity(value, {"": 1.0, **_BYTES}, allowed)


def bytes_of(text: str, option: str) -> float:
    """Bytes of a size as job files write it. Raises BadInput, naming the option."""
    try:
        return _bytes(text)
    except PydanticCustomError as error:
        raise BadInput(f"{option} {text}: allowed: {error.message()}") from None


def _model_alone(value: Any) -> Any:
    """Make `{model: H100-80GB}` of a bare H100-80GB."""
    if isinstance(value, Table):
        return value
    table = Table("", 0)
    table["model"] = plain_text(value)
    return table


def _bytes_alone(value: Any) -> Any:
    """Make `{bytes: 14GB}` of a bare 14GB."""
    if isinstance(value, Table):
        return value
    table = Table("", 0)
    table["bytes"] = _bytes(value)
    return table


Sharded = Annotated[str, PlainValidator(one_of(SHARDED)), WithJsonSchema({"enum": list(SHARDED)})]
CollectiveName = Annotated[
    str, PlainValidator(one_of(COLLECTIVES)), WithJsonSchema({"enum": list(COLLECTIVES)})
]
Kind = Annotated[str, PlainValidator(one_of(KINDS)), WithJsonSchema({"enum": list(KINDS)})]
Choice = Annotated[str, PlainValidator(one_of(CHOICES)), WithJsonSchema({"enum": list(CHOICES)})]
Launcher = Annotated[
    str, PlainValidator(one_of(LAUNCHERS)), WithJsonSchema({"enum": list(LAUNCHERS)})
]
RankOrder = Annotated[
    str, PlainValidator(one_of(RANK_ORDERS)), WithJsonSchema({"enum": list(RANK_ORDERS)})
]
Parameters = Annotated[
    float, PlainValidator(_parameters), WithJsonSchema({"type": ["number", "string"]})
]
Bytes = Annotated[float, PlainValidator(_bytes), WithJsonSchema({"type": ["number", "string"]})]
ShareFromZero = Annotated[
    float,
    PlainValidator(number(0, 1, "a number from 0 to 1")),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1}),
]
AboveZeroToOne = Annotated[
    float,
    PlainValidator(number(1e-6, 1, "a number above 0, at most 1")),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
]


class EachForm(Form):
    """What one member needs on one node."""

    gpus: Count = 0
    cpus: Amount = 0.0
    memory_GiB: Amount = 0.0
    nics: Count = 0
    mig: MigProfileName | None = None
    compute_partition: ComputePartition | None = None
    gpu_share: Share | None = None
    gpu_memory_GiB: AmountAboveZero | None = None
    isolation: Isolation | None = None
    neighbours: YesNo = False
    memory_GBps: Amount = 0.0
    devices: dict[Text, CountFromOne] = empty(dict)

    @property
    def profile(self) -> str | None:
        """The MIG profile, or the mode of the GPU, of which a member gets an instance."""
        return self.mig or self.compute_partition


class GpuForm(Form):
    """A GPU model that a member accepts, and how fast the job is on it beside its fastest."""

    model: Text
    speed: AboveZeroToOne | None = None


_OrModel = AlsoWritten(_model_alone, {"type": ["string", "integer", "number"]})


class AlternativeForm(Form):
    """Another shape of a member that serves as well. What `each` and `gpu` leave out beside GPUs is as in the role."""

    each: EachForm
    gpu: Listed[Annotated[GpuForm, _OrModel]] = empty(list)
    speed: AmountAboveZero = 1.0

    def models(self) -> list[str]:
        """Return the GPU models that it lists, best first."""
        return [gpu.model for gpu in self.gpu]


class RoleForm(Form):
    """Members of one kind."""

    role: Name
    members: Members
    processes: Processes = 1
    each: EachForm = EachForm()
    gpu: Listed[Annotated[GpuForm, _OrModel]] = empty(list)
    alternatives: Listed[AlternativeForm] = empty(list)
    node_labels: dict[Text, TextValue] = empty(dict)
    topology: TopologyForm = TopologyForm()
    image: Text | None = None
    run: Command = empty(list)
    env: dict[EnvName, TextValue] = empty(dict)
    workdir: Text | None = None

    def models(self) -> list[str]:
        """Return the GPU models that are acceptable, best first."""
        return [gpu.model for gpu in self.gpu]


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


class WarnForm(Form):
    """A signal before the time limit ends."""

    signal: Signal
    before: DurationAboveZero


class RestartsForm(Form):
    """How often, and how soon, a gang is started again after a failure."""

    limit: Count | None = None
    backoff: Duration | None = None
    backoff_max: Duration | None = None
    exit_codes: Listed[ExitCode] = empty(list)
    replace_within: Duration | None = None


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


class GangParallelismForm(ParallelismForm):
    """Ways of a training job, or GPUs of each instance of a service."""

    prefill: CountFromOne | None = None
    decode: CountFromOne | None = None

    def axes(self) -> tuple[tuple[str, int], ...]:
        """Return (axis, ways) of a training job, as written."""
        return tuple(way for way in super().axes() if way[0] in AXES)

    @property
    def serves(self) -> bool:
        """Whether it is that of a service."""
        return self.prefill is not None or self.decode is not None


class ModelForm(Form):
    """The model that is trained: what its traffic and its arithmetic follow from."""

    parameters: Parameters
    layers: CountFromOne
    hidden: CountFromOne
    sequence: CountFromOne
    batch: CountFromOne
    micro_batch: CountFromOne = 1
    heads: CountFromOne | None = None
    kv_heads: CountFromOne | None = None
    value_bytes: AmountAboveZero = 2.0
    gradient_bytes: AmountAboveZero = 4.0
    experts: CountFromOne | None = None
    experts_per_token: CountFromOne = 1
    expert_parameters: Parameters | None = None
    sharded: Sharded = "none"
    mfu: AboveZeroToOne | None = None
    peak_TFLOPS: AmountAboveZero | None = None


class AxisTrafficForm(Form):
    """What each rank sends a step along one axis."""

    bytes: Bytes
    calls: CountFromOne = 1
    collective: CollectiveName | None = None


_OrBytes = AlsoWritten(_bytes_alone, {"type": ["number", "string"]})


class TrafficForm(Form):
    """Traffic of a step, given instead of derived from a model."""

    tensor: Annotated[AxisTrafficForm | None, _OrBytes] = None
    context: Annotated[AxisTrafficForm | None, _OrBytes] = None
    expert: Annotated[AxisTrafficForm | None, _OrBytes] = None
    data: Annotated[AxisTrafficForm | None, _OrBytes] = None
    pipeline: Annotated[AxisTrafficForm | None, _OrBytes] = None
    compute: DurationAboveZero | None = None
    micro_batches: CountFromOne = 1

    def axes(self) -> tuple[tuple[str, AxisTrafficForm], ...]:
        """Return (axis, form) of those that are written."""
        by_axis = ((axis, getattr(self, axis)) for axis in AXES)
        return tuple((axis, form) for axis, form in by_axis if form is not None)


class GangTrafficForm(TrafficForm):
    """Traffic of a training step, or of a request to a service."""

    prefill: Annotated[AxisTrafficForm | None, _OrBytes] = None
    kv: Annotated[AxisTrafficForm | None, _OrBytes] = None
    decode: Annotated[AxisTrafficForm | None, _OrBytes] = None

    def served(self) -> tuple[tuple[str, AxisTrafficForm], ...]:
        """Return (kind, form) of the traffic of a service that is written."""
        by_kind = ((kind, getattr(self, kind)) for kind in SERVING_TRAFFIC)
        return tuple((kind, form) for kind, form in by_kind if form is not None)


class OverlapForm(Form):
    """Which share of an axis's traffic hides behind computing."""

    tensor: ShareFromZero | None = None
    context: ShareFromZero | None = None
    expert: ShareFromZero | None = None
    data: ShareFromZero | None = None
    pipeline: ShareFromZero | None = None

    def axes(self) -> tuple[tuple[str, float], ...]:
        """Return (axis, share) of those that are written."""
        by_axis = ((axis, getattr(self, axis)) for axis in AXES)
        return tuple((axis, share) for axis, share in by_axis if share is not None)


class DataForm(Form):
    """What every node of the job reads before it starts: how much, and which version of it."""

    name: Text | None = None
    GiB: AmountAboveZero | None = None
    path: Text | None = None
    version: Text | None = None

    def known_as(self) -> str:
        """Its name, else its path."""
        return self.name or self.path or ""


class JobForm(Form):
    """One document of job.yaml. It has one field for each field of the file."""

    STAND_INS: ClassVar[Mapping[str, Any]] = {"name": "unnamed"}
    HINTS: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("replicas", "port", "ready", "update", "drain", "spread", "scale", "route"),
        "It is a field of a service: write `kind: service`.",
    )

    kind: Kind = JOB
    name: Name
    queue: QueuePath = "default"
    priority: Priority = "batch"
    user: Text | None = None
    project: Name | None = None
    preemptible: YesNo = True
    gang: Annotated[list[RoleForm], Field(min_length=1)]
    topology: GangTopologyForm = GangTopologyForm()
    parallelism: GangParallelismForm = GangParallelismForm()
    rank_order: RankOrder = RANK_ORDERS[0]
    communicates: YesNo = True
    model: ModelForm | None = None
    traffic: GangTrafficForm | None = None
    overlap: OverlapForm = OverlapForm()
    data: Listed[DataForm] = empty(list)
    elastic: ElasticForm | None = None
    checkpoint: CheckpointForm | None = None
    restarts: Annotated[
        RestartsForm, AlsoWritten(_limit_alone, {"type": "integer", "minimum": 0})
    ] = RestartsForm()
    time_limit: DurationAboveZero | None = None
    warn: WarnForm | None = None
    expected: DurationAboveZero | None = None
    choose: Choice = CHOICES[0]
    budget_USD: AmountAboveZero | None = None
    spot: YesNo = False
    variables: Launcher | None = None
    secrets: dict[EnvName, Text] = empty(dict)
    notify: NotifyForm | None = None
    check: CheckForm | None = None
    idle: IdleLimitsForm | None = None
    hold: YesNo = False
    after: Listed[Name] = empty(list)
    array: Array | None = None
