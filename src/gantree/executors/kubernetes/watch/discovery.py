"""API discovery at the start and from time to time, and the reflectors of the kinds that are served.

Definitions come and go while gantree runs. A kind that is there now is watched; one that another version is served
of is watched in that, with the copy of before, so nothing is told twice and nothing that went meanwhile stays. A
kind that is no more is left alone once it was missing twice: servers that have just started may not have all of
their definitions yet, and a gang must not end because of that. Then its objects are gone to all who were told of
them.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

from gantree.executors.kubernetes.apiserver.client import ApiError, Client, Key
from gantree.executors.kubernetes.apiserver.device_objects import (
    CLAIMS,
    CLASSES,
    GROUP_VERSION,
    SLICES,
)
from gantree.executors.kubernetes.apiserver.objects import Object
from gantree.executors.kubernetes.apiserver.reflector import Reflector
from gantree.executors.kubernetes.constraints.channels import COMPUTE_DOMAIN
from gantree.executors.kubernetes.nodes.topologies import TOPOLOGY_KINDS
from gantree.executors.kubernetes.pods.gang_spec import GroupKind
from gantree.executors.kubernetes.workloads.gang_labels import GROUP_KINDS
from gantree.executors.kubernetes.workloads.provisioning_requests import PROVISIONING
from gantree.executors.kubernetes.workloads.serving import GANGSERVICE
from gantree.model.errors import Unreachable

KINDS = (*GROUP_KINDS, *TOPOLOGY_KINDS, PROVISIONING, GANGSERVICE)
"""All that are watched where they are served."""
OWN_KINDS = tuple(kind for kind in KINDS if kind.group == GANGSERVICE.group)
MISSING_BEFORE_GONE = 2
"""Times in a row that a kind was not there, after which it is believed."""

log = logging.getLogger(__name__)

Versions = Mapping[GroupKind, str]
Watch = Callable[[GroupKind, str, dict[Key, Any]], tuple[Reflector[Any], Callable[[], None]]]
"""Begins to watch a kind in a version, with a copy of what is known; gives the reflector, and what ends it."""


class _Version(Object, frozen=True):
    version: str = ""


class _ApiGroup(Object, frozen=True):
    versions: tuple[_Version, ...] = ()


class _ResourceName(Object, frozen=True):
    name: str = ""


class _ResourceList(Object, frozen=True):
    resources: tuple[_ResourceName, ...] = ()


class WatchedKinds:
    """The kinds that are watched; on the link's thread alone, but for `versions`."""

    def __init__(self, watch: Watch) -> None:
        self.versions: Versions = {}
        """Replaced as a whole."""
        self._watch = watch
        self._running: dict[GroupKind, tuple[Reflector[Any], Callable[[], None]]] = {}
        self._missing: dict[GroupKind, int] = {}

    def follow(self, there: Versions) -> None:
        """These are served now."""
        self._missing = {
            kind: self._missing.get(kind, 0) + 1 for kind in self.versions if kind not in there
        }
        versions = {**self.versions, **there}
        for kind, version in there.items():
            if self.versions.get(kind) != version:
                self._begin(kind, version)
        for kind, times in self._missing.items():
            if times >= MISSING_BEFORE_GONE:
                self._end(kind)
                del versions[kind]
        self.versions = versions

    def add(self, there: Versions) -> None:
        """These are served now, and maybe others, too."""
        new = {kind: version for kind, version in there.items() if kind not in self.versions}
        for kind, version in new.items():
            self._begin(kind, version)
        self.versions = {**self.versions, **new}

    def _begin(self, kind: GroupKind, version: str) -> None:
        known: dict[Key, Any] = {}
        if kind in self._running:
            before, end = self._running.pop(kind)
            end()
            known = before.copy
        self._running[kind] = self._watch(kind, version, known)
        log.info("%s of %s are watched, in version %s", kind.plural, kind.group, version)

    def _end(self, kind: GroupKind) -> None:
        reflector, end = self._running.pop(kind)
        end()
        reflector.forget()
        log.warning("%s of %s are not served any more", kind.plural, kind.group)


async def served(client: Client, kinds: Collection[GroupKind] = KINDS) -> Versions:
    """The kinds that are watched and that the server has, with the version that is used; all are asked for at once.

    Raises ApiError, Unreachable.
    """
    there = await _versions_of_groups(client, kinds)
    found = await asyncio.gather(
        *(_version_of(client, kind, there[kind.group], is_known=False) for kind in kinds)
    )
    return {kind: version for kind, version in zip(kinds, found, strict=True) if version}


async def served_by_now(
    client: Client, known: Versions, kinds: Collection[GroupKind] = KINDS
) -> Versions:
    """The same later on. Of those that are known it is not asked again whether we may list them.

    A kind of which the server cannot say anything, as one whose conversion webhook is broken, is as it was: others
    that have come since are seen all the same. Raises ApiError, Unreachable where no group answers.
    """
    there = await _versions_of_groups(client, kinds)
    found = await asyncio.gather(
        *(_version_of(client, kind, there[kind.group], is_known=kind in known) for kind in kinds),
        return_exceptions=True,
    )
    versions: dict[GroupKind, str | None] = {}
    for kind, answer in zip(kinds, found, strict=True):
        if isinstance(answer, ApiError | Unreachable):
            log.debug("%s of %s: %s", kind.plural, kind.group, answer)
            versions[kind] = known.get(kind)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            versions[kind] = answer
    return {kind: version for kind, version in versions.items() if version}


async def _versions_of_groups(
    client: Client, kinds: Collection[GroupKind]
) -> dict[str, frozenset[str]]:
    groups = list(dict.fromkeys(kind.group for kind in kinds))
    told = await asyncio.gather(*(_versions_of(client, group) for group in groups))
    return dict(zip(groups, told, strict=True))


async def made(client: Client) -> dict[GroupKind, str | None]:
    """The versions of kinds of which we make objects and see none; None where one is not served."""
    there = await _versions_of(client, COMPUTE_DOMAIN.group)
    return {COMPUTE_DOMAIN: await _first(client, COMPUTE_DOMAIN, there)}


async def _versions_of(client: Client, group: str) -> frozenset[str]:
    """The versions of an API group; none where the server does not have it."""
    try:
        told = await client.get(f"apis/{group}", _ApiGroup)
    except ApiError as error:
        if error.status == 404:
            return frozenset()
        raise
    return frozenset(each.version for each in told.versions)


async def _version_of(
    client: Client, kind: GroupKind, there: frozenset[str], *, is_known: bool
) -> str | None:
    """The first of our versions of a kind that is served; None where none is, or we may not list it."""
    version = await _first(client, kind, there)
    if version is None or is_known or await _may_list(client, kind, version):
        return version
    return None


async def _first(client: Client, kind: GroupKind, there: frozenset[str]) -> str | None:
    """The first of our versions of a kind that is served, whether we may list it or not."""
    for version in (version for version in kind.versions if version in there):
        if await _has(client, kind, version):
            return version
    return None


async def has_devices(client: Client) -> bool:
    """Whether the server has dynamic resource allocation, and we may read it. Raises ApiError, Unreachable."""
    try:
        await client.get(f"apis/{GROUP_VERSION}", _ResourceList)
        for path in (SLICES.path, CLASSES.path, CLAIMS.path):
            await client.get(f"{path}?limit=1", _ResourceList)
    except ApiError as error:
        if error.status == 404:
            return False
        if error.status == 403:
            _say_once(f"pods with claims are left waiting, as claims cannot be read: {error}")
            return False
        raise
    return True


async def _may_list(client: Client, kind: GroupKind, version: str) -> bool:
    """Whether we may see the objects of a kind; where not, that is said once, and its gangs wait and say so."""
    try:
        await client.get(f"{kind.path(version)}?limit=1", _ResourceList)
    except ApiError as error:
        if error.status != 403:
            raise
        _say_once(f"{kind.plural} of {kind.group} are not seen: {error}")
        return False
    return True


async def _has(client: Client, kind: GroupKind, version: str) -> bool:
    """Whether a version of an API group has the kind: the group of priority classes is there without pod groups."""
    told = await client.get(f"apis/{kind.group}/{version}", _ResourceList)
    return any(each.name == kind.plural for each in told.resources)


@lru_cache(maxsize=64)
def _say_once(sentence: str) -> None:
    log.warning(sentence)
