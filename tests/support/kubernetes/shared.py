"""A real server that many stages use one after another: what one has made goes with it.

It stands in for a ServerThread where a stage is told to use it. Tests that turn knobs have a front before it; what that
cannot do either, and knobs of tests that do not say that they need any, skip the test.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import pytest

from gantree.executors.kubernetes.apiserver.rbac import RBAC_RULES
from support.kubernetes.client import MERGE, Client, path_of
from support.kubernetes.front import Front
from support.kubernetes.real import NoRealServer
from support.kubernetes.server.statuses import Json
from support.kubernetes.server.thread import LoopThread

CONTROLLERS = (
    "garbage-collector-controller", "namespace-controller", "resourceclaim-controller", "disruption-controller",
    "podgroup-protection-controller",
)  # fmt: skip
"""What the test server does itself, and what support.kubernetes.controllers does beside it."""
HOME, USER = "default", "gantree"
RBAC = "rbac.authorization.k8s.io/v1"
KEPT = frozenset({"endpoints", "endpointslices", "componentstatuses"})
LOOKS_EVERY_S = 0.05


@contextmanager
def or_skipped() -> Iterator[None]:
    """Tests that find no real server are skipped, and with CI=true they fail."""
    try:
        yield
    except NoRealServer as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


class SharedServer(LoopThread):
    """For one stage, from the beginning of a block to its end."""

    def __init__(self, url: str, token: str, etcd_url: str, has_front: bool) -> None:
        super().__init__()
        self.real_url, self.token = url, token
        self._front = Front(url, etcd_url) if has_front else None
        self._before: set[str] = set()

    @property
    def url(self) -> str:
        """Where it, or its front, listens."""
        return self._front.url if self._front else self.real_url

    @property
    def server(self) -> Any:
        """What has the knobs."""
        if self._front is None:
            pytest.skip("turns a knob that only the test server has")
        return self._front

    def __enter__(self) -> Self:
        super().__enter__()
        self.run(self._begin())
        if self._front:
            self.run(self._front.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._front:
            self.run(self._front.__aexit__(None, None, None))
        self.run(self._sweep())
        super().__exit__(kind, error, trace)

    def _client(self) -> Client:
        return Client(self.real_url, self.token, is_checked=False)

    async def _begin(self) -> None:
        """Let gantree do what its roles allow, and note what is there already."""
        async with self._client() as client:
            for path, body in granting():
                await client.insist("POST", path, body)
            self._before = {each["metadata"]["uid"] async for _, each in _objects(client)}

    async def _sweep(self) -> None:
        """Delete what was not there at the beginning, until nothing of it is left."""
        async with self._client() as client:
            while True:
                left = [
                    (path, each)
                    async for path, each in _objects(client)
                    if each["metadata"]["uid"] not in self._before
                ]
                if not left:
                    return
                for path, each in left:
                    await _delete(client, path, each)
                await asyncio.sleep(LOOKS_EVERY_S)


async def _delete(client: Client, path: str, content: Json) -> None:
    """Without grace, and without what holds it."""
    metadata = content["metadata"]
    is_cleaned_up = "/customresourcedefinitions/" in path
    if metadata.get("finalizers") and not is_cleaned_up:
        await client.insist("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
    await client.insist("DELETE", path, {"gracePeriodSeconds": 0})


async def _objects(client: Client) -> AsyncIterator[tuple[str, Json]]:
    """Every object that can be deleted, and where it is, at each of its versions."""
    for version in await _versions(client):
        root = "/apis" if "/" in version else "/api"
        served = (await client.insist("GET", f"{root}/{version}")).content
        for row in served.get("resources") or ():
            if {"list", "delete"} <= set(row["verbs"]) and row["name"] not in KEPT:
                listed = await client.insist("GET", path_of(version, row["name"]))
                for each in listed.content.get("items") or ():
                    metadata = each["metadata"]
                    place = metadata.get("namespace", ""), metadata["name"]
                    yield path_of(version, row["name"], *place), each


async def _versions(client: Client) -> list[str]:
    groups = (await client.insist("GET", "/apis")).content["groups"]
    told = [version["groupVersion"] for group in groups for version in group["versions"]]
    return ["v1", *told]


def granting() -> list[tuple[str, Json]]:
    """Those that let gantree do what it needs, and nothing else."""
    everywhere = [_rule(each) for each in RBAC_RULES if not each.own_namespace]
    at_home = [_rule(each) for each in RBAC_RULES if each.own_namespace]
    made = []
    for prefix, home, rules in (("Cluster", "", everywhere), ("", HOME, at_home)):
        role, metadata = f"{prefix}Role", {"name": USER}
        subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
        bound = {"kind": role, "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
        plural = role.lower()
        made.append((path_of(RBAC, f"{plural}s", home), {"metadata": metadata, "rules": rules}))
        binding = {"metadata": metadata, "roleRef": bound, "subjects": [subject]}
        made.append((path_of(RBAC, f"{plural}bindings", home), binding))
    return made


def _rule(rule: Any) -> Json:
    return {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)}
