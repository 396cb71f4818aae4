"""Who may do what: every route, asked by every role, about jobs that are one's own, of one's queue, and others'."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gantree.api.access.access import Caller
from gantree.api.access.permissions import ANOTHER, KEY, Need, redacted_for
from gantree.api.access.rate_limits import RateLimits
from gantree.model.access import grant_of
from gantree.model.jobs import Job
from gantree.testing.builders import job
from support.front import DAEMON_TOKEN, Front, Told
from support.permissions import JOB, front_with_jobs
from support.route_needs import NEEDS

ASKERS = ("", "nils", "eve", "bob", "vera", "alice", "wolf", "quinn", "otto", "rolf", "daemon")
"""Nobody, nobody with a role, a user of another queue, a user of the queue, and so on; alice has handed the job in."""
FREE, WHO, MAY_NOT, NO_JOB = "ok", "401", "403", "404"
TABLE: dict[Need, dict[str, str]] = {
    Need.OPEN: dict.fromkeys(ASKERS, FREE),
    Need.KNOWN: {"": WHO, "nils": MAY_NOT, "rolf": MAY_NOT},
    Need.SUBMIT: {"": WHO, "nils": MAY_NOT, "rolf": MAY_NOT, "vera": MAY_NOT, "wolf": MAY_NOT, "eve": MAY_NOT},
    Need.SEE: {"": WHO, "nils": MAY_NOT, "rolf": MAY_NOT, "eve": NO_JOB, "bob": NO_JOB},
    Need.READ: {
        "": WHO, "nils": MAY_NOT, "eve": NO_JOB, "bob": NO_JOB, "vera": MAY_NOT, "wolf": MAY_NOT,
        "rolf": MAY_NOT,
    },
    Need.CHANGE: {
        "": WHO, "nils": MAY_NOT, "eve": NO_JOB, "bob": NO_JOB, "vera": MAY_NOT, "wolf": MAY_NOT,
        "rolf": MAY_NOT,
    },
    Need.SEE_ALL: {"": WHO} | dict.fromkeys(
        ("nils", "eve", "bob", "vera", "alice", "quinn", "rolf"), MAY_NOT
    ),
    Need.OPERATE: {"": WHO}
    | dict.fromkeys(("nils", "eve", "bob", "vera", "alice", "wolf", "quinn", "rolf"), MAY_NOT),
    Need.ROUTE: {"": WHO} | dict.fromkeys(("nils", "eve", "bob", "vera", "alice", "wolf"), MAY_NOT),
}  # fmt: skip
"""What each is answered for each need; who is not named may."""
BODIES: dict[str, Any] = {
    "POST /v1/jobs": {"jobs": [JOB]},
    "POST /v1/jobs/check": {"jobs": [JOB]},
    "POST /v1/jobs/forecast": {"jobs": [JOB]},
    "POST /v1/jobs/{word}/scale": {"members": 1},
    "POST /v1/jobs/{word}/priority": {"priority": 1},
    "POST /v1/jobs/{word}/extend": {"for_s": 60.0},
    "POST /v1/jobs/{word}/what-if": {},
    "POST /v1/jobs/{word}/rerun": {},
    "POST /v1/nodes/{node}/labels": {"labels": {"a": "b"}},
    "POST /v1/nodes/{node}/fault": {"reason": "fan"},
    "POST /v1/nodes/{node}/repair": {"action": "start"},
    "POST /v1/federation/lease": {"federation": "f", "number": 1, "lease_s": 60.0},
    "POST /v1/nodes/burn-in": {"nodes": ["n0"]},
    "POST /v1/links/degrade": {"link": "node:n0", "health": 0.5},
    "POST /v1/links/restore": {"link": "node:n0"},
    "POST /v1/policy": {"text": "preset: fair\n"},
    "POST /v1/policy/what-if": {"text": "preset: fair\n"},
    "POST /v1/policy/rollback": {"version": 1},
    "POST /v1/services/{service}/scale": {"replicas": 1},
    "POST /v1/routes/reports": {"router": "r1", "window_s": 5.0},
    "POST /v1/session": {"token": DAEMON_TOKEN},
    "POST /v1/tokens": {"user": "nils"},
}
QUERIES = {"GET /v1/job-id": "?name=hers"}
RERUN = "POST /v1/jobs/{word}/rerun"
ATTACH = "ATTACH /v1/jobs/{word}/attach"
NOT_DESCRIBED = ("GET /v1/session/oidc", "GET /v1/session/oidc/callback")
"""Routes of browsers alone, which the OpenAPI leaves out."""
LET_THROUGH = {
    "DELETE /v1/tokens/{token}": "there is no token none",
    "GET /v1/jobs/{word}/record": "attempt 1 of hers was never started",
    "POST /v1/jobs/{word}/rerun": "attempt 1 of hers was never started",
    "GET /v1/policy/versions/{number}": "no version of the policy is on record",
    "GET /v1/session/oidc": "no OIDC provider is in the access file",
    "GET /v1/session/oidc/callback": "the log-in is not one that this browser began",
    "GET /v1/federation/{kind}/{namespace}/{name}": "GangJobs and GangServices are on Kubernetes alone",
    "POST /v1/federation/{kind}/{namespace}/{name}/cancel": "GangJobs and GangServices are on Kubernetes alone",
    "POST /v1/nodes/burn-in": "node n0 is not cordoned",
    "POST /v1/jobs/{word}/hold": "held already",
    "POST /v1/nodes/{node}/repair": "this daemon has no repair hooks",
    "GET /v1/history/jobs/{word}": "has not ended",
    "POST /v1/jobs/{word}/release": "not held",
    "POST /v1/jobs/{word}/resume": "not held",
    "POST /v1/jobs/{word}/suspend": "on hold",
    "POST /v1/jobs/{word}/cancel": "cancel",
    "POST /v1/jobs/{word}/defragment": "gain",
    "POST /v1/services/{service}/cancel": "service chat has ended",
}
"""What else is said to those who are let through; of an answer below 400 it is plain."""
NEVER_SERVED = {
    "DELETE /v1/tokens/{token}", "GET /v1/history/jobs/{word}", "GET /v1/jobs/{word}/record", RERUN,
    "GET /v1/policy/versions/{number}", "GET /v1/session/oidc", "GET /v1/session/oidc/callback",
    "POST /v1/jobs/{word}/defragment", "POST /v1/nodes/{node}/repair", "POST /v1/nodes/burn-in",
    "GET /v1/federation/{kind}/{namespace}/{name}", "POST /v1/federation/{kind}/{namespace}/{name}/cancel",
}  # fmt: skip
"""Nothing there is what these routes are about; tests of their own have them answer."""
WAITING = ("hold", "release", "scale", "defragment")
"""What is asked of a job that waits."""
FILL = {
    "word": "hers",
    "node": "n0",
    "number": "1",
    "token": "none",
    "job": "hers",
    "service": "chat",
    "kind": "gangjobs",
    "namespace": "default",
    "name": "train",
}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front_with_jobs(tmp_path_factory.mktemp("front")) as front:
        yield front


def hand_in(front: Front, job: Job) -> None:
    front.on_thread(lambda controller: controller.submit([job], "/", {}))


def operations(front: Front) -> dict[str, Need | None]:
    """Every route by method and path, with what it says that it needs; those that the OpenAPI leaves out, too."""
    found: dict[str, Need | None] = {}
    for route in _routes(front.app.router.routes):
        for method in sorted(getattr(route, "methods", None) or ("ATTACH",)):
            stated = getattr(route, "openapi_extra", None) or {}
            need = Need(stated[KEY]) if KEY in stated else None
            if method != "HEAD" and route.path != "/v1/openapi.json":
                found[f"{method} {route.path}"] = need
    return found


def _routes(routes: Any) -> Iterator[Any]:
    for route in routes:
        below = getattr(getattr(route, "original_router", None), "routes", None)
        if below is None:
            yield route
        else:
            yield from _routes(below)


def test_every_route_says_what_it_needs(front: Front) -> None:
    found = operations(front)
    assert [route for route, need in found.items() if need is None] == [ATTACH]
    described = {
        f"{method.upper()} {path}"
        for path, of_path in front.app.openapi()["paths"].items()
        for method in of_path
    }
    assert described <= {*found} and {*found} - described == {ATTACH, *NOT_DESCRIBED}


def test_every_route_needs_what_was_decided(front: Front) -> None:
    decided = {
        " ".join(route.split()): need
        for need, routes in NEEDS.items()
        for route in routes.split(";")
    }
    found = operations(front)
    assert found.pop(ATTACH) is None  # it asks for Need.CHANGE itself
    assert found == decided


def test_a_route_that_says_nothing_is_answered_to_nobody(front: Front) -> None:
    route = next(
        route
        for included in front.app.router.routes
        for route in getattr(getattr(included, "original_router", None), "routes", ())
        if route.path == "/v1/health"
    )
    stated, route.openapi_extra = route.openapi_extra, None
    try:
        assert front.ask("daemon", "GET", "/v1/health").status == 403
    finally:
        route.openapi_extra = stated
    assert front.ask("daemon", "GET", "/v1/health").status == 200


def expected(route: str, need: Need, asker: str) -> str:
    """A rerun reads what ran before it hands it in; whoever looks at a token that is not there is told so."""
    if route == RERUN and asker in ("bob", "eve"):
        return NO_JOB
    if route == "POST /v1/tokens" and asker not in ("", "nils", "otto", "daemon"):
        return MAY_NOT
    return TABLE[need].get(asker, FREE)


def came(told: Told, route: str) -> str:
    """What somebody was answered. Only an answer that says so is one of whoever was let through."""
    if told.status < 400 or (route in LET_THROUGH and LET_THROUGH[route] in told.text):
        return FREE
    if told.status == 404 and not re.search("there is no (job|service) ", told.text):
        return f"404 of something else: {told.text}"
    return str(told.status)


def test_every_role_is_answered_as_the_table_has_it_on_every_route(front: Front) -> None:
    found = operations(front)
    del found[ATTACH]  # tests/api/routes/test_exec_session_access.py asks the same of it
    wrong, served, refused = [], set(), set()
    last = (
        "POST /v1/jobs/{word}/resume",
        "POST /v1/jobs/{word}/cancel",
        "POST /v1/services/{service}/cancel",
    )
    first = sorted({*found} - {*last}, key=lambda each: (each.startswith("POST"), each))
    for route in (*first, *last):
        need = found[route]
        assert need is not None
        method, path = route.split(" ")
        for asker in ASKERS:
            body = BODIES.get(route, {} if method == "POST" and need is Need.OPERATE else None)
            fill = {**FILL, "word": "queued"} if path.endswith(WAITING) else FILL
            told = front.ask(
                asker, method, path.format_map(fill) + QUERIES.get(route, ""), body, parts=0
            )
            answered, wanted = came(told, route), expected(route, need, asker)
            if answered != wanted:
                wrong.append(
                    f"{route} asked by {asker or 'nobody'}: {answered}, not {wanted}: {told}"
                )
            served |= {route} if told.status < 400 else set()
            refused |= {route} if answered in (WHO, MAY_NOT, NO_JOB) else set()
    assert wrong == [], "\n".join(each[:170] for each in wrong)
    assert {*found} - served == NEVER_SERVED
    assert {route for route, need in found.items() if need is not Need.OPEN} == refused


def test_a_list_shows_each_what_he_may_see(front: Front) -> None:
    shown = {
        asker: {row["job"] for row in front.ask(asker, "GET", "/v1/jobs").json["jobs"]}
        for asker in ("eve", "alice", "bob", "vera", "quinn", "otto")
    }
    assert shown["eve"] == set()
    assert "hers" in shown["alice"] and "behind" not in shown["alice"]
    assert "behind" in shown["bob"] and "hers" not in shown["bob"]
    assert {"hers", "behind"} <= shown["vera"] == shown["quinn"] == shown["otto"]


def test_who_may_look_and_not_read_is_told_no_value_of_a_variable(front: Front) -> None:
    read = front.ask("alice", "GET", "/v1/jobs/hers").json["spec"]["roles"][0]
    seen = front.ask("vera", "GET", "/v1/jobs/hers").json["spec"]["roles"][0]
    assert read["env"] == [["K", "v1"]]
    assert seen["env"] == [["K", "(redacted)"]]
    assert seen["run"] == ["run", "--api-key=(redacted)"]
    facts = front.ask("vera", "GET", "/v1/facts").text
    assert '"hers"' in facts and "v1" not in facts.replace("/v1", "")


def test_jobs_of_others_have_no_name_in_what_one_is_told(front: Front) -> None:
    for name, queue, user in (
        ("block", "research", "alice"),
        ("next", "research", "bob"),
        ("waits", "vision", "eve"),
    ):
        new = replace(job(name, gpus=8), queue=queue, user=user)
        hand_in(front, new)
    assert front.controller.ledger.holding
    for url in ("/v1/jobs/waits", "/v1/jobs/waits/why", "/v1/jobs/waits/when", "/v1/cluster", "/v1/nodes",
                "/v1/nodes/n0", "/v1/facts", "/v1/jobs", "/v1/queues"):  # fmt: skip
        told = front.ask("eve", "GET", url)
        assert told.status == 200, url
        named = [
            name
            for name in ("hers", "behind", "block", "next-", "alice", "bob")
            if f'"{name}' in told.text or f" {name}" in told.text
        ]
        assert named == [], (url, told.text)
    why = front.ask("eve", "GET", "/v1/jobs/waits/why").json
    assert why["job"] == "waits" and not {"block", "next"} & {*why["ahead"]}
    assert ANOTHER in front.ask("eve", "GET", "/v1/cluster").json["held"]
    assert "hers" in front.ask("vera", "GET", "/v1/cluster").json["held"]
    events = front.ask("eve", "GET", "/v1/events", headers={"Last-Event-ID": "0"}, parts=1).text
    assert "waits" in events and "hers" not in events


def test_a_name_means_the_newest_job_that_one_may_see(front: Front) -> None:
    for user in ("alice", "bob"):
        same = replace(job("same"), queue="research", user=user, held=True)
        hand_in(front, same)
    assert front.ask("alice", "GET", "/v1/jobs/same").json["job"] == "same"
    assert front.ask("bob", "GET", "/v1/jobs/same").json["job"] == "same-2"
    assert front.ask("bob", "GET", "/v1/jobs/same-2").json["user"] == "bob"


def test_nobody_hands_in_jobs_in_the_name_of_another(front: Front) -> None:
    def handed_in(asker: str, **body: Any) -> Any:
        return front.ask(asker, "POST", "/v1/jobs", {"jobs": [JOB], **body})

    def user_of(asker: str, **body: Any) -> Any:
        told = handed_in(asker, **body)
        assert told.status == 201, told
        return front.ask("otto", "GET", f"/v1/jobs/{told.json['jobs'][0]['job']}").json["user"]

    assert (
        user_of("alice")
        == user_of("alice", login="bob")
        == user_of("alice", user="alice")
        == "alice"
    )
    assert handed_in("alice", user="bob").status == 403
    assert handed_in("alice", jobs=[{**JOB, "user": "bob"}]).status == 403
    assert handed_in("alice", overrides={"queue": "vision"}).status == 403
    assert user_of("quinn", user="bob") == user_of("quinn", jobs=[{**JOB, "user": "bob"}]) == "bob"
    assert handed_in("quinn", user="eve", jobs=[{**JOB, "queue": "vision"}]).status == 403
    assert user_of("daemon", login="root") == "root"


def test_only_an_operator_hands_in_jobs_as_those_of_a_federation(front: Front) -> None:
    assignment = {"federation": "f", "job": "j", "number": 1, "lease": 1}
    body = {"jobs": [JOB], "assignment": assignment}
    for path in ("/v1/jobs", "/v1/jobs/forecast", "/v1/jobs/check"):
        assert front.ask("alice", "POST", path, body).status == 403
    refused = front.ask("otto", "POST", "/v1/jobs", body)
    assert refused.status == 409 and "of federation f" in refused.json["detail"]


def test_a_job_may_come_after_those_that_one_may_see(front: Front) -> None:
    after = {"jobs": [{**JOB, "name": "later", "after": ["behind"]}]}
    refused = front.ask("alice", "POST", "/v1/jobs/check", after)
    assert refused.status == 422 and refused.json["detail"].endswith("there is no job behind")
    assert front.ask("bob", "POST", "/v1/jobs/check", after).status == 200


def test_an_access_file_is_read_again_and_a_bad_one_changes_nothing(front: Front) -> None:
    before = front.access_file.read_text()
    try:
        front.access_file.write_text("users: {eve: {grants: {role: operatr}}}")
        front.file.reload()
        assert front.ask("eve", "POST", "/v1/nodes/n0/uncordon").status == 403
        front.access_file.write_text("users: {eve: {grants: {role: operator}}}")
        front.file.reload()
        assert front.ask("eve", "POST", "/v1/nodes/n0/uncordon").status in (202, 409)
        assert front.ask("alice", "GET", "/v1/jobs").status == 403
    finally:
        front.access_file.write_text(before)
        front.file.reload()


def test_a_peer_of_the_socket_is_whom_the_file_knows_by_his_unix_name(front: Front) -> None:
    before = front.access_file.read_text()
    try:
        front.access_file.write_text(before + "unix: {alice: nobody, nobody: daemon}\n")
        front.file.reload()
        assert front.ask("", "GET", "/v1/session", uid=65534).json["user"] == "alice"
        front.access_file.write_text(before + "unix: {alice: nobody, bob: nobody}\n")
        front.file.reload()
        assert front.ask("", "GET", "/v1/session", uid=65534).status == 401
        assert front.ask("", "GET", "/v1/session", uid=0).json["operator"] is True
    finally:
        front.access_file.write_text(before)
        front.file.reload()


def test_what_a_job_that_was_forgotten_ran_with_is_for_nobody_who_may_only_look(
    front: Front,
) -> None:
    spec = replace(job("gone", gpus=1), queue="research", user="alice", held=True)
    role = replace(spec.roles[0], env=(("K", "v-of-gone"),))
    hand_in(front, replace(spec, roles=(role,)))
    before = front.controller.ledger.jobs.pop("gone")  # as JobsForgotten does
    try:
        assert "v-of-gone" in front.ask("otto", "GET", "/v1/facts").text
        told = front.ask("wolf", "GET", "/v1/facts").text
        assert '"gone"' in told and "v-of-gone" not in told
        assert '"gone"' not in front.ask("vera", "GET", "/v1/facts").text
        ledger, vera = (
            front.controller.ledger,
            Caller("vera", (grant_of("viewer", "research"),), "tcp"),
        )
        assert redacted_for(vera, ledger, {"preempted_by": "gone", "by": ""}) == {
            "preempted_by": ANOTHER,
            "by": "",
        }
    finally:
        front.controller.ledger.jobs["gone"] = before


def test_somebody_unknown_may_ask_as_often_as_a_caller_and_holds_up_nobody(front: Front) -> None:
    access = front.app.state.access
    front.app.state.access = replace(access, rates=RateLimits(0.001, 2))
    try:
        guesses = [front.ask("", "GET", "/v1/jobs", token=f"gantree_{n}").status for n in range(3)]
        doors = [front.ask("", *door).status for door in (("GET", "/v1/session/oidc"),
                 ("POST", "/v1/session", {"token": "x"}), ("GET", "/v1/session/oidc/callback"))]  # fmt: skip
        assert guesses == [401, 401, 429] and doors == [429, 429, 429]
        assert front.ask("alice", "GET", "/v1/jobs").status == 200
    finally:
        front.app.state.access = access


def test_no_other_site_can_make_a_browser_change_anything(front: Front) -> None:
    entered = front.ask("", "POST", "/v1/session", {"token": DAEMON_TOKEN})
    cookie = entered.headers["set-cookie"].partition(";")[0]
    asked = [route for route in operations(front) if not route.startswith(("GET", "ATTACH"))]
    assert len(asked) > 20
    for route in asked:
        method, path = route.split(" ")
        for origin in ({}, {"origin": "http://evil.test"}):
            if (
                route != "POST /v1/session" or origin
            ):  # a program opens one without an origin, with a token
                headers = {"cookie": cookie, **origin}
                told = front.ask(
                    "", method, path.format_map(FILL), BODIES.get(route), headers=headers
                )
                assert (told.status, "Origin" in told.text) == (403, True), route
    assert front.ask("", "GET", "/v1/session", headers={"cookie": cookie}).status == 200
