"""Fields of a service (`kind: service`) in job.yaml, beside those of a job; rules that join them in `service_rules`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from gantree.formats.job.form import SERVICE, JobForm, Kind, Priority
from gantree.formats.validation.fields import (
    DURATION_SCHEMA,
    Count,
    CountFromOne,
    Duration,
    DurationAboveZero,
    Name,
    Share,
    Text,
    YesNo,
    duration,
    duration_above_zero,
    matching,
    number,
    one_of,
    whole,
    wrong,
)
from gantree.formats.validation.forms import AlsoWritten, Form, Listed, empty
from gantree.model import federation
from gantree.model.services import AFFINITIES, METRICS
from gantree.text.document import Table, Truth
from gantree.text.words import NAME_PATTERN

MAX_REPLICAS, MAX_REGIONS = 10_000, 100
LONGEST_NAME = 55
"""Characters of the name of a service; `NAME.NUMBER` of a replica has at most 63."""
MAX_QUERY = 4096
LEAST_EVERY_S, MOST_TIMEOUT_S = 0.05, 60.0
"""Of probes, all of which one daemon sends."""
TOKENIZER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*"
HTTP_PATH = r"/[!-\"$-~]{0,1023}"
"""A path, perhaps with a query, as a request line has it: no space, no fragment."""


def _number_alone(value: Any) -> Any:
    """Make `{min: 3, max: 3}` of a bare 3."""
    if isinstance(value, Table):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_REPLICAS:
        fields = "a mapping with the fields min, max, floor, spare"
        raise wrong(f"a number of replicas from 1 to {MAX_REPLICAS}, or {fields}")
    table = Table("", 0)
    table["min"] = table["max"] = value
    return table


def _tier_alone(value: Any) -> Any:
    """Make `{tier: leaf}` of a bare leaf."""
    if isinstance(value, Table):
        return value
    table = Table("", 0)
    allowed = "a tier, or a mapping with the fields tier, required"
    table["tier"] = matching(NAME_PATTERN, allowed)(value)
    return table


def _yes_alone(value: Any) -> Any:
    """Make a mapping without fields, so that all is chosen, of a bare true."""
    if isinstance(value, Table):
        return value
    if not isinstance(value, Truth) or not value:
        raise wrong("true, or a mapping with the fields port, replay_port")
    return Table("", 0)


_TARGETS = "a number above 0, or for a latency a duration such as 500ms"
_number_above_zero = number(1e-12, 1e15, _TARGETS)


def _target(value: Any) -> float:
    if not isinstance(value, str):
        return _number_above_zero(value)
    try:
        return duration_above_zero(value)
    except PydanticCustomError as error:
        raise wrong(_TARGETS) from error


def _probed_every(value: Any) -> float:
    seconds = duration(value)
    if seconds < LEAST_EVERY_S:
        raise wrong("a duration of at least 50ms")
    return seconds


def _probe_timeout(value: Any) -> float:
    seconds = duration_above_zero(value)
    if seconds > MOST_TIMEOUT_S:
        raise wrong(
            "a duration of at most 1m; `failures` says how many may fail, `within` how long a start takes"
        )
    return seconds


def _query(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_QUERY:
        raise wrong(f"a Prometheus query of at most {MAX_QUERY} characters")
    return value


def _regions(value: Any) -> federation.Regions:
    allowed = (
        f"a number of regions from 1 to {MAX_REGIONS}, all, or a list of their names, each once"
    )
    if value == "all":
        return federation.Regions()
    if isinstance(value, list):
        names = tuple(matching(NAME_PATTERN, allowed)(each) for each in value)
        if not 1 <= len(set(names)) == len(names) <= MAX_REGIONS:
            raise wrong(allowed)
        return federation.Regions(names=names)
    return federation.Regions(count=whole(1, MAX_REGIONS, allowed)(value))


Replicas = Annotated[
    int,
    PlainValidator(whole(0, MAX_REPLICAS, "a number of replicas")),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_REPLICAS}),
]
ReplicasFromOne = Annotated[
    int,
    PlainValidator(whole(1, MAX_REPLICAS, "a number of replicas, 1 or more")),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_REPLICAS}),
]
Port = Annotated[
    int,
    PlainValidator(whole(1, 65_535, "a port from 1 to 65535")),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 65_535}),
]
HttpPath = Annotated[
    str,
    PlainValidator(matching(HTTP_PATH, "a path such as /health")),
    WithJsonSchema({"type": "string", "pattern": f"^{HTTP_PATH}$"}),
]
ProbedEvery = Annotated[float, PlainValidator(_probed_every), WithJsonSchema(DURATION_SCHEMA)]
ProbeTimeout = Annotated[float, PlainValidator(_probe_timeout), WithJsonSchema(DURATION_SCHEMA)]
Metric = Annotated[str, PlainValidator(one_of(METRICS)), WithJsonSchema({"enum": list(METRICS)})]
Query = Annotated[
    str, PlainValidator(_query), WithJsonSchema({"type": "string", "maxLength": MAX_QUERY})
]
TargetValue = Annotated[
    float,
    PlainValidator(_target),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, *DURATION_SCHEMA["anyOf"]]}
    ),
]
Affinity = Annotated[
    str, PlainValidator(one_of(AFFINITIES)), WithJsonSchema({"enum": list(AFFINITIES)})
]
TokenizerName = Annotated[
    str,
    PlainValidator(
        matching(TOKENIZER, "a directory below that of all tokenizers, such as llama-8b")
    ),
    WithJsonSchema({"type": "string", "pattern": f"^{TOKENIZER}$"}),
]


Regions = Annotated[
    federation.Regions,
    PlainValidator(_regions),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_REGIONS},
                {"const": "all"},
                {
                    "type": "array",
                    "items": {"type": "string", "pattern": f"^{NAME_PATTERN}$"},
                    "minItems": 1,
                    "maxItems": MAX_REGIONS,
                    "uniqueItems": True,
                },
            ]
        }
    ),
]


class ReplicasForm(Form):
    """How many replicas there may be."""

    min: Replicas = 1
    max: ReplicasFromOne | None = None
    floor: Replicas = 0
    spare: Replicas = 0

    @property
    def most(self) -> int:
        """The most replicas that there may be."""
        return self.max or max(self.min, 1)


class ReadyForm(Form):
    """When a replica is ready."""

    http: HttpPath | None = None
    every: ProbedEvery = 2.0
    timeout: ProbeTimeout = 1.0
    failures: CountFromOne = 3
    within: DurationAboveZero = 600.0


class UpdateForm(Form):
    """How far the number of replicas may leave the wanted one during an update."""

    surge: Replicas = 1
    unavailable: Replicas = 0


class ReplicaSpreadForm(Form):
    """Replicas in different domains of a tier, as far as possible or without exception."""

    tier: Name
    required: YesNo = False


class TargetForm(Form):
    """A value that autoscaling keeps: of a metric, or of a query."""

    metric: Metric | None = None
    query: Query | None = None
    target: TargetValue
    per_replica: YesNo | None = None


class StepsForm(Form):
    """How fast the number of replicas may change in one direction."""

    stabilise: Duration | None = None
    at_most: Count = 0
    per: DurationAboveZero = 60.0


class ScaleForm(Form):
    """What decides the number of replicas."""

    on: Listed[TargetForm] = empty(list)
    every: DurationAboveZero = 15.0
    tolerance: Share = 0.1
    up: StepsForm = StepsForm()
    down: StepsForm = StepsForm()
    to_zero: Duration = 300.0
    predict: YesNo = False


class CacheEventsForm(Form):
    """Where the engine of a replica publishes its cache events; without ports, those are chosen."""

    port: Port | None = None
    replay_port: Port | None = None


class RouteForm(Form):
    """How requests reach replicas."""

    models: Listed[Text] = empty(list)
    concurrency: Count = 0
    queue: Count = 1000
    wait: Duration = 60.0
    timeout: DurationAboveZero = 600.0
    affinity: Affinity = AFFINITIES[0]
    tokenizer: TokenizerName | None = None


class ServiceForm(JobForm):
    """A document with `kind: service`. What a job may say and a service may not, `service_rules` refuse."""

    HINTS: ClassVar[Mapping[str, str]] = {}

    kind: Kind = SERVICE
    priority: Priority = "serving"
    replicas: Annotated[
        ReplicasForm, AlsoWritten(_number_alone, {"type": "integer", "minimum": 1})
    ] = ReplicasForm()
    port: Port | None = None
    cache_events: Annotated[CacheEventsForm | None, AlsoWritten(_yes_alone, {"const": True})] = None
    ready: ReadyForm = ReadyForm()
    update: UpdateForm = UpdateForm()
    drain: Duration = 30.0
    spread: Annotated[
        ReplicaSpreadForm | None,
        AlsoWritten(_tier_alone, {"type": "string", "pattern": f"^{NAME_PATTERN}$"}),
    ] = None
    scale: ScaleForm = ScaleForm()
    route: RouteForm = RouteForm()
    regions: Regions = federation.ONE_REGION
