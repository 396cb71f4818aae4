"""What goes with what: objects whose owners are all gone, and what is in a namespace that was told to go.

A real cluster has controllers for it (the garbage collector, the namespace controller); here it is part of the server,
one step of the event loop after the change that it follows from. Owners are known by uid.
"""

import asyncio

from support.kubernetes.rules.resources import Resource
from support.kubernetes.server.objects import DeleteOptions, Objects
from support.kubernetes.server.statuses import Json
from support.kubernetes.server.storage import Change, Stored, Table

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Garbage:
    """Collects on the running event loop; dependents are found by the uid of their owner."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._dependents: dict[str, dict[str, tuple[Resource, tuple[str, str]]]] = {}
        self._alive: set[str] = set()
        self._waits = False
        self._gone: list[str] = []
        self._leaving: dict[str, tuple[Resource, tuple[str, str]]] = {}

    def hear(self, table: Table, change: Change) -> None:
        """Note who owns what, and collect soon if somebody went or is to go."""
        resource = self.objects.catalog.any_version(table.group, table.plural)
        if resource is None:
            return
        metadata = change.after.content["metadata"]
        owners = metadata.get("ownerReferences") or ()
        uid, place = metadata["uid"], (resource, change.after.key)
        for owner in owners:
            known = self._dependents.setdefault(owner["uid"], {})
            if change.deleted:
                known.pop(uid, None)
            else:
                known[uid] = place
        if change.deleted:
            self._alive.discard(uid)
            self._gone.append(uid)
            self._leaving.pop(uid, None)
        else:
            self._alive.add(uid)
            if "deletionTimestamp" in metadata and _waits_for_us(resource, metadata):
                self._leaving[uid] = place
            self._gone += [owner["uid"] for owner in owners if owner["uid"] not in self._alive]
        if (self._gone or self._leaving) and not self._waits:
            self._waits = True
            asyncio.get_running_loop().call_soon(self._collect)

    def _collect(self) -> None:
        self._waits = False
        gone, self._gone = self._gone, []
        for uid in gone:
            self._delete_dependents(uid)
            self._dependents.pop(uid, None)
        for uid, (resource, key) in tuple(self._leaving.items()):
            stored = self.objects.table(resource).items.get(key)
            if stored is not None and stored.content["metadata"]["uid"] == uid:
                self._help_to_leave(resource, stored)

    def _help_to_leave(self, resource: Resource, stored: Stored) -> None:
        """Do what an object that was told to go waits for, as far as it is ours."""
        uid = stored.content["metadata"]["uid"]
        finalizers = stored.content["metadata"].get("finalizers") or []
        if resource.plural == "namespaces" and not resource.group:
            self._empty(resource, stored)
        elif ORPHAN in finalizers:
            self._let_go(uid)
            self._drop_finalizer(resource, stored, ORPHAN)
        elif FOREGROUND in finalizers:
            self._delete_dependents(uid)
            if not self._dependents.get(uid):
                self._drop_finalizer(resource, stored, FOREGROUND)

    def _delete_dependents(self, uid: str) -> None:
        """Delete what has no other owner that stays."""
        for resource, key in tuple(self._dependents.get(uid, {}).values()):
            stored = self.objects.table(resource).items.get(key)
            if stored and "deletionTimestamp" not in stored.content["metadata"]:
                told = stored.content["metadata"].get("ownerReferences") or ()
                others = {each["uid"] for each in told} - {uid}
                if not self._alive & others:
                    self.objects.delete(resource, *key, DeleteOptions())

    def _let_go(self, uid: str) -> None:
        """Take an owner away from its dependents."""
        for resource, key in tuple(self._dependents.pop(uid, {}).values()):
            stored = self.objects.table(resource).items.get(key)
            if stored:
                owners = stored.content["metadata"].get("ownerReferences") or []
                rest = [each for each in owners if each["uid"] != uid]
                metadata = {**stored.content["metadata"], "ownerReferences": rest}
                self.objects.keep(resource, stored, {**stored.content, "metadata": metadata})

    def _drop_finalizer(self, resource: Resource, stored: Stored, name: str) -> None:
        metadata: Json = {**stored.content["metadata"]}
        metadata["finalizers"] = [each for each in metadata["finalizers"] if each != name]
        self.objects.keep(resource, stored, {**stored.content, "metadata": metadata})

    def _empty(self, resource: Resource, stored: Stored) -> None:
        """Delete what is in a namespace; the namespace goes when nothing is left."""
        name, is_empty = stored.content["metadata"]["name"], True
        for each in {(r.group, r.plural): r for r in self.objects.catalog.resources()}.values():
            for key, inner in tuple(self.objects.table(each).items.items()):
                if each.namespaced and key[0] == name:
                    if "deletionTimestamp" not in inner.content["metadata"]:
                        self.objects.delete(each, *key, DeleteOptions())
                    is_empty = is_empty and key not in self.objects.table(each).items
        if is_empty:
            spec = {**stored.content["spec"], "finalizers": []}
            self.objects.keep(resource, stored, {**stored.content, "spec": spec})


def _waits_for_us(resource: Resource, metadata: Json) -> bool:
    is_namespace = resource.plural == "namespaces" and not resource.group
    return is_namespace or bool({FOREGROUND, ORPHAN} & set(metadata.get("finalizers") or ()))
