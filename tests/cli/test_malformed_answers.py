"""The commands against a server whose answers are a daemon's but for one field, which has another type.

A real daemon is asked first; then its answers are told with something else in one place. Whatever it is, a command
prints what it can or says in a sentence what is wrong: never a traceback.
"""

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gantree.api.client.client import Client
from gantree.api.client.request import Request
from gantree.api.http.problems import MEDIA_TYPE, problem_of
from gantree.api.server.response_check import RESPONSE_MODELS
from gantree.model.errors import NotFound
from support.daemon import Daemon
from support.serving import serving

Gantree = Callable[..., Any]
CLUSTER = """
name: pair
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
"""
COMMANDS = [
    "jobs --all", "why waits", "when waits", "why runs", "queues", "usage", "record runs", "rerun runs", "cancel runs",
    "scale runs --members 2", "nodes", "cordon n0", "drain n0", "label n0 a=b", "policy show", "policy history",
    "policy apply fifo", "audit", "defragment waits",
    "what-if waits --members 2", "topo", "topo graph", "submit JOB", "hold waits", "topo page", "topo show",
    "reprioritise waits --priority 5",
]  # fmt: skip
OTHERS: list[Any] = [
    None,
    True,
    -1,
    3,
    1.5,
    10**30,
    "",
    "x",
    "9",
    [],
    [1],
    ["x"],
    {},
    {"a": 1},
    [{}],
    [[]],
]
WORD = re.compile(r"\{\w+\}")
OTHER_ROUTES = {"/v1/session", "/healthz", "/readyz"}
"""Whose answers no command reads."""
TRIES = int(os.environ.get("GANTREE_WRONG_TYPES", "6"))


class Mimic(ThreadingHTTPServer):
    """Passes questions on to a daemon, or tells what it was told then, with one place changed."""

    daemon_threads = True

    def __init__(self, daemon: Client) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.daemon = daemon
        self.known: dict[str, Any] = {"POST /v1/jobs/runs/scale": {"job": "runs"}}
        self.changed: tuple[str, Any] | None = None
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def told(self, method: str, path: str, body: bytes) -> Any:
        """The answer to a question."""
        asked = urlsplit(path)
        which = f"?{asked.query}" if asked.path == "/v1/job-id" else ""
        key = f"{method} {asked.path}{which}"
        self.asked.append(key)
        if self.changed is not None and self.changed[0] == key:
            return self.changed[1]
        if key not in self.known:
            parts = urlsplit(path)
            query = dict(each.split("=", 1) for each in parts.query.split("&") if each)
            sent = json.loads(body) if body else None
            self.known[key] = self.daemon.send(Request(method, parts.path, query=query, body=sent))
        return self.known[key]


class _Handler(BaseHTTPRequestHandler):
    server: Mimic

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, status = self.path, 200
        if path.split("?")[0].endswith("/logs"):
            raw, kind = b"[0] x\n", "text/plain"
        else:
            try:
                raw = json.dumps(self.server.told(self.command, path, body)).encode()
            except NotFound as error:  # a service, or a job that a changed answer told of
                status, problem = problem_of(error)
                raw = json.dumps(problem).encode()
            kind = "application/json" if status == 200 else MEDIA_TYPE
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def mimic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mimic]:
    """A mimic of a daemon with a job that runs and one that waits."""
    with Daemon(tmp_path_factory.mktemp("wrong") / "state", CLUSTER) as daemon:
        daemon.client.submit(jobs=[_job("runs", 1), _job("waits", 2)])
        daemon.wait("runs", until="running")
        with serving(Mimic(daemon.client)) as mimic:
            yield mimic


def _job(name: str, members: int) -> dict[str, Any]:
    role = {"role": "w", "members": members, "each": {"gpus": 4}, "run": ["sleep", "600"]}
    return {"name": name, "gang": [role], "time_limit": "1h"}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    if path:
        yield path
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in pairs:
        yield from _places(inner, (*path, key))


def _with(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    changed = json.loads(json.dumps(value))
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = other
    return changed


def test_what_answers_are_held_against_is_what_the_openapi_says(mimic: Mimic) -> None:
    told: dict[str, Any] = mimic.daemon.send(Request("GET", "/v1/openapi.json"))
    told_of = {
        f"{method.upper()} {WORD.sub('{}', path)}": _model_of(operation)
        for path, operations in told["paths"].items()
        for method, operation in operations.items()
    }
    held = {WORD.sub("{}", route): model.__name__ for route, model in RESPONSE_MODELS.items()}
    assert {route: told_of[route] for route in held} == held
    asked = {
        route for route, model in told_of.items() if model and route.split()[1] not in OTHER_ROUTES
    }
    assert asked - held.keys() == set()


def _model_of(operation: dict[str, Any]) -> str | None:
    good = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
    schema = (
        good[0].get("content", {}).get("application/json", {}).get("schema", {}) if good else {}
    )
    return str(schema["$ref"]).rpartition("/")[2] if "$ref" in schema else None


@pytest.mark.parametrize(
    ("command", "route", "path", "other", "told"),
    [
        ("queues", "GET /v1/queues", ("queues", 0, "used"), [1], "queues.0.used: input should be"),
        ("topo", "GET /v1/cluster", ("cluster", "nodes"), "9", "nodes: input should be"),
        (
            "topo",
            "GET /v1/cluster",
            ("cluster", "machines", "m4", "cpus"),
            10**30,
            "the answer has no valid cluster",
        ),
        ("topo", "GET /v1/cluster", ("held", "runs", 0, "node"), "9", "no node 9 in this fabric"),
        ("why waits", "GET /v1/jobs/waits/why", ("start",), [1], "start: input should be"),
        (
            "why waits",
            "GET /v1/jobs/waits/why",
            ("refused", "would_fit_if", 0, "comm_ratio"),
            {},
            "comm_ratio: input should be",
        ),
        (
            "record runs",
            "GET /v1/jobs/runs/record",
            ("members", 0, "ranks"),
            [],
            "ranks: list should",
        ),
        ("nodes", "GET /v1/nodes", ("nodes", 0, "jobs"), [1], "jobs.0: input should be"),
    ],
)
def test_the_field_that_a_command_stumbled_over_is_named(
    gantree: Gantree,
    mimic: Mimic,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    route: str,
    path: tuple[Any, ...],
    other: Any,
    told: str,
) -> None:
    monkeypatch.setenv("GANTREE_TOKEN", "t")
    monkeypatch.setenv("GANTREE_SERVER", mimic.url)
    mimic.changed = None
    assert gantree(*command.split()).code == 0
    mimic.changed = route, _with(mimic.known[route], path, other)
    done = gantree(*command.split())
    assert done.code == 1
    assert told in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_field_of_another_type_is_told_in_a_sentence(
    gantree: Gantree,
    mimic: Mimic,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(json.dumps(_job("again", 1)))
    words = [str(job) if word == "JOB" else word for word in command.split()]
    monkeypatch.setenv("GANTREE_TOKEN", "t")
    monkeypatch.setenv("GANTREE_SERVER", mimic.url)
    mimic.changed, mimic.asked = None, []
    assert gantree(*words).code in (0, 1, 3), command
    chance = random.Random(command)
    answered = [key for key in dict.fromkeys(mimic.asked) if key in mimic.known]  # not with 404
    places = [(key, path) for key in answered for path in _places(mimic.known[key])]
    assert places
    for key, path in chance.sample(places, min(TRIES, len(places))):
        other = chance.choice(OTHERS)
        mimic.changed = key, _with(mimic.known[key], path, other)
        done = gantree(*words)
        assert done.code in (0, 1, 2, 3, 124, 130), (key, path, other, done)
        assert done.code in (0, 3) or done.err.startswith("gantree: ") or done.out, (
            key,
            path,
            other,
        )
