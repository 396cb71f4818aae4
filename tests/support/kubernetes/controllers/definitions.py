"""The controllers of CustomResourceDefinitions, which are part of the server: one establishes, one cleans up.

What a definition defines is served a moment after it was kept. One that was told to go takes its objects along first;
objects that a finalizer holds hold it too. Watches of what is served no more end.
"""

import asyncio
from collections.abc import Callable

from support.kubernetes.rules.definitions import CLEANUP, GROUP, PLURAL, defined, with_condition
from support.kubernetes.rules.resources import Resource
from support.kubernetes.server.objects import DeleteOptions, Objects
from support.kubernetes.server.statuses import Json
from support.kubernetes.server.storage import Change, Stored

INSTALLS_S = 0.02
"""How long it takes to establish a definition, and how often its objects are looked at while it goes."""

CONFLICTS = {"plural": "PluralConflict", "singular": "SingularConflict", "kind": "KindConflict"}


class Definitions:
    """Acts on the running event loop. gone is called with the plural of what is served no more."""

    def __init__(self, objects: Objects, gone: Callable[[str], object]) -> None:
        self.objects = objects
        self.gone = gone
        objects.store.table(GROUP, PLURAL).listeners.append(self.hear)

    def hear(self, change: Change) -> None:
        """Serve, or serve no more; and go on with the next step."""
        spec = change.after.content["spec"]
        if change.deleted:
            self.objects.catalog.drop(spec["group"], spec["names"]["plural"])
            self.gone(spec["names"]["plural"])
        elif _is_established(change.after.content):
            self._serve(spec)
        if not change.deleted and _next_step(change.after.content):
            loop = asyncio.get_running_loop()
            loop.call_later(INSTALLS_S, self._go_on, change.after)

    def _serve(self, spec: Json) -> None:
        self.objects.catalog.drop(spec["group"], spec["names"]["plural"])
        for resource in defined(spec):
            self.objects.catalog.add(resource)

    def _go_on(self, seen: Stored) -> None:
        """The next step, unless something else has happened to the definition since."""
        resource = self.objects.catalog.any_version(GROUP, PLURAL)
        assert resource is not None, "definitions are served always"
        stored = self.objects.table(resource).items.get(seen.key)
        step = _next_step(seen.content)
        if stored is seen and step:
            step(self, resource, stored)

    def _install(self, resource: Resource, stored: Stored) -> None:
        names = stored.content["spec"]["names"]
        taken = self._conflict(stored.content)
        if taken:
            refused = with_condition(stored.content, "NamesAccepted", "False", taken)
            new = with_condition(refused, "Established", "False", "NotAccepted")
            self.objects.keep(resource, stored, new)
            return
        status = {**stored.content["status"], "acceptedNames": names}
        accepted = with_condition(
            {**stored.content, "status": status}, "NamesAccepted", "True", "NoConflicts"
        )
        new = with_condition(accepted, "Established", "False", "Installing")
        self.objects.keep(resource, stored, new)

    def _conflict(self, content: Json) -> str:
        """Which name of a definition another of its group has already; "" if none."""
        spec, others = content["spec"], self.objects.listed(GROUP, PLURAL)
        for each in others:
            told = each["spec"]
            if told["group"] == spec["group"] and each["metadata"] != content["metadata"]:
                theirs = each["status"]["acceptedNames"]
                for name, reason in CONFLICTS.items():
                    if theirs.get(name) and theirs[name] == spec["names"].get(name):
                        return reason
        return ""

    def _establish(self, resource: Resource, stored: Stored) -> None:
        new = with_condition(stored.content, "Established", "True", "InitialNamesAccepted")
        self.objects.keep(resource, stored, new)

    def _clean_up(self, resource: Resource, stored: Stored) -> None:
        """Delete its objects, and let it go with the last of them."""
        spec = stored.content["spec"]
        custom = self.objects.catalog.any_version(spec["group"], spec["names"]["plural"])
        left = self.objects.table(custom).sorted() if custom else []
        for each in left:
            if custom and "deletionTimestamp" not in each.content["metadata"]:
                self.objects.delete(custom, *each.key, DeleteOptions())
        if custom and self.objects.table(custom).items:
            asyncio.get_running_loop().call_later(INSTALLS_S, self._go_on, stored)
            return
        metadata = {**stored.content["metadata"]}
        metadata["finalizers"] = [each for each in metadata["finalizers"] if each != CLEANUP]
        self.objects.keep(resource, stored, {**stored.content, "metadata": metadata})


Step = Callable[[Definitions, Resource, Stored], None]


def _next_step(content: Json) -> Step | None:
    """What is to be done to a definition, if anything."""
    metadata = content["metadata"]
    if "deletionTimestamp" in metadata:
        return Definitions._clean_up if CLEANUP in metadata.get("finalizers", ()) else None
    told = _conditions(content)
    if "Established" not in told:
        return Definitions._install
    is_installing = told["NamesAccepted"] == "True" and told["Established"] == "False"
    return Definitions._establish if is_installing else None


def _is_established(content: Json) -> bool:
    return _conditions(content).get("Established") == "True"


def _conditions(content: Json) -> dict[str, str]:
    return {each["type"]: each["status"] for each in content["status"].get("conditions") or ()}
