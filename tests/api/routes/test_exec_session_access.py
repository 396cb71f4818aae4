"""Who may attach: a WebSocket passes no dependency of other routes, so the table of roles is asked once more here."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantree.api.access.access import Transport
from gantree.api.access.rate_limits import RateLimits
from gantree.api.routes.exec_sessions import MOST_OF_A_CALLER, ExecRequest, SessionLimit
from gantree.model.errors import TooOften
from gantree.model.events import GangStarted
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.examples import examples
from support.front import Front

ACCESS = """
users:
  alice: {grants: {role: user, queue: research}}
  bob: {grants: {role: user, queue: research}}
  vera: {grants: {role: viewer, queue: research}}
  quinn: {grants: {role: queue_admin, queue: research}}
  adam: {grants: {role: queue_admin, queue: vision}}
  otto: {grants: {role: operator}}
  nils: {}
"""


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with Front(
        tmp_path_factory.mktemp("front"), ACCESS, cluster(leaves=1, nodes=2), Policy()
    ) as front:
        hers = replace(job("hers", gpus=8), queue="research", user="alice")
        front.on_thread(lambda controller: controller.submit([hers], "/", {}))
        front.on_thread(lambda controller: controller.submit([replace(hers, name="runs")], "/", {}))
        began = GangStarted(id="runs/on", observed_at=0.0, job="runs", attempt=1)
        front.on_thread(lambda controller: controller.inbox.enqueue(began))
        yield front


def attach(
    front: Front, headers: Mapping[str, str], word: str = "hers", wish: object = None
) -> tuple[int, str]:
    """The status of a refusal, or the code and the reason of the close."""
    scope: dict[str, Any] = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "path": f"/v1/jobs/{word}/attach",
        "raw_path": b"",
        "query_string": b"",
        "root_path": "",
        "scheme": "ws",
        "headers": [
            (k.encode(), v.encode()) for k, v in {"host": "gantree.test", **headers}.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("gantree.test", 80),
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
        "state": {"transport": Transport("tcp")},
    }
    text = wish if isinstance(wish, str) else json.dumps({} if wish is None else wish)
    unread = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": text}]
    came: list[Any] = []

    async def receive() -> Any:
        if unread:
            return unread.pop(0)
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        came.append(message)

    async def asked() -> None:
        async with asyncio.timeout(60):
            await front.app(scope, receive, send)

    front._runner.run(asked())
    if came[0]["type"] == "websocket.accept":
        return came[-1]["code"], came[-1]["reason"]
    return came[0]["status"], json.loads(came[1]["body"])["detail"]


SMALL = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just("\0"), st.just("\ud800")
)  # fmt: skip
VALUES = st.recursive(
    SMALL,
    lambda each: (
        st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=8), each, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = {
    "rank": st.integers(-1, 10**10),
    "command": st.lists(st.text(max_size=200), max_size=4),
    "terminal": st.none()
    | st.fixed_dictionaries(
        {"rows": st.integers(0, 10_001), "columns": st.integers(0, 10_001)},
        optional={"term": st.text(max_size=70), "more": SMALL},
    ),
    "port": st.none() | st.integers(-1, 70_000),
}
WISHES = st.one_of(
    VALUES.map(json.dumps),
    st.text(max_size=50),
    st.fixed_dictionaries({}, optional=FIELDS).map(json.dumps),
    st.fixed_dictionaries({}, optional=dict.fromkeys([*FIELDS, "else" * 50], VALUES)).map(
        json.dumps
    ),
)
"""First messages: JSON or not, a wish or nearly one."""


@settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    text=WISHES,
    user=st.sampled_from(["alice", "quinn", "otto"]),
    word=st.sampled_from(["hers", "runs"]),
)
def test_whatever_is_wished_is_refused_in_a_short_sentence_or_reaches_the_cluster(
    front: Front, text: str, user: str, word: str
) -> None:
    if user not in _KNOWN:
        _KNOWN[user] = shows(front, user)
    code, reason = attach(front, _KNOWN[user], word, text)
    kind, _, sentence = reason.partition(": ")
    assert (code, kind in ("BadInput", "Conflict"), bool(sentence)) == (4000, True, True), reason
    assert len(reason.encode()) <= 123, "more fits into no close of a WebSocket"
    if kind == "Conflict":
        ExecRequest.model_validate_json(text)
        assert sentence.startswith("runs does not run" if word == "runs" else "hers is starting")


_KNOWN: dict[str, dict[str, str]] = {}


def shows(front: Front, user: str) -> dict[str, str]:
    return {"authorization": f"Bearer {front.token(user)}"}


@pytest.mark.parametrize(
    ("user", "status"),
    [("nils", 403), ("adam", 404), ("bob", 404), ("vera", 403), ("alice", 4000), ("quinn", 4000), ("otto", 4000)],
)  # fmt: skip
def test_owner_queue_admin_and_operator_may_attach_and_nobody_else(
    front: Front, user: str, status: int
) -> None:
    told, reason = attach(front, shows(front, user))
    assert told == status
    if status == 4000:  # the job is placed, and nothing starts it here
        assert reason == "Conflict: hers is starting: exec sessions need a running job"


def test_without_a_token_nobody_attaches(front: Front) -> None:
    assert attach(front, {})[0] == 401
    assert attach(front, {"authorization": "Bearer nonsense"})[0] == 401


def test_a_cookie_counts_only_from_the_daemons_own_pages(front: Front) -> None:
    cookie = {"cookie": f"gantree_session={front.token('alice')}"}
    assert attach(front, cookie)[0] == 403
    assert attach(front, {**cookie, "origin": "http://evil.test"})[0] == 403
    assert attach(front, {**cookie, "origin": "http://gantree.test"})[0] == 4000


def test_whoever_asks_too_often_is_refused(front: Front) -> None:
    access, alice = front.app.state.access, shows(front, "alice")
    front.app.state.access = replace(access, rates=RateLimits(0.001, 1))
    try:
        assert [attach(front, alice)[0] for _ in range(2)] == [4000, 429]
    finally:
        front.app.state.access = access


def test_refusals_are_in_the_audit_log(front: Front) -> None:
    attach(front, shows(front, "vera"))
    rows = front._runner.run(front.audit.read(None, "vera", 0, 100))
    assert (rows[-1].route, rows[-1].status) == ("ATTACH /v1/jobs/{word}/attach", 403)
    assert rows[-1].what == "word hers"


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"rank": -1}, "rank"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"command": [""]}, "no program"),
        ({"port": 0}, "port"),
        ({"terminal": {"rows": 0, "columns": 1}}, "terminal.rows"),
        ({"terminal": {"rows": 1, "columns": 1, "term": "x;y"}}, "terminal.term"),
        ({"shell": True}, "shell"),
        ([1], "the request"),
    ],
)
def test_what_cannot_be_wished_is_refused(front: Front, wish: object, says: str) -> None:
    code, reason = attach(front, shows(front, "alice"), wish=wish)
    assert code == 4000
    assert reason.startswith("BadInput: ") and says in reason


def test_a_caller_has_only_so_many_at_once() -> None:
    seats, held = SessionLimit(), []
    for _ in range(MOST_OF_A_CALLER):
        seat = seats.taken_by("ann")
        seat.__enter__()
        held.append(seat)
    with pytest.raises(TooOften, match="ann has 32 open"), seats.taken_by("ann"):
        pass
    with seats.taken_by("bob"):
        held.pop().__exit__(None, None, None)
    with seats.taken_by("ann"):
        assert seats.taken == {"ann": MOST_OF_A_CALLER}
