"""Files of a router: a table of routes without a daemon (`--table`), tenants and their limits (`--tenants`)."""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.validation.fields import (
    Amount,
    AmountAboveZero,
    Count,
    CountFromOne,
    Name,
    Text,
    YesNo,
    matching,
    one_of,
)
from gantree.formats.validation.forms import Form, Listed, only_document, read_form, refuse
from gantree.model.errors import BadInput, Problem
from gantree.model.services import AFFINITIES
from gantree.routing.table import RouteTable, table_of
from gantree.text.document import read_documents

MAX_FILE_BYTES = 4 * 1024 * 1024
PRIORITIES = ("high", "normal", "low")
_DIGEST = "[0-9a-fA-F]{64}"
Affinity = Annotated[
    str, PlainValidator(one_of(AFFINITIES)), WithJsonSchema({"enum": list(AFFINITIES)})
]
Priority = Annotated[
    str, PlainValidator(one_of(PRIORITIES)), WithJsonSchema({"enum": list(PRIORITIES)})
]
AnyForm = TypeVar("AnyForm", bound=Form)
KeyDigest = Annotated[
    str,
    PlainValidator(matching(_DIGEST, "the SHA-256 of a key: printf %s KEY | sha256sum")),
    WithJsonSchema({"type": "string", "pattern": f"^{_DIGEST}$"}),
]


class ReplicaForm(Form):
    """A replica as `table.RoutedReplica`; node, gpu and spare are for people."""

    replica: Text
    attempt: CountFromOne = 1
    host: Text
    port: CountFromOne
    place: Listed[Text] = []
    speed: AmountAboveZero = 1.0
    ready: YesNo = True
    draining: YesNo = False
    cache_events_port: Count = 0
    cache_replay_port: Count = 0
    node: Text | None = None
    gpu: Text | None = None
    spare: YesNo = False


class ServiceForm(Form):
    """A service and its replicas."""

    service: Name
    replicas: list[ReplicaForm]
    models: Listed[Text] = []
    concurrency: Count = 0
    queue: Count = 1000
    wait_s: Amount = 60.0
    timeout_s: AmountAboveZero = 600.0
    affinity: Affinity = "none"
    tokenizer: Text | None = None
    wanted: Count | None = None


class TableForm(Form):
    """A table of routes: services, and the places of nodes that callers name."""

    services: list[ServiceForm]
    nodes: dict[Text, list[Text]] = {}
    version: Text | None = None


class TenantForm(Form):
    """A tenant: who has one of these keys. requests_per_s and concurrent 0: without limit."""

    name: Name
    key_sha256: Listed[KeyDigest] = []
    requests_per_s: Count = 0
    concurrent: Count = 0
    priority: Priority = "high"


class TenantsForm(Form):
    """Tenants, and what others may do: be refused, or share one limit."""

    tenants: list[TenantForm]
    refuse_others: YesNo = False
    others: TenantForm | None = None


OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant. keys: SHA-256 of its keys in hexadecimal digits. priority: the highest that its requests have."""

    name: str
    keys: tuple[str, ...] = ()
    requests_per_s: int = 0
    concurrent: int = 0
    priority: str = "high"


@dataclass(frozen=True, slots=True)
class Tenants:
    """All tenants; others have the last one's limits, or are refused."""

    tenants: tuple[Tenant, ...]
    others: Tenant | None


def read_table(text: str, source: str) -> RouteTable:
    """Read the text of a table. source names it in errors. Raises BadInput."""
    form = _read(TableForm, text, source)
    table = table_of(form.model_dump(exclude_none=True))
    for twice in _twice(table):
        raise BadInput(f"{source}: {twice} stands there twice")
    for shared in table.shared_models:
        raise BadInput(f"{source}: {shared}")
    return table


def _twice(table: RouteTable) -> Iterator[str]:
    """What names more than one service, or replica of a service."""
    seen: set[tuple[str, ...]] = set()
    for service in table.services:
        names = [(service.service,), *((service.service, each.server) for each in service.replicas)]
        replicas = [each.replica for each in service.replicas]
        for name, said in zip(names, (service.service, *replicas), strict=True):
            if name in seen:
                yield f"{'replica' if name[1:] else 'service'} {said}"
            seen.add(name)


def read_tenants(text: str, source: str) -> Tenants:
    """Read the text of a file of tenants. Raises BadInput."""
    form = _read(TenantsForm, text, source)
    tenants = tuple(map(_tenant, form.tenants))
    if form.refuse_others:
        return Tenants(tenants, None)
    return Tenants(tenants, _tenant(form.others) if form.others else Tenant(OTHERS))


def _tenant(form: TenantForm) -> Tenant:
    keys = tuple(each.upper() for each in form.key_sha256)
    return Tenant(form.name, keys, form.requests_per_s, form.concurrent, form.priority)


def _read(kind: type[AnyForm], text: str, source: str) -> AnyForm:
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(kind, documents, problems)
    form = read_form(kind, document, problems) if document else None
    refuse(problems, source)
    assert form is not None
    return form
