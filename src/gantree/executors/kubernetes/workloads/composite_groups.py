"""Kubernetes' composite pod groups: pod groups that start together become one gang, each of them a role of it.

A pod group is a part of the highest composite above it that is reached by gangs alone; one whose policy is `basic` lets
each group below it start by itself. The types are those of 1.37 (`scheduling.k8s.io/v1alpha3`).
"""

from collections.abc import Iterator
from dataclasses import replace

from gantree.executors.kubernetes.pods.gang_spec import GangSpec, RoleSpec
from gantree.executors.kubernetes.workloads.pod_groups import COMPOSITE, CORE

Key = tuple[str, str, str]
KINDS = (CORE.key_word, COMPOSITE.key_word)
MISSING = "missing group "
"""Begins the name of the role that stands for a group which is not there yet: no pod is of it."""


def is_composite(key: Key) -> bool:
    """Whether this is the key of a composite."""
    return key[2] == COMPOSITE.key_word


class GroupTree:
    """What the objects of all groups ask for, by key, and which of them are below which composite."""

    def __init__(self) -> None:
        self.specs: dict[Key, GangSpec] = {}
        self._children: dict[Key, dict[Key, None]] = {}
        self._merged: dict[Key, GangSpec | None] = {}
        """What composites ask for, until a group changes."""

    def set(self, key: Key, spec: GangSpec | None) -> bool:
        """Set what a group asks for; None: it is gone. Whether other groups may be of other gangs now."""
        before = self._parent(key)
        self.specs.pop(key, None)
        if before is not None:
            del self._children[before][key]
            if not self._children[before]:
                del self._children[before]
        if spec is not None:
            self.specs[key] = spec
        after = self._parent(key)
        if after is not None:
            self._children.setdefault(after, {})[key] = None
        is_nested = is_composite(key) or before is not None or after is not None
        if is_nested:
            self._merged.clear()
        return is_nested

    def gang_key(self, group: Key) -> Key:
        """The gang that a group is, or is a part of."""
        found, seen = group, {group}
        above = self._parent(group)
        while above is not None and above not in seen:
            spec = self.specs.get(above)
            if spec is not None and not spec.groups:
                return found
            found = above  # also one that was not seen yet: until then nothing may start
            seen.add(above)
            above = self._parent(above)
        return found

    def groups_of(self, gang: Key) -> list[Key]:
        """The pod groups that a gang is made of, by name."""
        if not is_composite(gang):
            return [gang]
        return sorted(
            leaf for each in self._composites(gang) for leaf in self._below(each)
            if not is_composite(leaf)
        )  # fmt: skip

    def spec_of(self, gang: Key) -> GangSpec | None:
        """What a gang asks for; None while its object was not seen."""
        if not is_composite(gang) or gang not in self.specs:
            return self.specs.get(gang)
        if gang not in self._merged:
            self._merged[gang] = self._merge(gang)
        return self._merged[gang]

    def _merge(self, root: Key) -> GangSpec:
        spec, leaves, inside = self.specs[root], self.groups_of(root), self._composites(root)
        missing = sum(max(0, self._least(key) - len(self._below(key))) for key in inside)
        roles = [self._role(root, leaf) for leaf in leaves]
        roles += [RoleSpec(f"{MISSING}{number}", 1) for number in range(missing)]
        told = (word for key in inside for word in self._unknown(root, key))
        of_leaves = (word for leaf in leaves for word in self.specs[leaf].unknown)
        return replace(
            spec,
            members=sum(role.members for role in roles),
            roles=tuple(roles),
            unknown=tuple(dict.fromkeys((*spec.unknown, *told, *of_leaves))),
        )

    def _role(self, root: Key, leaf: Key) -> RoleSpec:
        """A pod group as a role: with its own topology, or that of a composite below the root which is it alone."""
        spec, group = self.specs[leaf], leaf
        required, above = spec.required, self._parent(leaf)
        while required is None and above not in (None, root) and self._below(above) == [group]:
            required, group = self.specs[above].required, above
            above = self._parent(above)
        return RoleSpec(leaf[1], spec.members, required)

    def _unknown(self, root: Key, key: Key) -> Iterator[str]:
        """What of a composite is not acted upon."""
        below = len(self._below(key))
        if below > self._least(key):
            yield f"minGroupCount of CompositePodGroup {key[1]!r}: all {below} groups start together"
        if key != root and self.specs[key].required and below > 1:
            yield f"schedulingConstraints of CompositePodGroup {key[1]!r}, which is below another"

    def _composites(self, key: Key) -> list[Key]:
        """A composite and all below it, as far down as gangs go; each once, also where they are in a circle."""
        found = [key]
        for each in found:
            below = (one for one in self._below(each) if is_composite(one) and one not in found)
            found += [one for one in below if self.specs[one].groups]
        return found

    def _below(self, key: Key | None) -> list[Key]:
        return list(self._children.get(key, ())) if key is not None else []

    def _least(self, key: Key) -> int:
        return self.specs[key].groups or 0

    def _parent(self, key: Key) -> Key | None:
        spec = self.specs.get(key)
        name = None if spec is None else spec.parent
        return None if name is None else (key[0], name, COMPOSITE.key_word)
