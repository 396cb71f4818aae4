"""Fields of `topology` in job.yaml: the place of members relative to each other and to other jobs.

Rules that join fields stand in `topology_rules`.
"""

import re
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from gantree.formats.validation.fields import Amount, CountFromOne, Name, matching, wrong
from gantree.formats.validation.forms import AlsoWritten, Form, Listed, empty, one_or_many
from gantree.model.jobs import AXES
from gantree.text.document import Table, Truth, written
from gantree.text.words import NAME_PATTERN

ANY_BOX = "any"
MAX_AXES = 8

_BOX = re.compile(rf"[1-9]\d{{0,5}}(x[1-9]\d{{0,5}}){{0,{MAX_AXES - 1}}}", re.ASCII)
_JOB_PATTERN = r"[A-Za-z0-9*?][A-Za-z0-9._*?-]{0,62}"


def _box(value: Any) -> tuple[int, ...]:
    """GPUs axis by axis of `4x4x16`; () of `any`."""
    text = None if isinstance(value, Truth) else written(value)
    if text == ANY_BOX:
        return ()
    if text is None or not _BOX.fullmatch(text):
        raise wrong(f"{ANY_BOX}, or GPUs along each axis, such as 4x4x16, at most {MAX_AXES} axes")
    return tuple(int(size) for size in text.split("x"))


def _tier_alone(value: Any) -> Any:
    """Make `{tier: leaf}` of a bare leaf."""
    if isinstance(value, Table):
        return value
    table = Table("", 0)
    table["tier"] = matching(NAME_PATTERN, "a tier, or a mapping with the fields tier, at_most")(
        value
    )
    return table


Box = Annotated[
    tuple[int, ...],
    PlainValidator(_box),
    WithJsonSchema({"type": ["string", "integer"], "pattern": f"^({ANY_BOX}|[0-9]+(x[0-9]+)*)$"}),
]
JobPattern = Annotated[
    str,
    PlainValidator(
        matching(_JOB_PATTERN, "the name of a job, or a pattern of names such as chat-*")
    ),
    WithJsonSchema({"type": ["string", "integer", "number"], "pattern": f"^{_JOB_PATTERN}$"}),
]


class SlicesForm(Form):
    """Runs of consecutive members that stay together, must or should."""

    members: CountFromOne
    required: Name | None = None
    preferred: Name | None = None
    role: Name | None = None


class SpreadForm(Form):
    """Members far from each other."""

    tier: Name
    at_most: CountFromOne | None = None


class ApartForm(Form):
    """Other jobs that no domain of a tier is shared with."""

    tier: Name
    jobs: Annotated[list[JobPattern], Field(min_length=1), AlsoWritten(one_or_many)]


class NearWeightsForm(Form):
    """What each domain that the widest group of an axis reaches weighs."""

    tensor: Amount | None = None
    context: Amount | None = None
    expert: Amount | None = None
    data: Amount | None = None
    pipeline: Amount | None = None

    def axes(self) -> tuple[tuple[str, float], ...]:
        """Return (axis, weight) of those that are written."""
        by_axis = ((axis, getattr(self, axis)) for axis in AXES)
        return tuple((axis, weight) for axis, weight in by_axis if weight is not None)


class NearForm(Form):
    """Groups of ranks in few domains of a tier, by what each domain of their widest weighs."""

    tier: Name
    weights: NearWeightsForm


class TopologyForm(Form):
    """Where members may be, relative to each other and to other jobs."""

    required: Name | None = None
    preferred: Name | None = None
    slices: Listed[SlicesForm] = empty(list)
    spread: Annotated[
        SpreadForm | None,
        AlsoWritten(_tier_alone, {"type": "string", "pattern": f"^{NAME_PATTERN}$"}),
    ] = None
    apart: Listed[ApartForm] = empty(list)


class GangTopologyForm(TopologyForm):
    """Where the members of the whole gang may be; only a whole gang can be a slice of a torus or weigh groups."""

    box: Box | None = None
    near: NearForm | None = None
