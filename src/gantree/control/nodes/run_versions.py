"""Versions in the record of a run: of its policy, and of the drivers of its nodes."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import to_json

from gantree.executors.local.recording.recorder import VersionsOfNode
from gantree.model.errors import Unreachable
from gantree.policy.rules import Policy

_SHOWN = 12


def policy_version(policy: Policy) -> str:
    """A short digest of all that a policy says: equal for equal policies, whatever file they came from."""
    text = to_json(policy, inf_nan_mode="constants", fallback=_plain)
    return hashlib.sha256(text).hexdigest()[:_SHOWN]


def versions_of(hostname: str, read_versions: Callable[[], dict[str, str]]) -> VersionsOfNode:
    """Return the driver versions of a node, if it is this machine by name."""

    def versions(node: str) -> Mapping[str, str]:
        if node != hostname:
            return {}
        try:
            return read_versions()
        except Unreachable:
            return {}

    return versions


def _plain(value: Any) -> Any:
    """Mappings and sets that pydantic does not know by name, in an order of their own."""
    if isinstance(value, Mapping):
        return dict(value)
    return sorted(value, key=repr)
