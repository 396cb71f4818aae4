"""Fields of cluster.yaml. Rules between fields are in `rules`, `section_rules`, `gpu_part_rules` and `machines`."""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, PlainValidator, Tag, WithJsonSchema

from gantree.formats.validation.fields import (
    Amount,
    AmountAboveZero,
    Command,
    Count,
    CountFromOne,
    DomainOrNodes,
    DomainPath,
    GpuPartName,
    Isolation,
    Name,
    NicName,
    NodeNames,
    Share,
    Text,
    TextValue,
    Word,
    YesNo,
    one_of,
    wrong,
)
from gantree.formats.validation.forms import AlsoWritten, Form, Listed
from gantree.model.cluster import CUT_BY_GPU, CUT_NOT_PERMITTED, NO_LINK, TIME_SLICES
from gantree.model.jobs import ISOLATIONS
from gantree.text.document import Rows, Table
from gantree.text.words import did_you_mean
from gantree.topology.hardware.catalog import PATH_CLASSES, SELF, is_link_class

MAX_TIERS = 32
MAX_GPUS_OF_A_MACHINE = 1024
MAX_NICS_OF_A_MACHINE = 1024
MAX_AXES = 8
DEFAULT_ADDRESS = "127.0.0.1"
CUT_BY = (CUT_BY_GPU, "node", "nobody", CUT_NOT_PERMITTED)
"""What changes the MIG instances of GPUs: each GPU alone, a manager of the whole node, or nothing."""
NOT_SHARED = "none"


def _link_class(value: Any) -> str:
    if isinstance(value, str) and value == SELF:
        return SELF
    return _read_class(value, also=f"{SELF} on the diagonal, ")


def _path_class(value: Any) -> str:
    return _read_class(value, also="")


def _read_class(value: Any, also: str) -> str:
    if value is None or value == NO_LINK:
        return NO_LINK
    if isinstance(value, str) and is_link_class(value):
        return value
    words = [SELF, *PATH_CLASSES, "NV1", "XGMI1", "ICI1"]
    allowed = f"{also}NV1, NV2..., XGMI1..., ICI1, {', '.join(PATH_CLASSES)}, or null where unknown"
    raise wrong(allowed, did_you_mean(str(value), words))


_CLASS_SCHEMA: dict[str, Any] = {"type": ["string", "null"]}
LinkClass = Annotated[str, PlainValidator(_link_class), WithJsonSchema(_CLASS_SCHEMA)]
PathClass = Annotated[str, PlainValidator(_path_class), WithJsonSchema(_CLASS_SCHEMA)]


def _numa_node(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1024:
        raise wrong("the number of a NUMA node, or null where unknown")
    return int(value)


NumaNode = Annotated[
    int | None,
    PlainValidator(_numa_node),
    WithJsonSchema({"type": ["integer", "null"], "minimum": 0}),
]


TimeSlice = Annotated[
    str, PlainValidator(one_of(TIME_SLICES)), WithJsonSchema({"enum": list(TIME_SLICES)})
]
MigBy = Annotated[str, PlainValidator(one_of(CUT_BY)), WithJsonSchema({"enum": list(CUT_BY)})]


def _no_modes(value: Any) -> Any:
    """Make `{modes: []}` of a bare none."""
    if isinstance(value, Table):
        return value
    if value != NOT_SHARED:
        raise wrong(f"{NOT_SHARED}, or a mapping with the fields modes, tenants, time_slice")
    table = Table("", 0)
    table["modes"] = Rows("", 0)
    return table


def _nodes_alone(value: Any) -> Any:
    """Make `{node: n[0-3]}` of bare node names."""
    if isinstance(value, Table):
        return value
    table = Table("", 0)
    table["node"] = value
    return table


class NicForm(Form):
    """A network card of a machine."""

    name: NicName
    near: list[Count] = []
    rail: Count | None = None
    bandwidth_GBps: AmountAboveZero | None = None
    path: PathClass = NO_LINK


def _count_or_list(value: Any) -> str:
    return "(list)" if isinstance(value, Rows) else "(count)"


class MachineForm(Form):
    """A machine model: as counts, or in full with links, numa and nics."""

    gpus: Count
    gpu: Text | None = None
    links: list[list[LinkClass]] = []
    numa: list[NumaNode] = []
    nics: (
        Annotated[
            Annotated[Count, Tag("(count)")] | Annotated[list[NicForm], Tag("(list)")],
            Discriminator(_count_or_list),
        ]
        | None
    ) = None
    cpus: Amount | None = None
    memory_GiB: Amount | None = None
    peer: list[list[YesNo]] = []
    devices: dict[Text, CountFromOne] = {}
    numa_memory_GBps: AmountAboveZero | None = None


class LinkForm(Form):
    """What crossing a tier costs."""

    bandwidth_GBps: AmountAboveZero
    latency_us: Amount
    uplink_GBps: AmountAboveZero | None = None


class InstanceForm(Form):
    """A MIG instance of a GPU: its profile and the memory slice at which it starts."""

    gpu: Count
    profile: GpuPartName
    start: Count


class MigForm(Form):
    """The GPUs of a node in MIG mode, their instances, and what may change these."""

    gpus: list[Count] | None = None
    instances: list[InstanceForm] = []
    by: MigBy = CUT_BY[0]


class ShareForm(Form):
    """How the GPUs of a node may be shared without MIG."""

    modes: Listed[Isolation] = list(ISOLATIONS)
    tenants: CountFromOne | None = None
    time_slice: TimeSlice | None = None


class SpotForm(Form):
    """A spot node: how often a day it is reclaimed, on average."""

    per_day: Amount


class NodeForm(Form):
    """One node, or many that differ in nothing but their name."""

    names: NodeNames
    machine: Word
    at: dict[str, Word] = {}
    labels: dict[Text, TextValue] = {}
    launch: Command = []
    address: Text = DEFAULT_ADDRESS
    partitions: dict[Name, Word] = {}
    mig: MigForm | None = None
    share: Annotated[ShareForm, AlsoWritten(_no_modes, {"const": NOT_SHARED})] = ShareForm()
    spot: SpotForm | None = None


class SharePartForm(Form):
    """A share of one GPU that is taken."""

    gpu: Count
    compute: Share
    memory_GiB: Amount
    isolation: Isolation
    alone: YesNo = False


class AllocationForm(Form):
    """What is already taken on a node."""

    job: Text
    node: Word
    gpus: list[Count] = []
    cpus: Amount = 0.0
    memory_GiB: Amount = 0.0
    nics: Count = 0
    mig: list[InstanceForm] = []
    shares: list[SharePartForm] = []
    devices: dict[Text, CountFromOne] = {}


class DomainForm(Form):
    """What is particular of one domain of a tier."""

    tier: Word
    name: DomainPath
    uplink_GBps: AmountAboveZero | None = None
    health: Share = 1.0
    load: Share = 0.0


class NicFactsForm(Form):
    """Health and load of one NIC of one node."""

    node: Word
    nic: NicName
    health: Share = 1.0
    load: Share = 0.0


_Axes = Annotated[list[CountFromOne], Field(min_length=1, max_length=MAX_AXES)]


class TorusForm(Form):
    """Nodes on a grid with wrap-around links."""

    name: Word
    dims: _Axes
    host: _Axes | None = None
    nodes: NodeNames
    wrap: list[YesNo] | None = None
    slices: list[_Axes] = []
    cube: _Axes | None = None


class DataSetForm(Form):
    """Where a data set or checkpoint is: domains by tier, all of whose nodes have it."""

    name: Text
    at: Annotated[
        dict[Name, Listed[DomainOrNodes]],
        AlsoWritten(_nodes_alone, {"type": ["string", "integer", "number", "array"]}),
    ]


class ClusterForm(Form):
    """cluster.yaml: a site's tiers, links, machines, nodes, and what is already taken."""

    STAND_INS: ClassVar[Mapping[str, Any]] = {"name": "unnamed", "tiers": ["node"]}

    name: Name
    tiers: Annotated[list[Name], Field(min_length=1, max_length=MAX_TIERS)]
    links: dict[str, LinkForm] = {}
    machines: dict[Word, MachineForm] = {}
    nodes: Annotated[list[NodeForm], Field(min_length=1)]
    allocations: list[AllocationForm] = []
    domains: list[DomainForm] = []
    nics: list[NicFactsForm] = []
    tori: list[TorusForm] = []
    data: list[DataSetForm] = []
    spares: dict[Name, CountFromOne] = {}
