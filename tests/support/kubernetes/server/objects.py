"""What can be done to objects: read, create, replace, patch, delete; the same for all resources.

What one kind asks for beside it is in its rules. Every call here is one step that nothing interrupts, so a server of
one event loop needs no locks: what it read is still so when it writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from support.kubernetes.rules.resources import Catalog, Resource
from support.kubernetes.server import metadata as meta
from support.kubernetes.server.access import User
from support.kubernetes.server.patch import json_patch, merge_patch, strategic_merge
from support.kubernetes.server.queries import number
from support.kubernetes.server.statuses import (
    STALE,
    Json,
    Refusal,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from support.kubernetes.server.storage import Store, Stored, Table

PATCHES: dict[str, Callable[[Any, Any], Any]] = {
    "application/merge-patch+json": merge_patch,
    "application/json-patch+json": json_patch,
    "application/strategic-merge-patch+json": strategic_merge,
}
STRATEGIC = "application/strategic-merge-patch+json"
NO_GENERATION_FOR = ("metadata", "status")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How an object is to be deleted: within which time, and only if it is the one that was meant."""

    grace_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None

    @classmethod
    def read(cls, body: Json, query: Mapping[str, str]) -> "DeleteOptions":
        """From a request; what its address says counts more."""
        preconditions = body.get("preconditions") or {}
        grace_s = number(query, "gracePeriodSeconds")
        return cls(
            body.get("gracePeriodSeconds") if grace_s is None else grace_s,
            preconditions.get("uid"),
            preconditions.get("resourceVersion"),
            query.get("propagationPolicy", body.get("propagationPolicy")),
        )


class Objects:
    """All objects of a server. asker is the user of the request that is being answered; None may do all."""

    def __init__(self, catalog: Catalog, store: Store) -> None:
        self.catalog = catalog
        self.store = store
        self.asker: User | None = None

    # What rules may ask

    def lookup(self, group: str, plural: str, namespace: str, name: str) -> Json | None:
        """Another object, if it is there."""
        stored = self.store.table(group, plural).items.get((namespace, name))
        return stored.content if stored else None

    def listed(self, group: str, plural: str, namespace: str = "") -> list[Json]:
        """All objects of a resource, or those of one namespace."""
        return [
            stored.content
            for (of_namespace, _), stored in self.store.table(group, plural).items.items()
            if namespace in {"", of_namespace}
        ]

    def serves(self, group: str, plural: str) -> bool:
        """Whether a resource is served at all."""
        return self.catalog.any_version(group, plural) is not None

    def may(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Whether the one who asks has a right beside that which the request itself needs."""
        return self.asker is None or self.asker.may(verb, group, resource, namespace)

    def now(self) -> str:
        """The time, as objects tell it."""
        return _told(datetime.now(UTC))

    # Verbs

    def table(self, resource: Resource) -> Table:
        """Where a resource's objects are."""
        return self.store.table(resource.group, resource.plural)

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """An object."""
        stored = self.table(resource).items.get((namespace, name))
        if stored is None:
            raise not_found(resource.plural, resource.group, name)
        return stored

    def create(self, resource: Resource, namespace: str, body: Json) -> Stored:
        """A new object."""
        told = _checked(resource, namespace, body)
        self._check_namespace(resource, namespace, told)
        metadata = meta.created(resource.kind, resource.group, told, namespace, self.now())
        if (namespace, metadata["name"]) in self.table(resource).items:
            raise already_exists(resource.plural, resource.group, metadata["name"])
        content = {**_content(body), "metadata": metadata}
        if "status" in resource.subresources and not resource.rules.keeps_status_on_create:
            content.pop("status", None)
        if resource.has_generation:
            metadata["generation"] = 1
        return self.store.put(self.table(resource), resource.rules.create(self, content))

    def replace(
        self, resource: Resource, namespace: str, name: str, body: Json, part: str = ""
    ) -> Stored:
        """An object as it is now meant to be; part status: only its status."""
        told = _checked(resource, namespace, body)
        if told.get("name") != name:
            raise bad_request(
                f"the name of the object ({told.get('name')}) does not match the name on the URL ({name})"
            )
        old = self.get(resource, namespace, name)
        if resource.needs_version and not told.get("resourceVersion"):
            why = "Invalid value: 0: must be specified for an update"
            raise invalid(resource.kind, resource.group, name, ("metadata.resourceVersion", why))
        return self._change(resource, old, body, part)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        media_type: str,
        part: str = "",
    ) -> Stored:
        """An object as a patch makes it; part status: only its status."""
        if media_type not in PATCHES or (media_type == STRATEGIC and resource.is_custom):
            message = f"the body of the request was in an unknown format: {media_type}"
            raise Refusal(415, "UnsupportedMediaType", message)
        old = self.get(resource, namespace, name)
        whole = {"kind": resource.kind, "apiVersion": resource.api_version, **old.content}
        body = PATCHES[media_type](whole, patch)
        if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
            raise bad_request("a patch must leave an object with metadata")
        if _checked(resource, namespace, body).get("name") != name:
            raise bad_request("the name of an object cannot be patched")
        meta.keep_uid(resource.kind, resource.group, old.content["metadata"], body["metadata"])
        return self._change(resource, old, body, part)

    def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions
    ) -> tuple[Stored, bool]:
        """Delete an object: as it was last seen, and whether it is gone. What holds it makes it stay for a while."""
        old = self.get(resource, namespace, name)
        self._check_preconditions(resource, old, options)
        metadata = {**old.content["metadata"]}
        grace_s = resource.rules.grace_s(old.content, options.grace_s)
        if "deletionTimestamp" in metadata:
            grace_s = min(grace_s, metadata["deletionGracePeriodSeconds"])
        metadata |= self._held_back(metadata, options)
        waits = grace_s or metadata.get("finalizers") or resource.rules.holds(old.content)
        if not waits and not resource.rules.tells_deletion_first:
            return self.store.remove(self.table(resource), old, old.content), True
        if metadata.get("deletionGracePeriodSeconds") != grace_s:
            old = self._told_to_go(resource, old, metadata, grace_s)
        if waits:
            return old, False
        return self.store.remove(self.table(resource), old, old.content), True

    # Steps of them

    def _change(self, resource: Resource, old: Stored, body: Json, part: str) -> Stored:
        before = old.content
        metadata = meta.updated(
            resource.kind, resource.group, resource.plural, before["metadata"], body["metadata"]
        )
        if part == "status":
            new = {**before, "status": body.get("status") or {}}
            new = resource.rules.update_status(self, before, new)
        elif part == "resize":
            new = resource.rules.resize(before, {**_content(body), "metadata": metadata})
        else:
            new = {**_content(body), "metadata": metadata}
            if "status" in resource.subresources:
                new.pop("status", None)
                new |= {"status": before["status"]} if "status" in before else {}
            new = resource.rules.update(self, before, new)
        return self.keep(resource, old, new)

    def keep(self, resource: Resource, old: Stored, new: Json) -> Stored:
        """Keep a changed object. One that is equal is not written; one that was told to go and that nothing holds any
        more is gone with this write."""
        if new == old.content:
            return old
        metadata = new["metadata"]
        if "generation" in metadata and _has_new_spec(old.content, new):
            metadata = {**metadata, "generation": metadata["generation"] + 1}
            new = {**new, "metadata": metadata}
        table = self.table(resource)
        waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not waits and not resource.rules.holds(new):
            return self.store.remove(table, old, new)
        return self.store.put(table, new)

    def _told_to_go(self, resource: Resource, old: Stored, metadata: Json, grace_s: int) -> Stored:
        """An object that stays until its grace is over or what holds it lets go."""
        if "generation" in metadata and "deletionTimestamp" not in metadata:
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = _told(datetime.now(UTC) + timedelta(seconds=grace_s))
        metadata["deletionGracePeriodSeconds"] = grace_s
        content = resource.rules.deleting({**old.content, "metadata": metadata})
        return self.store.put(self.table(resource), content)

    def _check_namespace(self, resource: Resource, namespace: str, told: Json) -> None:
        """A namespace must be there before what is in it, and takes nothing new while it goes."""
        if not resource.namespaced:
            return
        holder = self.lookup("", "namespaces", "", namespace)
        if holder is None:
            raise not_found("namespaces", "", namespace)
        if "deletionTimestamp" in holder["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(resource.plural, resource.group, told.get("name", ""), why)

    def _check_preconditions(self, resource: Resource, old: Stored, options: DeleteOptions) -> None:
        metadata = old.content["metadata"]
        if options.uid and options.uid != metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {metadata['uid']}"
            raise conflict(resource.plural, resource.group, metadata["name"], why)
        if options.resource_version not in {None, metadata["resourceVersion"]}:
            raise conflict(resource.plural, resource.group, metadata["name"], STALE)

    def _held_back(self, metadata: Json, options: DeleteOptions) -> Json:
        """The finalizer by which the garbage collector comes before a deletion, where one was asked for."""
        name = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(
            options.propagation or ""
        )
        finalizers = metadata.get("finalizers") or []
        return {"finalizers": [*finalizers, name]} if name and name not in finalizers else {}


def _content(body: Json) -> Json:
    """An object as it is kept: its kind and version are told by its resource."""
    return {name: value for name, value in body.items() if name not in {"kind", "apiVersion"}}


def _checked(resource: Resource, namespace: str, body: Json) -> Json:
    """The metadata of an object in a request that is of the kind and the namespace of the request's address."""
    for name, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if body.get(name, expected) != expected:
            raise bad_request(
                f"the {name} in the data ({body[name]}) does not match the expected {name} ({expected})"
            )
        if resource.is_custom and name not in body:
            raise bad_request(f"Object '{name}' is missing")
    told: Json = body.get("metadata") or {}
    if told.get("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return told


def _has_new_spec(old: Json, new: Json) -> bool:
    """Whether anything that generation counts has changed."""
    return any(
        new.get(name) != old.get(name) for name in {**old, **new} if name not in NO_GENERATION_FOR
    )


def _told(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
