"""What a request's path and method ask for: a resource, an object, a part of it; and the verb of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from support.kubernetes.server.statuses import NoSuchPath, not_allowed

BY_METHOD = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path leads to. Without a name it is the collection; part is the subresource."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str
    part: str

    @property
    def full(self) -> str:
        """The resource as rules of access name it: pods, pods/binding."""
        return f"{self.plural}/{self.part}" if self.part else self.plural


def target_of(steps: list[str]) -> Target:
    """The target of a path's steps."""
    match steps:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise NoSuchPath
    match rest:
        case ["namespaces", name, "status" | "finalize" as part]:
            return Target(group, version, "", "namespaces", name, part)
        case ["namespaces", namespace, plural, *below] if len(below) <= 2:
            return Target(group, version, namespace, plural, *_padded(below))
        case [plural, *below] if len(below) <= 2:
            return Target(group, version, "", plural, *_padded(below))
    raise NoSuchPath


def _padded(below: list[str]) -> tuple[str, str]:
    name, part = (*below, "", "")[:2]
    return name, part


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """The verb of a request."""
    verb = BY_METHOD.get(method)
    if verb is None:
        raise not_allowed()
    if target.name:
        return verb
    if verb == "get":
        return "watch" if query.get("watch") in {"true", "1"} else "list"
    return "deletecollection" if verb == "delete" else verb
