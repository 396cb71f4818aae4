"""What policy.yaml may hold, field by field. Its `queues` stand in `queue_form`, rules that join fields in
`rules` and `queue_rules`.

A field that is left out is as the preset says; the presets themselves are read by the same form (`RulesForm`).
"""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.job.form import MAX_PRIORITY, AboveZeroToOne, EachForm
from gantree.formats.job.topology_form import JobPattern
from gantree.formats.policy.idle_form import IdleForm, none_alone
from gantree.formats.policy.queue_form import QueueForm
from gantree.formats.validation.fields import (
    Amount,
    AmountAboveZero,
    CountFromOne,
    Duration,
    DurationAboveZero,
    Name,
    QueuePath,
    Text,
    TextValue,
    YesNo,
    duration_above_zero,
    number,
    one_of,
    whole,
    wrong,
)
from gantree.formats.validation.forms import AlsoWritten, Form, Listed
from gantree.policy.rules import BY_HELD, BY_USEFUL, OrderKey, PlacementRule, UseWeights, VictimRule
from gantree.text.document import Table, Truth, written

PRESET_NAMES = (
    "gantree", "fifo", "backfill", "fair", "least-attained-service", "srsf", "least-stretch", "cells", "first-fit",
    "blind-first-fit", "blind-best-fit", "blind-random",
)  # fmt: skip
"""The presets, in the order of the documentation; each is a file of `presets`."""
MAX_FRAGMENTATION_WEIGHT = 10
MAX_GPU_WEIGHT = 1e6

ORDER_KEYS: tuple[str, ...] = get_args(OrderKey)
OVERTAKE = ("any", "promised", "none")
DEFRAGMENT = ("off", "plan", "apply")
PLACEMENTS: tuple[str, ...] = get_args(PlacementRule)
MAX_SEED = 2**63 - 1
WEIGHED_BY = ("price", "speed", "equal")
SHARE_BY = {"held": BY_HELD, "useful": BY_USEFUL}
"""Words for `share_by`."""
MAX_USE_WEIGHT = 10
PREEMPT_BY = ("priority", "order", "none")
VICTIMS: tuple[str, ...] = get_args(VictimRule)
NONE, UNLIMITED = "none", "unlimited"
BY = "by"
"""Among the models of `gpu_weights`: what those that are not named are weighed by."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII)


def _moment(value: Any) -> float:
    """Return Unix seconds of a date (its midnight) or of a date and time, UTC where no offset is written."""
    text = None if isinstance(value, Truth) else written(value)
    allowed = "a date such as 2026-12-01, or a moment such as 2026-12-01T12:00:00Z"
    if text is None or not _MOMENT.fullmatch(text):
        raise wrong(allowed)
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise wrong(allowed) from None


def _duration_or_none(value: Any) -> float | str:
    return NONE if value == NONE else duration_above_zero(value)


def _count_or_unlimited(value: Any) -> int | str:
    allowed = f"a whole number of 0 or more, or {UNLIMITED}"
    return UNLIMITED if value == UNLIMITED else whole(0, 10_000_000, allowed)(value)


def _overtake_alone(value: Any) -> Any:
    """Make `{overtake: any}` of a bare any."""
    if isinstance(value, Table):
        return value
    table = Table("", 0)
    table["overtake"] = one_of(OVERTAKE)(value)
    return table


def _preempt_alone(value: Any) -> Any:
    """Make `{by: priority}` of a bare true, and `{by: none}` of a bare false."""
    if isinstance(value, Table):
        return value
    if not isinstance(value, Truth):
        raise wrong(
            "true or false, or a mapping with the fields by, who, across, gain, plans, victims"
        )
    table = Table("", 0)
    table["by"] = "priority" if value else NONE
    return table


def _by_alone(value: Any) -> Any:
    """Make `{by: speed}` of a bare speed."""
    if isinstance(value, Table):
        return value
    table = Table("", 0)
    table[BY] = one_of(WEIGHED_BY)(value)
    return table


def _share_by_alone(value: Any) -> Any:
    """Make `{idle: 0, lost_to_others: 0}` of a bare useful."""
    if isinstance(value, Table):
        return value
    weights = SHARE_BY[one_of(tuple(SHARE_BY))(value)]
    table = Table("", 0)
    table |= {"idle": weights.idle, "lost_to_others": weights.lost_to_others}
    return table


def _weight(value: Any) -> float | str:
    """A weight of a model, or a word for `by`; `policy_rules` sees to it which stands where."""
    if isinstance(value, str):
        return one_of(WEIGHED_BY)(value)
    return number(0, MAX_GPU_WEIGHT, f"a number from 0 to {MAX_GPU_WEIGHT:g}")(value)


PresetName = Annotated[
    str, PlainValidator(one_of(PRESET_NAMES)), WithJsonSchema({"enum": list(PRESET_NAMES)})
]
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
AgePerDay = Annotated[
    float,
    PlainValidator(number(0, MAX_PRIORITY, "a number of 0 or more")),
    WithJsonSchema({"type": "number", "minimum": 0}),
]
Key = Annotated[str, PlainValidator(one_of(ORDER_KEYS)), WithJsonSchema({"enum": list(ORDER_KEYS)})]
HalfLife = Annotated[
    float | Literal["none"],
    PlainValidator(_duration_or_none),
    WithJsonSchema({"type": ["string", "number"]}),
]
Moment = Annotated[
    float,
    PlainValidator(_moment),
    WithJsonSchema({"type": "string", "pattern": f"^{_MOMENT.pattern}$"}),
]
Budget = Annotated[
    int | Literal["unlimited"],
    PlainValidator(_count_or_unlimited),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": UNLIMITED}]}),
]
Overtake = Annotated[
    str, PlainValidator(one_of(OVERTAKE)), WithJsonSchema({"enum": list(OVERTAKE)})
]
PreemptBy = Annotated[
    str, PlainValidator(one_of(PREEMPT_BY)), WithJsonSchema({"enum": list(PREEMPT_BY)})
]
Victims = Annotated[str, PlainValidator(one_of(VICTIMS)), WithJsonSchema({"enum": list(VICTIMS)})]
Defragment = Annotated[
    str, PlainValidator(one_of(DEFRAGMENT)), WithJsonSchema({"enum": list(DEFRAGMENT)})
]
PlacedBy = Annotated[
    str, PlainValidator(one_of(PLACEMENTS)), WithJsonSchema({"enum": list(PLACEMENTS)})
]
Seed = Annotated[
    int,
    PlainValidator(whole(0, MAX_SEED, "a whole number of 0 or more")),
    WithJsonSchema({"type": "integer", "minimum": 0}),
]
GpuWeight = Annotated[
    float | str,
    PlainValidator(_weight),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"enum": list(WEIGHED_BY)}]}),
]

UseWeight = Annotated[
    float,
    PlainValidator(number(0, MAX_USE_WEIGHT, f"a number from 0 to {MAX_USE_WEIGHT}")),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_USE_WEIGHT}),
]


class EvictionsForm(Form):
    """How gently running work is stopped."""

    per_job_per_day: Budget | None = None
    min_run: Duration | None = None
    leave_unwell: YesNo | None = None
    leave_degraded: YesNo | None = None
    grace: Duration | None = None
    restart: Duration | None = None


class BoostForm(Form):
    """More priority for some jobs, or less, until a moment."""

    by: PriorityNumber
    until: Moment
    queue: QueuePath | None = None
    user: Text | None = None
    job: JobPattern | None = None


class BackfillForm(Form):
    """What may start while a gang that goes first waits for room."""

    overtake: Overtake | None = None
    reservations: CountFromOne | None = None
    quantile: AboveZeroToOne | None = None
    depth: CountFromOne | None = None


class PreemptForm(Form):
    """Which jobs a job may preempt."""

    by: PreemptBy | None = None
    who: dict[Name, list[Name]] | None = None
    across: YesNo | None = None
    gain: Amount | None = None
    plans: CountFromOne | None = None
    victims: Victims | None = None


class TimeSharingForm(Form):
    """Jobs that take turns on a shared GPU."""

    classes: Listed[Name]
    quantum: DurationAboveZero = 60.0


class UsersForm(Form):
    """What users of a queue are to each other."""

    share: YesNo | None = None


class ShareByForm(Form):
    """What a GPU-second that was held counts in shares."""

    idle: UseWeight = 1.0
    lost_to_others: UseWeight = 1.0

    def weights(self) -> UseWeights:
        """Return them."""
        return UseWeights(self.idle, self.lost_to_others)


class DemandForm(Form):
    """Members that usually come: what one needs on a node, and how often they come beside the others."""

    each: EachForm
    gpu: Listed[Text] = []
    node_labels: dict[Text, TextValue] = {}
    weight: AmountAboveZero = 1.0

    def models(self) -> list[str]:
        """Return the GPU models that are named."""
        return self.gpu


class RulesForm(Form):
    """All rules of a policy. None: as what they override."""

    priorities: dict[Name, PriorityNumber] = {}
    order: list[Key] | None = None
    attained_levels: list[DurationAboveZero] | None = None
    stretch: Amount | None = None
    age_per_day: AgePerDay | None = None
    half_life: HalfLife | None = None
    boosts: list[BoostForm] | None = None
    gpu_weights: Annotated[
        dict[Text, GpuWeight] | None, AlsoWritten(_by_alone, {"enum": list(WEIGHED_BY)})
    ] = None
    users: UsersForm = UsersForm()
    share_by: Annotated[
        ShareByForm | None, AlsoWritten(_share_by_alone, {"enum": list(SHARE_BY)})
    ] = None
    queues: list[QueueForm] | None = None
    backfill: Annotated[BackfillForm, AlsoWritten(_overtake_alone, {"enum": list(OVERTAKE)})] = (
        BackfillForm()
    )
    preempt: Annotated[PreemptForm, AlsoWritten(_preempt_alone, {"type": "boolean"})] = (
        PreemptForm()
    )
    evictions: EvictionsForm = EvictionsForm()
    elastic: YesNo | None = None
    defragment: Defragment | None = None
    time_sharing: TimeSharingForm | None = None
    placement: PlacedBy | None = None
    placement_seed: Seed | None = None
    topology: YesNo | None = None
    fragmentation_weight: FragmentationWeight | None = None
    exact: Duration | None = None
    demand: list[DemandForm] | None = None
    idle: Annotated[IdleForm | None, AlsoWritten(none_alone, {"const": NONE})] = None


class PolicyForm(RulesForm):
    """policy.yaml: a preset and what overrides it."""

    preset: PresetName = PRESET_NAMES[0]
