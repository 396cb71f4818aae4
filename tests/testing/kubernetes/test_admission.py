"""Mutating webhooks, as a server asks them: which ones, in which order, and what an answer does.

Facts: "Dynamic Admission Control" of Kubernetes' documentation, and its reference of MutatingWebhookConfiguration.
"""

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.certificates import certificate
from support.kubernetes.server.statuses import Json
from support.kubernetes.server.thread import Api
from support.serving import serving

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PODS = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
HONOURED_WITHIN_S = 300.0
"""A server takes seconds to ask whom it was told of."""
Answers = Callable[[Json], Json]


class Hook:
    """Webhooks by path: the word there is added to a label, which tells who was asked and in which order."""

    def __init__(self, home: Path) -> None:
        self.cert, key = certificate(home)
        self.seen: list[Json] = []
        self.answers: dict[str, Answers] = {}
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                word = self.path.partition("?")[0].strip("/")
                hook.seen.append({**review, "path": self.path})
                told = json.dumps(hook.answered(word, review)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, *told: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trust.load_cert_chain(self.cert, key)
        self.server.socket = trust.wrap_socket(self.server.socket, server_side=True)

    def answered(self, word: str, review: Json) -> Json:
        response: Json = {"uid": review["request"]["uid"], "allowed": True}
        asked = review["request"]
        answer = self.answers.get(word)
        response |= labelled(word, asked) if answer is None else answer(asked)
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def labelled(word: str, asked: Json) -> Json:
    """Allowed, with a word behind those that the label has."""
    labels = asked["object"]["metadata"].get("labels", {})
    return patched({**labels, "asked": (labels.get("asked", "") + f".{word}").strip(".")})


def patched(labels: Json) -> Json:
    patch = json.dumps([{"op": "add", "path": "/metadata/labels", "value": labels}])
    return {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Hook]:
    hook = Hook(tmp_path)
    with serving(hook.server):
        yield hook


@pytest.fixture
def ask(api: Api, space: str, hook: Hook) -> Iterator[Callable[..., None]]:
    """Has the server ask webhooks by these words about what is made in the test's namespace."""
    there: list[str] = []

    def ask(name: str, *words: str, **told: Any) -> None:
        url = f"https://127.0.0.1:{hook.server.server_address[1]}"
        bundle = base64.b64encode(hook.cert.read_bytes()).decode()
        webhooks = [
            {
                "name": f"{word}.example.com",
                "clientConfig": {"url": f"{url}/{word}", "caBundle": bundle},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "rules": [PODS],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}},
                **told,
            }
            for word in words
        ]
        body: Json = {"metadata": {"name": f"{space}-{name}"}, "webhooks": webhooks}
        answer = api.post(CONFIGURATIONS, body)
        assert answer.status_code == 201, answer.text
        there.append(body["metadata"]["name"])

    yield ask
    for name in there:
        api.delete(f"{CONFIGURATIONS}/{name}")


def create(api: Api, space: str, **labels: str) -> Any:
    container = {"name": "main", "image": "train"}
    meta = {"generateName": "p-", "labels": {"app": "train", **labels}}
    body = {"metadata": meta, "spec": {"containers": [container]}}
    return api.post(f"/api/v1/namespaces/{space}/pods", body)


def asked(api: Api, space: str, **labels: str) -> str:
    """By whom a pod's creation was asked about, in order."""
    answer = create(api, space, **labels)
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["metadata"]["labels"].get("asked", "")
    return found


def settles(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HONOURED_WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, "it does not come to be so"
        time.sleep(0.1)


def test_webhooks_are_asked_in_the_order_of_their_configurations_names(
    api: Api, space: str, ask: Callable[..., None], hook: Hook
) -> None:
    ask("b", "third")
    ask("a", "first", "second")
    settles(lambda: asked(api, space) == "first.second.third")
    request = hook.seen[-1]["request"]
    assert (request["operation"], request["namespace"]) == ("CREATE", space)
    assert request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert request["object"]["spec"]["schedulerName"] == "default-scheduler"
    assert hook.seen[-1]["path"].startswith("/third?timeout=")


def test_what_selectors_and_conditions_leave_out_is_not_asked_about(
    api: Api, space: str, ask: Callable[..., None]
) -> None:
    ask("a", "always")
    ask("b", "object", objectSelector={"matchLabels": {"app": "other"}})
    ask("c", "space", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "no"}})
    ask("d", "rule", rules=[{**PODS, "resources": ["services"]}])
    false = [
        {"name": "fails", "expression": "object.spec.no.such == 1"},
        {"name": "false", "expression": "object.metadata.labels.app == 'none'"},
    ]
    ask("e", "condition", matchConditions=false)
    settles(lambda: asked(api, space) == "always")
    settles(lambda: asked(api, space, app="other") == "always.object")


def test_who_breaks_is_passed_over_or_refuses_by_its_failure_policy(
    api: Api, space: str, ask: Callable[..., None], hook: Hook
) -> None:
    hook.answers["stranger"] = lambda request: {"uid": "another", **patched({"asked": "stranger"})}
    hook.answers["odd"] = lambda request: {"patchType": "JSONPatch", "patch": "no base64!"}
    fails = [{"name": "fails", "expression": "object.spec.no.such == 1"}]
    ask("a", "stranger", "odd", failurePolicy="Ignore")
    ask("b", "failing", failurePolicy="Ignore", matchConditions=fails)
    ask("c", "last")
    settles(lambda: asked(api, space) == "last")
    ask("d", "stranger", failurePolicy="Fail")
    settles(lambda: create(api, space).status_code == 500)
    assert "failed calling webhook" in create(api, space).json()["message"]


def test_who_takes_too_long_has_not_answered(
    api: Api, space: str, ask: Callable[..., None], hook: Hook
) -> None:
    def late(request: Json) -> Json:
        time.sleep(1.5)
        return labelled("slow", request)

    hook.answers["slow"] = late
    ask("a", "slow", failurePolicy="Ignore", timeoutSeconds=1)
    ask("b", "last")
    settles(lambda: asked(api, space) == "last")


def test_a_request_that_is_not_allowed_is_refused_with_its_reason(
    api: Api, space: str, ask: Callable[..., None], hook: Hook
) -> None:
    told = {"allowed": False, "status": {"code": 403, "message": "not on a Tuesday"}}
    hook.answers["denies"] = lambda request: told
    ask("a", "denies")
    settles(lambda: create(api, space).status_code == 403)
    message = create(api, space).json()["message"]
    assert message == 'admission webhook "denies.example.com" denied the request: not on a Tuesday'


def test_one_that_wishes_is_asked_again_if_another_changed_the_object_after_it(
    api: Api, space: str, ask: Callable[..., None]
) -> None:
    ask("a", "first", reinvocationPolicy="IfNeeded")
    ask("b", "second")
    settles(lambda: asked(api, space) == "first.second.first")
