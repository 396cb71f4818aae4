"""Which resources a server serves, at which versions, and what discovery tells of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from support.kubernetes.rules.rules import Rules
from support.kubernetes.rules.scales import ScalePaths
from support.kubernetes.server.statuses import Json, NoSuchPath

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
SUBRESOURCE_VERBS = ["get", "patch", "update"]
SUBRESOURCE_KINDS = {"binding": ("", "v1", "Binding"), "eviction": ("policy", "v1", "Eviction")}
GANG_VERSIONS = ("v1alpha2", "v1alpha3", "v1beta1")
ALWAYS_FIELDS = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource at one version.

    fields are those that a field selector may name beside ALWAYS_FIELDS. has_generation: its generation counts changes
    of its spec. needs_version: a PUT without resourceVersion is refused. is_custom: a definition made it. scale says
    where its subresource of that name has its numbers.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    has_generation: bool = False
    needs_version: bool = False
    is_custom: bool = False
    rules: Rules = field(default_factory=Rules)
    scale: ScalePaths | None = None

    @property
    def api_version(self) -> str:
        """As objects tell it: v1, resource.k8s.io/v1."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def head(self) -> bytes:
        """How the bytes of an object begin, before its encoded content."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @property
    def selectable(self) -> tuple[str, ...]:
        """All fields that a selector may name."""
        return (*ALWAYS_FIELDS, *self.fields)


class Catalog:
    """The resources that are served now. The first version of a group is the one that it prefers."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._served: dict[tuple[str, str], dict[str, Resource]] = {}
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serve a resource, or serve it otherwise than before."""
        served = self._served.setdefault((resource.group, resource.version), {})
        served[resource.plural] = resource

    def drop(self, group: str, plural: str) -> None:
        """Serve it no longer, at no version."""
        for (of_group, version), served in tuple(self._served.items()):
            if of_group == group:
                served.pop(plural, None)
            if not served:
                del self._served[of_group, version]

    def find(self, group: str, version: str, plural: str) -> Resource:
        """A resource by its place in a path."""
        served = self._served.get((group, version), {})
        if plural not in served:
            raise NoSuchPath
        return served[plural]

    def is_built_in(self, steps: list[str]) -> bool:
        """Whether a path is below a group that needs no definition."""
        match steps:
            case ["api", _, *_]:
                return True
            case ["apis", group, _, *_]:
                return any(r.group == group and not r.is_custom for r in self.resources())
        return False

    def any_version(self, group: str, plural: str) -> Resource | None:
        """A resource at the version that is preferred of those that have it."""
        for (of_group, _), served in self._served.items():
            if of_group == group and plural in served:
                return served[plural]
        return None

    def resources(self) -> Iterator[Resource]:
        """All of them, at all versions."""
        for served in tuple(self._served.values()):
            yield from tuple(served.values())

    def discover(self, path: list[str]) -> Json:
        """What is said at /api, /apis, /api/VERSION, /apis/GROUP and /apis/GROUP/VERSION."""
        match path:
            case ["api"]:
                return {"kind": "APIVersions", "versions": ["v1"]}
            case ["api", version]:
                return self._resource_list("", version)
            case ["apis"]:
                groups = [self._group(group) for group in self._groups()]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["apis", group] if group in self._groups():
                return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)}
            case ["apis", group, version]:
                return self._resource_list(group, version)
        raise NoSuchPath

    def _groups(self) -> list[str]:
        return list(dict.fromkeys(group for group, _ in self._served if group))

    def _group(self, group: str) -> Json:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for of_group, version in self._served
            if of_group == group
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resource_list(self, group: str, version: str) -> Json:
        if (group, version) not in self._served:
            raise NoSuchPath
        told = [
            row
            for resource in self._served[group, version].values()
            for row in _discovery_rows(resource)
        ]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": told,
        }


def _discovery_rows(resource: Resource) -> Iterator[Json]:
    """One for the resource, one for each of its subresources."""
    row = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": VERBS,
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    yield row
    for name in resource.subresources:
        group, version, kind = SUBRESOURCE_KINDS.get(
            name, (resource.group, resource.version, resource.kind)
        )
        below = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": ["create"] if name in SUBRESOURCE_KINDS else SUBRESOURCE_VERBS,
        }
        if name in SUBRESOURCE_KINDS:
            below |= {"group": group, "version": version}
        yield below
