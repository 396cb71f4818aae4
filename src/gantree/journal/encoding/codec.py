"""Encodes events, facts and orders as JSON text with kind and version, and decodes them.

Decoding is strict about what it does not know: a kind or a version from the future is a JournalError, never a
guess. Text of an older version goes through `fact_kinds.UPCASTERS`, one version at a time. Infinities survive
(as JSON5 constants). Encoding and decoding are by one pydantic adapter a kind: about 3 and 17 us for a gang of two
members. (Encoding by inference on the dataclass took 5 us for an order and 45 for a job that is submitted.)
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from gantree.model.errors import BadInput, JournalError
from gantree.model.events import EVENTS, Event
from gantree.model.fact_kinds import FACTS, UPCASTERS
from gantree.model.facts import Fact
from gantree.model.orders import ORDERS, Order
from gantree.model.values import quick

T = TypeVar("T")
SETTINGS = ConfigDict(ser_json_inf_nan="constants")
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


@quick
@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as a journal keeps it: kind and version beside JSON text."""

    kind: str
    version: int
    data: str


def as_dict(value: object) -> dict[Any, Any]:
    """Mappings that pydantic does not know by name (proxies, chains)."""
    assert isinstance(value, Mapping), f"{type(value)} cannot be kept in a journal"
    return dict(value)


def why_damaged(error: Exception) -> str:
    """The first thing that is wrong, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {first['msg']}" if field else first["msg"]


class Codec(Generic[T]):
    """Encodes and decodes one family of frozen dataclasses, named in a table."""

    def __init__(
        self, kinds: Mapping[str, type[T]], upcasters: Mapping[tuple[str, int], Upcaster]
    ) -> None:
        self._kinds = kinds
        self._upcasters = upcasters
        self._adapters: dict[str, TypeAdapter[tuple[T]]] = {}

    def encode(self, value: T) -> Encoded:
        """Raises BadInput where a text in the value is no Unicode (a lone surrogate)."""
        kind = type(value).__name__
        assert kind in self._kinds, f"{kind} is in no table of kinds"
        try:
            told = self._adapter(kind).serializer.to_json(
                (value,), warnings=False, fallback=as_dict
            )
            data = told[1:-1].decode()
        except (PydanticSerializationError, UnicodeEncodeError) as error:
            raise BadInput(f"{kind} cannot be written down: {error}") from error
        return Encoded(kind, self._version(kind), data)

    def decode(self, encoded: Encoded) -> T:
        """Raises JournalError for damaged text, and for a kind or version newer than this program."""
        if encoded.kind not in self._kinds or encoded.version > self._version(encoded.kind):
            raise JournalError(
                f"{encoded.kind} version {encoded.version} was written by a newer gantree; upgrade this one"
            )
        try:
            return self._adapter(encoded.kind).validate_json(f"[{self._today(encoded)}]")[0]
        except (ValidationError, ValueError, LookupError) as error:
            why = why_damaged(error).removeprefix("0.")  # of the tuple around it
            raise JournalError(f"{encoded.kind} in the journal is damaged: {why}") from error

    def prepare(self, *kinds: str) -> None:
        """Make ready for some kinds, as the first of each does otherwise."""
        for kind in kinds:
            self._adapter(kind)

    def _adapter(self, kind: str) -> TypeAdapter[tuple[T]]:
        """The adapter of a tuple of one value: settings cannot be given to one of a dataclass alone."""
        if kind not in self._adapters:
            alone: Any = tuple[self._kinds[kind]]  # type: ignore[name-defined]  # a type made at run time
            self._adapters[kind] = TypeAdapter(alone, config=SETTINGS)
        return self._adapters[kind]

    def _version(self, kind: str) -> int:
        version: int = getattr(self._kinds[kind], "VERSION", 1)
        return version

    def _today(self, encoded: Encoded) -> str:
        today = self._version(encoded.kind)
        if encoded.version == today:
            return encoded.data
        plain = json.loads(encoded.data)
        for version in range(encoded.version, today):
            plain = self._upcasters[encoded.kind, version](plain)
        return json.dumps(plain)


EVENT_CODEC: Codec[Event] = Codec(EVENTS, {})
FACT_CODEC: Codec[Fact] = Codec(FACTS, UPCASTERS)
ORDER_CODEC: Codec[Order] = Codec(ORDERS, {})


def prepare() -> None:
    """Make ready for what every job that starts leaves in a journal: else the first of all waits 60 ms for it."""
    EVENT_CODEC.prepare("JobSubmitted")
    FACT_CODEC.prepare("JobAccepted", "GangPlaced")
    ORDER_CODEC.prepare("StartGang")
