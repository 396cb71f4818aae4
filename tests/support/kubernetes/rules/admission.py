"""Mutating webhooks: what a server asks others about objects that are to be created, over TLS, before it keeps them.

As "Dynamic Admission Control" and the reference of MutatingWebhookConfiguration tell it:

* Configurations are asked in the order of their names, the webhooks of each in theirs. One is asked about a request
  that its rules cover, whose namespace and object its selectors match, and of which all its matchConditions are true.
  It sees the object with its defaults.
* It is sent an AdmissionReview of v1 by POST, and has timeoutSeconds (10) to answer with one that has the same uid. Its
  certificate must be signed by caBundle. A patch is a JSON patch in base64.
* One that does not answer, or not so, is passed over where its failurePolicy is Ignore; else the request fails (500).
  One that does not allow the request refuses it, with the code that it says or 403.
* A webhook with reinvocationPolicy IfNeeded is asked once more if another changed the object after it.

Only objects that are created are asked about, and only a url leads to a webhook: there are no services here.
"""

import asyncio
import base64
import binascii
import json
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import aiohttp

from support.kubernetes.rules.resources import Resource
from support.kubernetes.server.objects import Objects
from support.kubernetes.server.patch import json_patch
from support.kubernetes.server.paths import Target
from support.kubernetes.server.selectors import selector_of
from support.kubernetes.server.statuses import Json, Refusal

GROUP, PLURAL, KIND = (
    "admissionregistration.k8s.io",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
)
REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
DEFAULT_TIMEOUT_S = 10
_ALL = "*"


class _Broken(Exception):
    """A webhook did not answer as it has to."""


@dataclass(frozen=True, slots=True)
class Creation:
    """An object that is to be created, as far as it is known by now."""

    resource: Resource
    target: Target
    user: str
    object: Json

    def request(self) -> Json:
        """What a webhook is told."""
        resource, target = self.resource, self.target
        meta = self.object.get("metadata") or {}
        versions = {"group": resource.group, "version": resource.version}
        return {
            "uid": str(uuid4()),
            "kind": {**versions, "kind": resource.kind},
            "resource": {**versions, "resource": resource.plural},
            "name": meta.get("name", ""),
            "namespace": target.namespace,
            "operation": "CREATE",
            "userInfo": {"username": self.user},
            "object": resource.rules.defaulted(self.object),
            "oldObject": None,
            "dryRun": False,
        }


class Admission:
    """Asks the webhooks that a server's objects tell of."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    @property
    def is_asked(self) -> bool:
        """Whether there is any webhook."""
        return bool(self._objects.store.table(GROUP, PLURAL).items)

    async def mutated(self, creation: Creation) -> Json:
        """The object as the webhooks make it. Raises Refusal."""
        asked: list[tuple[Json, Json]] = []
        for webhook in self._webhooks():
            creation = await self._asked(webhook, creation)
            asked.append((webhook, creation.object))
        for webhook, left in asked:
            is_again = webhook.get("reinvocationPolicy") == "IfNeeded"
            if is_again and creation.object != left:
                creation = await self._asked(webhook, creation)
        return creation.object

    def _webhooks(self) -> Iterator[Json]:
        told = self._objects.listed(GROUP, PLURAL)
        for each in sorted(told, key=lambda each: str(each["metadata"]["name"])):
            yield from each.get("webhooks") or ()

    async def _asked(self, webhook: Json, creation: Creation) -> Creation:
        """What a webhook makes of an object."""
        name = webhook["name"]
        try:
            if not self._is_about(webhook, creation):
                return creation
            response = await _answer(webhook, creation.request())
            if response.get("allowed"):
                return replace(creation, object=_patched(creation.object, response))
        except _Broken as error:
            if webhook.get("failurePolicy") == "Ignore":
                return creation
            message = f'Internal error occurred: failed calling webhook "{name}": {error}'
            raise Refusal(500, "InternalError", message) from error
        status = response.get("status") or {}
        why = status.get("message") or "without explanation"
        message = f'admission webhook "{name}" denied the request: {why}'
        raise Refusal(status.get("code") or 403, "Forbidden", message)

    def _is_about(self, webhook: Json, creation: Creation) -> bool:
        if not any(_covers(rule, creation) for rule in webhook.get("rules") or ()):
            return False
        namespace = self._objects.lookup("", "namespaces", "", creation.target.namespace) or {}
        if not _matches(webhook.get("namespaceSelector"), namespace):
            return False
        if not _matches(webhook.get("objectSelector"), creation.object):
            return False
        expressions = [each["expression"] for each in webhook.get("matchConditions") or ()]
        return not expressions or _hold(expressions, creation.request())


def _covers(rule: Json, creation: Creation) -> bool:
    resource = creation.resource
    told = (
        (rule["operations"], "CREATE"),
        (rule["apiGroups"], resource.group),
        (rule["apiVersions"], resource.version),
        (rule["resources"], resource.plural),
    )
    scope = "Namespaced" if resource.namespaced else "Cluster"
    is_there = rule.get("scope", _ALL) in (_ALL, scope)
    return is_there and all(_ALL in names or name in names for names, name in told)


def _matches(selector: Json | None, content: Json) -> bool:
    """An empty selector, and none, match everything."""
    if not selector:
        return True
    return selector_of(selector)({"metadata": content.get("metadata") or {}})


def _hold(expressions: Sequence[str], request: Json) -> bool:
    """Whether all conditions are true. One that is false counts before one that fails, for which _Broken is raised."""
    from support.kubernetes.rules.conditions import value

    told, failed = [], []
    for expression in expressions:
        try:
            told.append(value(expression, request))
        except ValueError as error:
            failed.append(str(error))
    if all(told) and failed:
        raise _Broken("; ".join(failed))
    return all(told)


async def _answer(webhook: Json, request: Json) -> Json:
    config = webhook["clientConfig"]
    within_s = webhook.get("timeoutSeconds", DEFAULT_TIMEOUT_S)
    if "v1" not in webhook["admissionReviewVersions"]:
        raise _Broken("it understands no version that is spoken here")
    try:
        pem = base64.b64decode(config.get("caBundle", ""), validate=True).decode()
        trust = ssl.create_default_context(cadata=pem or None)
        body = await _posted(config["url"], {**REVIEW, "request": request}, trust, within_s)
        review = json.loads(body)
        response: Json = review["response"]
        if {key: review.get(key) for key in REVIEW} != REVIEW or response["uid"] != request["uid"]:
            raise _Broken("it answered to something else")
    except (OSError, aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
        raise _Broken(str(error) or type(error).__name__) from error
    return response


async def _posted(url: str, review: Json, trust: ssl.SSLContext, within_s: float) -> bytes:
    async with asyncio.timeout(within_s), aiohttp.ClientSession() as session:
        query = {"timeout": f"{within_s}s"}
        async with session.post(url, json=review, params=query, ssl=trust) as answer:
            if answer.status != 200:
                raise _Broken(f"status {answer.status}: {await answer.text()}")
            return await answer.read()


def _patched(content: Json, response: Json) -> Json:
    patch = response.get("patch")
    if patch is None:
        return content
    if response.get("patchType") != "JSONPatch":
        raise _Broken(f"a patch of type {response.get('patchType')!r}")
    try:
        operations = json.loads(base64.b64decode(patch, validate=True))
        made: Json = json_patch(content, operations)
    except (ValueError, binascii.Error, Refusal) as error:
        raise _Broken(f"a patch that cannot be applied: {error}") from error
    return made
