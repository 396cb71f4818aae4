"""Reads what preflight checks: nodes, pods, ResourceSlices, served APIs, permissions. It writes nothing.

What may not be listed is None, and is told as such: an operator may run this with fewer rights than gantree has.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from gantree.executors.kubernetes.apiserver.client import ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Metadata, Node, Object, Resources
from gantree.executors.kubernetes.apiserver.rbac import RBAC_RULES, RbacRule

T = TypeVar("T")

REVIEWS = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Capabilities(Object, frozen=True):
    """Of Linux, beyond those that every container has."""

    add: tuple[str, ...] = ()


class SecurityContext(Object, frozen=True):
    """What a container may do."""

    capabilities: Capabilities = Capabilities()
    privileged: bool = False


class SeenContainer(Object, frozen=True):
    """A container of any pod."""

    name: str = ""
    resources: Resources = Resources()
    security_context: SecurityContext = SecurityContext()


class SeenSpec(Object, frozen=True):
    """What of a pod's spec preflight reads."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[SeenContainer, ...] = ()
    init_containers: tuple[SeenContainer, ...] = ()


class SeenStatus(Object, frozen=True):
    """Whether it has ended."""

    phase: str = "Pending"


class SeenPod(Object, frozen=True):
    """A pod of any scheduler."""

    metadata: Metadata
    spec: SeenSpec = SeenSpec()
    status: SeenStatus = SeenStatus()

    @property
    def is_on_a_node(self) -> bool:
        """Whether it holds something of a node now."""
        return bool(self.spec.node_name) and self.status.phase not in ("Succeeded", "Failed")


class SliceSpec(Object, frozen=True):
    """Whose devices a slice has, and where."""

    driver: str = ""
    node_name: str = ""


class Slice(Object, frozen=True):
    """A ResourceSlice: devices of a DRA driver."""

    metadata: Metadata
    spec: SliceSpec = SliceSpec()


class _Version(Object, frozen=True):
    version: str = ""


class _ApiGroup(Object, frozen=True):
    name: str = ""
    versions: tuple[_Version, ...] = ()


class _ApiGroups(Object, frozen=True):
    groups: tuple[_ApiGroup, ...] = ()


class _ResourceRow(Object, frozen=True):
    name: str = ""


class _Rows(Object, frozen=True):
    resources: tuple[_ResourceRow, ...] = ()


class _ReviewStatus(Object, frozen=True):
    allowed: bool = False


class _Review(Object, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class ServerVersion(Object, frozen=True):
    """What the server calls itself."""

    git_version: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """resources: by "group/version", the names of what is served there, of the groups that matter here.

    namespace is where gantree is to run; missing are the (right, verb) that we have not; slices are None where they may
    not be listed or are not served.
    """

    version: str
    resources: Mapping[str, frozenset[str]]
    nodes: tuple[Node, ...]
    pods: tuple[SeenPod, ...]
    slices: tuple[Slice, ...] | None
    missing: tuple[tuple[RbacRule, str], ...]
    namespace: str

    def served(self, group: str, resource: str) -> tuple[str, ...]:
        """The versions at which a resource is served."""
        found = [
            each.rpartition("/") for each, names in self.resources.items() if resource in names
        ]
        return tuple(version for of_group, _, version in found if of_group == group)


GROUPS = ("resource.k8s.io", "scheduling.k8s.io", "resource.nvidia.com", "nvidia.com")
"""API groups of which preflight asks what they serve."""


async def survey(connection: Connection, node_selector: str = "") -> Survey:
    """Ask for everything. Raises Unreachable; ApiError where nodes or pods may not be listed."""
    client = Client(connection)
    try:
        version = await client.get("version", ServerVersion)
        chosen = {"labelSelector": node_selector} if node_selector else {}
        nodes = await client.list(Resource("api/v1/nodes", Node, chosen))
        pods = await client.list(Resource("api/v1/pods", SeenPod))
        resources = await _resources(client)
        return Survey(
            version.git_version,
            resources,
            tuple(sorted(nodes.objects, key=lambda node: node.metadata.name)),
            tuple(pods.objects),
            await _slices(client, resources),
            await _missing(client, connection.namespace),
            connection.namespace,
        )
    finally:
        await client.close()


async def _resources(client: Client) -> dict[str, frozenset[str]]:
    groups = await client.get("apis", _ApiGroups)
    asked = [
        f"{group.name}/{each.version}"
        for group in groups.groups
        if group.name in GROUPS
        for each in group.versions
    ]
    rows = await asyncio.gather(*(client.get(f"apis/{each}", _Rows) for each in asked))
    return {
        each: frozenset(row.name for row in told.resources)
        for each, told in zip(asked, rows, strict=True)
    }


async def _slices(
    client: Client, resources: Mapping[str, frozenset[str]]
) -> tuple[Slice, ...] | None:
    served = sorted(each for each, names in resources.items() if "resourceslices" in names)
    try:
        where = Resource(f"apis/{served[0]}/resourceslices", Slice) if served else None
        return None if where is None else tuple((await client.list(where)).objects)
    except ApiError:
        return None


async def _missing(client: Client, home: str) -> tuple[tuple[RbacRule, str], ...]:
    """What we may not do, of what gantree does; home is the namespace that it is to run in."""
    asked = [(rule, verb) for rule in RBAC_RULES for verb in rule.verbs]
    allowed = await asyncio.gather(*(_may(client, rule, verb, home) for rule, verb in asked))
    return tuple(each for each, may in zip(asked, allowed, strict=True) if not may)


async def _may(client: Client, rule: RbacRule, verb: str, home: str) -> bool:
    resource, _, below = rule.resource.partition("/")
    attributes = {
        "verb": verb,
        "group": rule.group,
        "resource": resource,
        **({"subresource": below} if below else {}),
        **({"namespace": home} if rule.own_namespace else {}),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return msgspec.json.decode(
        await client.write("POST", REVIEWS, review), type=_Review
    ).status.allowed
