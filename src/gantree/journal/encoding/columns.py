"""Encodes many values of a dataclass as columns of JSON, a list for each field: compact, and fast to read.

    pack(Job, jobs)       {"count": 2, "columns": {"name": ["a", "b"], "roles": {"at": [[0], [0]], "of": {...}}}}
    unpack(Job, packed)   the jobs again

A column in which all values are the default is left out. Values of a dataclass stand in a table of their own, equal
ones once, and the column says which. Reading is strict: a column of an unknown name was written by a newer program, one
that is missing without a default, is too short, or holds another type is damage. Names are kept, so a dataclass may
gain fields with defaults.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gantree.model.errors import JournalError
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement

T = TypeVar("T")
Packed = dict[str, Any]

EACH_ITS_OWN: frozenset[type] = frozenset({Job, Placement, MemberPlacement})
"""Of these hardly two are equal, and finding that out costs more than keeping both."""

_TYPES: dict[type, tuple[type, ...]] = {
    float: (float, int),
    int: (int,),
    str: (str,),
    bool: (bool,),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """How the values of one column are written: plain (of these JSON types), or one or many of a dataclass.

    flat: tuples in which there are no tuples.
    """

    types: frozenset[type]
    nested: type | None = None
    many: bool = False
    enum: type[StrEnum] | None = None
    flat: bool = False


def pack(of: type[T], values: Sequence[T]) -> Packed:
    """Values as columns."""
    columns = {one.name: [getattr(value, one.name) for value in values] for one in fields(of)}  # type: ignore[arg-type]  # a dataclass, by what its caller says
    return pack_columns(of, columns, len(values))


def pack_columns(of: type, told: Mapping[str, Sequence[Any]], count: int) -> Packed:
    """Columns of some fields of so many values of a dataclass."""
    columns: dict[str, Any] = {}
    for name, column in told.items():
        one, kind = _kind(of, name)
        default = _default(one)
        if default is MISSING or not all(v is default or v == default for v in column):
            columns[name] = _packed_column(kind, column)
    return {"count": count, "columns": columns}


def _packed_column(kind: Kind, column: Sequence[Any]) -> Any:
    if kind.nested is None:
        return column
    table = _Table(kind.nested)
    if kind.many:
        at: list[Any] = [[table.place(each) for each in value] for value in column]
    else:
        at = [None if value is None else table.place(value) for value in column]
    return {"at": at, "of": pack(kind.nested, table.rows)}


class _Table:
    """Values of one dataclass, the same ones once."""

    def __init__(self, of: type) -> None:
        self.rows: list[Any] = []
        self._place_of_id: dict[int, int] = {}
        self._place_of_value: dict[Any, int] | None = None if of in EACH_ITS_OWN else {}

    def place(self, value: Any) -> int:
        """The place of a value, which must outlive the table."""
        place = self._place_of_id.get(id(value))
        if place is None:
            place = len(self.rows)
            if self._place_of_value is not None:
                place = self._place_of_value.setdefault(value, place)
            if place == len(self.rows):
                self.rows.append(value)
            self._place_of_id[id(value)] = place
        return place


def unpack(of: type[T], packed: Packed) -> list[T]:
    """The values again. Raises JournalError for what was written by a newer program, and for damage."""
    every = unpack_columns(of, packed, [one.name for one in fields(of)])  # type: ignore[arg-type]  # a dataclass, by what its caller says
    return list(map(of, *every.values())) if every else [of() for _ in range(packed["count"])]


def unpack_columns(of: type, packed: Packed, told: Collection[str]) -> dict[str, list[Any]]:
    """These columns, all that there may be. Raises JournalError as `unpack`."""
    count, columns = packed["count"], packed["columns"]
    for name in columns:
        if name not in told:
            raise JournalError(
                f"a snapshot tells {name} of a {of.__name__}: it was written by a newer gantree; upgrade this one"
            )
    return {name: _unpacked_column(of, name, columns.get(name), count) for name in told}


def _unpacked_column(of: type, name: str, column: Any, count: int) -> list[Any]:
    """One column, of defaults where nothing is told."""
    one, kind = _kind(of, name)
    if column is None:
        default = _default(one)
        if default is MISSING:
            raise _damaged(of, name, "it is missing")
        return [default] * count
    found = _column(of, name, kind, column)
    if len(found) != count:
        raise _damaged(of, name, f"{len(found)} values, not {count}")
    return found


def _column(of: type, name: str, kind: Kind, column: Any) -> list[Any]:
    if kind.nested is not None:
        table: list[Any] = unpack(kind.nested, column["of"])
        if kind.many:
            return [tuple([table[place] for place in places]) for places in column["at"]]
        return [None if place is None else table[place] for place in column["at"]]
    wrong = {*map(type, column)} - kind.types
    if wrong:
        raise _damaged(
            of, name, f"it has values of type {', '.join(one.__name__ for one in wrong)}"
        )
    if kind.enum is not None:
        of_text: dict[Any, Any] = {None: None, **{str(one): one for one in kind.enum}}
        return [of_text[value] for value in column]
    plain: list[Any] = column
    if list not in kind.types:
        return plain
    return list(map(tuple, plain)) if kind.flat else [_tuples(value) for value in plain]


def _tuples(value: Any) -> Any:
    if type(value) is not list:
        return value
    if value and type(value[0]) is list:
        return tuple([_tuples(each) for each in value])
    return tuple(value)


def _damaged(of: type, name: str, what: str) -> JournalError:
    return JournalError(f"a snapshot in the journal is damaged: {name} of {of.__name__}: {what}")


def _default(one: Field[Any]) -> Any:
    if one.default_factory is not MISSING:
        return one.default_factory()
    return one.default


@cache
def _kind(of: type, name: str) -> tuple[Field[Any], Kind]:
    """A field, and how its values are written."""
    one = next(each for each in fields(of) if each.name == name)
    hint = get_type_hints(of)[name]
    types: set[type] = set()
    for each in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        origin, inside = get_origin(each), get_args(each)
        if is_dataclass(each):
            return one, Kind(frozenset(), nested=each)  # type: ignore[arg-type]  # a dataclass, by what its caller says
        if origin is tuple and inside and is_dataclass(inside[0]):
            return one, Kind(frozenset(), nested=inside[0], many=True)  # type: ignore[arg-type]  # a dataclass, by what its caller says
        if isinstance(each, type) and issubclass(each, StrEnum):
            return one, Kind(frozenset({str, NoneType}), enum=each)
        if origin is tuple:
            types.add(list)
        else:
            assert each is NoneType or each in _TYPES, f"{of.__name__}.{name}: no column for {each}"
            types.update(_TYPES.get(each, (NoneType,)))
    flat = types == {list} and get_args(hint)[-1] is Ellipsis and get_args(hint)[0] in _TYPES
    return one, Kind(frozenset(types), flat=flat)
