"""The OpenAPI is what the daemon does: every route has a client method, and answers hold what is said of them."""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from random import choice
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gantree.api.client import requests, service_requests, site_requests
from gantree.api.client.async_client import AsyncClient
from gantree.api.client.client import Client
from gantree.api.client.request import Request, Stream
from support.daemon import Daemon
from support.examples import IS_SOAK, examples

EXAMPLES = examples(40)
"""Requests for each operation; what the OpenAPI forbids is sent in a soak alone."""
JOBS = ["there", "ran", "runs", "hers", "nowhere"]
ROLES = {"operator": "", "user": "ulla", "viewer": "vera"}
"""Who asks; nobody in particular has the token of the daemon, and may do all."""
ACCESS = "users: {ulla: {grants: {role: user}}, vera: {grants: {role: viewer}}}\n"
FOR_EVER = {"follow", "wait_s"}
"""Parameters that keep an answer open; the generated requests leave them alone."""
NO_METHOD = {
    ("GET", "/metrics"), ("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/v1/session"),
    ("DELETE", "/v1/session"),
}  # fmt: skip
"""Asked by programs that watch, and by browsers, which bring clients of their own."""
EVENTS = "/v1/events"
BODY_MIB = 1 << 20
SHORT_ANSWER = 20_000
CASES: Counter[str] = Counter()
"""Requests that were generated and sent, by operation; `pytest -s` prints how many."""
CLUSTER = """
name: one
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes: [{names: n0, machine: m2}]
"""
JOB = "hold: true\nname: there\ngang: [{role: w, members: 1, each: {gpus: 1}, run: ['true']}]\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("openapi")
    (place / "access.yaml").write_text(ACCESS)
    with Daemon(
        place / "state", CLUSTER, listen="127.0.0.1:0", access_file=place / "access.yaml"
    ) as daemon:
        daemon.client.submit(JOB)
        daemon.client.submit(JOB.replace("there", "hers"), user="ulla")
        if IS_SOAK:
            daemon.client.submit(JOB.replace("there", "ran").replace("hold: true\n", ""))
            daemon.wait("ran")
            running = JOB.replace("there", "runs").replace("hold: true\n", "")
            daemon.client.submit(running.replace("['true']", "[sleep, '600']"))
            daemon.wait("runs", until="running")
        yield daemon


@pytest.fixture(scope="module")
def tokens(daemon: Daemon) -> dict[str, str]:
    """What each role shows."""
    own = (daemon.state_dir / "token").read_text().strip()
    return {
        role: daemon.client.make_token(user)["token"] if user else own
        for role, user in ROLES.items()
    }


@pytest.fixture(scope="module")
def described(daemon: Daemon) -> dict[str, Any]:
    return daemon.client.send(Request[Any]("GET", "/v1/openapi.json"))


def methods_of(kind: type) -> set[str]:
    own = {"send", "stream", "close", "state_dir", "target"}
    return {name for name in vars(kind) if not name.startswith("_")} - own


def descriptions() -> dict[str, Callable[..., Any]]:
    """The functions of `requests` that describe one."""
    return {
        name: function
        for name, function in (
            vars(requests) | vars(site_requests) | vars(service_requests)
        ).items()
        if inspect.isfunction(function)
        and not name.startswith("_")
        and re.match(r"(Request|Stream)\[", str(function.__annotations__.get("return"))
                     .replace("gantree.api.client.request.", ""))
    }  # fmt: skip


def sent_by(function: Callable[..., Any]) -> set[tuple[str, str]]:
    """(method, path) of what a function describes, with each of its switches on and off."""
    found = set()
    for switch in (False, True):
        arguments = {
            name: _argument(parameter, switch)
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is inspect.Parameter.empty
            or (switch and parameter.annotation in (bool, "bool"))
        }
        request: Request[Any] | Stream[Any] = function(**arguments)
        found.add((request.method, re.sub(r"\{[^}]*\}", "{}", request.path)))
    return found


def _argument(parameter: inspect.Parameter, switch: bool) -> object:
    kind = str(parameter.annotation)
    if "bool" in kind:
        return switch
    if "int" in kind or "float" in kind:
        return 1
    return {"a": "b"} if "Mapping" in kind else "word"


def test_both_clients_have_every_method_and_no_other() -> None:
    assert methods_of(Client) == methods_of(AsyncClient) == set(descriptions())


def test_every_route_has_a_method_and_every_method_a_route(described: dict[str, Any]) -> None:
    routes = {
        (method.upper(), path)
        for path, operations in described["paths"].items()
        for method in operations
    }
    plain = {(method, re.sub(r"\{[^}]*\}", "{}", path)) for method, path in routes - NO_METHOD}
    assert set().union(*map(sent_by, descriptions().values())) == plain


def test_every_operation_says_what_it_is_and_what_it_answers(described: dict[str, Any]) -> None:
    silent = [
        f"{method} {path}"
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
        if path.startswith("/v1") and not (operation.get("description") and tells(operation))
    ]
    assert silent == []


def tells(operation: dict[str, Any]) -> bool:
    """Whether an answer of 2XX has a schema that says more than that it is there."""
    good = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
    schemas = [media.get("schema") for answer in good for media in answer["content"].values()]
    return bool(schemas) and all(schemas)


@pytest.mark.parametrize("role", ROLES)
def test_no_request_breaks_the_daemon_or_what_it_says_of_its_answers(
    daemon: Daemon, tokens: dict[str, str], role: str
) -> None:
    token = tokens[role]
    schema = schemathesis.openapi.from_url(
        f"{daemon.url}/v1/openapi.json", headers={"Authorization": f"Bearer {token}"}
    )
    modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE][: 2 if IS_SOAK else 1]
    broken: list[str] = []
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        if operation.path != EVENTS:  # has no end; see below
            for mode in modes:
                broken += _tried(operation, token, mode, role)
    print(f"{role}: {CASES.total()} cases over {len(CASES)} operations so far")
    assert not broken, "\n".join(broken)
    assert daemon.process.poll() is None


def _tried(operation: Any, token: str, mode: GenerationMode, role: str) -> list[str]:
    broken: list[str] = []
    own = "hers" if role == "user" else "there"

    @settings(
        max_examples=EXAMPLES if role == "operator" else EXAMPLES // 2,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def attempt(case: Any) -> None:
        for name in FOR_EVER & set(case.query or {}):
            del case.query[name]
        if isinstance(case.path_parameters, dict) and "word" in case.path_parameters:
            case.path_parameters["word"] = choice(JOBS) if IS_SOAK else own
        CASES[operation.label] += 1
        response = case.call(headers={"Authorization": f"Bearer {token}"}, timeout=300)
        case.validate_response(
            response,
            checks=(
                not_a_server_error,
                status_code_conformance,
                content_type_conformance,
                response_schema_conformance,
            ),
        )

    try:
        attempt()
    except Unsatisfiable:
        return []  # nothing that it could be sent is forbidden
    except (Exception, FailureGroup) as error:
        broken.append(f"{operation.label}: {error}")
    return broken


SEQS = st.integers(-2, 40) | st.sampled_from([2**63 - 1, 2**63, -(2**70), 10**30])
PLACES = (
    st.none()
    | SEQS.map(str)
    | st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=8)
)


@settings(
    max_examples=max(20, EXAMPLES),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    role=st.sampled_from(list(ROLES)),
    place=PLACES,
    job=st.none() | st.sampled_from(JOBS) | st.text(max_size=8),
)
@example(role="operator", place="0", job=None)
@example(role="operator", place="1", job=None)
def test_whoever_listens_gets_events_from_where_he_says_or_is_told_what_is_wrong(
    daemon: Daemon, tokens: dict[str, str], role: str, place: str | None, job: str | None
) -> None:
    CASES[f"GET {EVENTS}"] += 1
    last = max(fact["seq"] for fact in daemon.client.facts())
    headers = {"Authorization": f"Bearer {tokens[role]}"}
    if place is not None:
        headers["Last-Event-ID"] = place
    at = urlsplit(daemon.url)
    connection = HTTPConnection(str(at.hostname), at.port, timeout=300)
    query = "" if job is None else "?" + urlencode({"job": job})
    try:
        connection.request("GET", EVENTS + query, headers=headers)
        answer = connection.getresponse()
        kind = answer.headers["Content-Type"]
        if answer.status != 200:
            assert (400 <= answer.status < 500, kind) == (True, "application/problem+json")
            assert json.loads(answer.read())["status"] == answer.status
            return
        assert kind.startswith("text/event-stream")
        if place is not None and role == "operator" and job is None and int(place) < last:
            assert_frames_from(int(place), answer.readline(), answer.readline(), answer.readline())
    finally:
        connection.close()


def assert_frames_from(place: int, number: bytes, event: bytes, data: bytes) -> None:
    """The three lines of a frame are of the first fact after a place."""
    fact = json.loads(data.removeprefix(b"data: "))
    assert number == b"id: %d\n" % (place + 1)
    assert event == f"event: {fact['fact']}\n".encode()
    assert (fact["seq"], set(fact)) == (place + 1, {"seq", "fact", "at", "data"})


def posted(daemon: Daemon, path: str, body: object, *, known: bool = True) -> tuple[int, bytes]:
    """Status and body of what the daemon answers."""
    at = urlsplit(daemon.url)
    connection = HTTPConnection(str(at.hostname), at.port, timeout=300)
    headers = {"Content-Type": "application/json"}
    if known:
        headers["Authorization"] = f"Bearer {(daemon.state_dir / 'token').read_text().strip()}"
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


ONE = {"name": "a", "gang": [{"role": "w", "members": 1, "run": ["true"]}]}
LARGE: dict[str, tuple[str, object]] = {
    "a field name that is no text": ("/v1/jobs", {"jobs": [ONE], "overrides": {"\ud800": "a"}}),
    "a long override": ("/v1/jobs", {"jobs": [ONE], "overrides": {"name": "a" * BODY_MIB}}),
    "many overrides": ("/v1/jobs", {"jobs": [ONE], "overrides": dict.fromkeys(map(str, range(99_000)))}),
    "a long user": ("/v1/jobs", {"jobs": [ONE], "user": "a" * BODY_MIB}),
    "a long base_dir": ("/v1/jobs", {"jobs": [ONE], "base_dir": "a" * BODY_MIB}),
    "a long field name": ("/v1/tokens", {"a" * BODY_MIB: 1}),
    "many fields of a role": ("/v1/jobs", {"jobs": [{"gang": [dict.fromkeys(map(str, range(99_000)))]}]}),
    "many changes": ("/v1/jobs/there/what-if", {"changes": [{str(i): [] for i in range(20_000)}] * 8}),
}  # fmt: skip


@pytest.mark.parametrize("what", LARGE)
def test_a_large_body_that_is_wrong_is_refused_in_few_words(daemon: Daemon, what: str) -> None:
    status, answer = posted(daemon, *LARGE[what])
    assert status == 422, answer[:300]
    assert len(answer) < SHORT_ANSWER + 60_000 * (what == "many fields of a role")
    assert json.loads(answer)["title"] in ("BadInput", "BadFields")


def test_who_is_not_known_can_make_no_long_answer(daemon: Daemon) -> None:
    body = dict.fromkeys(map(str, range(99_000)))
    status, answer = posted(daemon, "/v1/session", body, known=False)
    assert (status, len(answer) < SHORT_ANSWER) == (422, True)
    assert b"at most 1000 fields" in answer
