"""The request of a group of pods, in the terms of every supported scheduler's API, and readers of such objects.

Users and other controllers write these objects. A field of a wrong type makes the whole object invalid:
`InvalidObject` is raised, the object is left out with a warning, and its pods wait and say so. No request is dropped
silently because a field is malformed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gantree.formats.validation.fields import duration
from gantree.model.jobs import Elastic, Restarts

Spec = Mapping[str, Any]
MOST = 10**9
"""No count or priority that means something is larger."""
PART = ":"
"""Between the name of an object and the part of it that is a gang of its own: no name in Kubernetes has one."""


@dataclass(frozen=True, slots=True)
class GroupKind:
    """A kind of objects that make gangs: API group, plural, and the versions that are understood, newest first.

    word is what keys of its gangs say; they stand in ids on record.
    """

    group: str
    plural: str
    versions: tuple[str, ...]
    word: str = ""

    def path(self, version: str) -> str:
        """Where its objects are, below the server."""
        return f"apis/{self.group}/{version}/{self.plural}"

    @property
    def key_word(self) -> str:
        """The part of a gang's key that distinguishes kinds of groups."""
        return self.word or self.group


@dataclass(frozen=True, slots=True)
class GroupRef:
    """A group of pods: the kind of its object and its name; kind None for a gang that annotations alone make.

    part names the part of the object that the pod is of, where that is a gang of its own.
    """

    kind: GroupKind | None
    namespace: str
    name: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """What a group asks for one role of it: members at least, and its own topology."""

    name: str
    members: int = 0
    required: str | None = None
    preferred: str | None = None


@dataclass(frozen=True, slots=True)
class GangSpec:
    """What a group asks for. required and preferred are label keys or names of tiers, as its author wrote them.

    parts is how many members each part has that is a gang of its own; the part "a:" stands for all that begin so.
    replace_s: its members live without one of them for so long.
    apart: each role is such a part. by_role: the topology is asked for each role by itself, not for all together.
    elastic: members is the least that must be there, size what its author wrote. no_more: its controller makes no more
    pods than members, which may become fewer.
    parent: the composite group that it is a part of. groups: of a composite, how many groups start together at least, 0
    where each starts by itself. project: the label under which its use is counted, "" for none. assignment: that of a
    federation by which it came, "" for none.
    """

    members: int = 1
    queue: str | None = None
    priority: str | int | None = None
    required: str | None = None
    preferred: str | None = None
    slice_members: int | None = None
    slice_required: str | None = None
    preemptible: bool | None = None
    unknown: tuple[str, ...] = field(default=())
    roles: tuple[RoleSpec, ...] = ()
    parts: Mapping[str, int] = field(default_factory=dict)
    apart: bool = False
    by_role: bool = False
    restarts: Restarts | None = None
    replace_s: float | None = None
    time_limit_s: float | None = None
    elastic: Elastic | None = None
    size: int | None = None
    no_more: bool = False
    parent: str | None = None
    groups: int | None = None
    project: str = ""
    assignment: str = ""

    @property
    def has_topology(self) -> bool:
        """Whether anything is asked of the topology."""
        told = (self.required, self.preferred, self.slice_members, self.slice_required, self.roles)
        return any(told)

    def members_of(self, part: str) -> int:
        """Members of a part; of the whole for part ""."""
        prefix = part[: part.rfind(PART) + 1]
        return self.parts.get(part, self.parts.get(prefix, self.members)) if part else self.members


class InvalidObject(Exception):
    """A field of a foreign object is of a type that its kind does not have."""


def table(spec: Spec, key: str) -> Spec:
    """The object in a field; an empty one where there is none. Raises InvalidObject."""
    found = spec.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InvalidObject(f"{key} is no object")
    return found


def tables(spec: Spec, key: str) -> tuple[Spec, ...]:
    """The objects in a list. Raises InvalidObject."""
    found = spec.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise InvalidObject(f"{key} is no list of objects")
    return tuple(found)


def texts(spec: Spec, key: str) -> tuple[str, ...]:
    """The texts in a list. Raises InvalidObject."""
    found = spec.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidObject(f"{key} is no list of texts")
    return tuple(found)


def text(spec: Spec, key: str) -> str | None:
    """A text; None where there is none, or an empty one. Raises InvalidObject."""
    found = spec.get(key)
    if found is not None and not isinstance(found, str):
        raise InvalidObject(f"{key} is no text")
    return found or None


def flag(spec: Spec, key: str) -> bool:
    """Whether something is on. Raises InvalidObject."""
    found = spec.get(key)
    if found is not None and not isinstance(found, bool):
        raise InvalidObject(f"{key} is neither true nor false")
    return bool(found)


def number(spec: Spec, key: str) -> int | None:
    """A whole number; None where there is none. Raises InvalidObject."""
    found = spec.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or abs(found) > MOST:
        raise InvalidObject(f"{key} is no whole number")
    return found


def count(spec: Spec, key: str) -> int | None:
    """A count from 0 on; None where there is none. Raises InvalidObject."""
    found = number(spec, key)
    if found is not None and found < 0:
        raise InvalidObject(f"{key} is less than none")
    return found


def amount(spec: Spec, key: str) -> float | None:
    """A number from 0 on, maybe with a fraction; None where there is none. Raises InvalidObject."""
    found = spec.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= MOST:
        raise InvalidObject(f"{key} is no amount")
    return float(found)


def there(spec: Spec, *names: str) -> tuple[str, ...]:
    """Those of the names that say something."""
    return tuple(name for name in names if spec.get(name))


def labels(spec: Spec, key: str) -> Mapping[str, str]:
    """Labels or annotations of an object. Raises InvalidObject."""
    found = {name: value for name, value in table(spec, key).items() if value is not None}
    if not all(isinstance(value, str) for value in found.values()):
        raise InvalidObject(f"{key} has what is no text")
    return found


def parsed_count(said: str | None) -> int | None:
    """A count of members in a label or an annotation; None for what is none."""
    is_count = said is not None and said.isascii() and said.isdecimal() and len(said) < 10
    return int(said) or None if is_count and said is not None else None


def parsed_seconds(said: str | None) -> float | None:
    """A duration in an annotation, in seconds; None for what is none."""
    try:
        return None if said is None else duration(said)
    except ValueError:
        return None


def parsed_priority(said: str | None) -> str | int | None:
    """A class of the policy, or a number."""
    if not said:
        return None
    digits = said.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 10
    return int(said) if is_number else said
