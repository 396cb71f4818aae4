"""The audit log: changes and refusals are on record before they are answered, with names and without secrets."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.api.access.audit import Audit
from gantree.journal.access_store import AccessStore, AuditRow
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import JournalError
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster
from support.front import DAEMON_TOKEN, Front

ACCESS = "users: {alice: {grants: {role: user}}, otto: {grants: {role: operator}}}"
JOB = {
    "name": "a",
    "hold": True,
    "gang": [{"role": "w", "members": 1, "run": ["true"], "env": {"K": "in-the-body"}}],
}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with Front(tmp_path_factory.mktemp("front"), ACCESS, cluster(), Policy()) as front:
        yield front


def rows(front: Front, query: str = "") -> list[dict[str, object]]:
    found: list[dict[str, object]] = front.ask("otto", "GET", f"/v1/audit{query}").json["rows"]
    return found


def test_changes_and_refusals_are_on_record_and_looks_are_not(front: Front) -> None:
    headers = {"x-request-id": "mine-1"}
    front.ask("alice", "POST", "/v1/jobs", {"jobs": [JOB]}, headers=headers)
    front.ask("alice", "POST", "/v1/jobs/a/cancel")
    front.ask("alice", "POST", "/v1/nodes/n0/cordon", {})
    front.ask("alice", "GET", "/v1/jobs/a")
    assert front.ask("alice", "POST", "/v1/jobs/check", {"jobs": [JOB]}).status == 200
    assert front.ask("alice", "POST", "/v1/jobs/a/what-if", {"changes": []}).status < 500
    front.ask("alice", "GET", "/v1/audit")
    front.ask("", "GET", "/v1/jobs")
    told = [(row["who"], row["route"], row["what"], row["status"]) for row in rows(front)]
    assert told == [
        ("alice", "POST /v1/jobs", "jobs a", 201),
        ("alice", "POST /v1/jobs/{word}/cancel", "word a", 202),
        ("alice", "POST /v1/nodes/{node}/cordon", "node n0", 403),
        ("alice", "GET /v1/audit", "", 403),
        ("", "GET /v1/jobs", "", 401),
    ]
    first = rows(front)[0]
    assert first["request_id"] == "mine-1" and str(first["door"]).startswith("tcp 127.0.0.1 ")
    text = json.dumps(rows(front))
    assert "in-the-body" not in text and "gantree_" not in text and DAEMON_TOKEN not in text


def test_a_job_that_one_may_not_see_is_a_refusal_though_the_answer_does_not_say_so(
    front: Front,
) -> None:
    front.ask("otto", "POST", "/v1/jobs", {"jobs": [{**JOB, "name": "hers"}]})
    before = len(rows(front))
    assert front.ask("alice", "GET", "/v1/jobs/hers").status == 404
    assert front.ask("alice", "GET", "/v1/jobs/nothing").status == 404
    assert [(row["what"], row["status"]) for row in rows(front)[before:]] == [("word hers", 404)]


def test_the_log_says_to_what_a_number_or_a_policy_was_changed(front: Front) -> None:
    front.ask("otto", "POST", "/v1/jobs", {"jobs": [{**JOB, "name": "numbers"}]})
    before = len(rows(front))
    front.ask("otto", "POST", "/v1/jobs/numbers/priority", {"priority": 7})
    front.ask("otto", "POST", "/v1/jobs/numbers/scale", {"members": 2})
    assert front.ask("otto", "POST", "/v1/policy", {"text": "preset: fair\n"}).status == 200
    assert front.ask("otto", "POST", "/v1/policy/rollback", {"version": 1}).status == 200
    assert [(row["route"], row["what"]) for row in rows(front)[before:]] == [
        ("POST /v1/jobs/{word}/priority", "word numbers priority 7"),
        ("POST /v1/jobs/{word}/scale", "word numbers members 2"),
        ("POST /v1/policy", "version 1"),
        ("POST /v1/policy/rollback", "version 1"),
    ]


def test_the_log_is_read_in_pages_by_user_and_by_time(front: Front) -> None:
    assert {row["who"] for row in rows(front, "?user=otto")} == {"otto"}
    assert rows(front, "?since=9e12") == []
    page = front.ask("otto", "GET", "/v1/audit?limit=2").json
    assert len(page["rows"]) == 2
    assert rows(front, f"?after={page['next']}")[0]["seq"] == page["next"] + 1


def test_what_cannot_be_put_on_record_is_not_acknowledged(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: AccessStore, rows: object) -> None:
        raise JournalError("no space left")

    monkeypatch.setattr(AccessStore, "note", full)
    told = front.ask("alice", "POST", "/v1/jobs", {"jobs": [JOB]})
    assert (told.status, "could not be put on record" in told.text) == (503, True)
    assert front.ask("alice", "GET", "/v1/jobs").status == 200


def test_who_knocks_all_the_time_does_not_fill_the_disk(front: Front) -> None:
    before = len(rows(front))
    for _ in range(60):
        front.ask("", "GET", "/v1/jobs", token="wrong")
    assert 0 < len(rows(front)) - before < 60


def row(number: int) -> AuditRow:
    return AuditRow(float(number), "a", "tcp", "POST /v1/jobs", f"jobs {number}", 201, str(number))


def test_rows_that_come_while_others_are_written_go_together(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    book = AccessStore(journal.database)
    groups: list[int] = []
    first = threading.Event()

    class Slow(AccessStore):
        def note(self, rows: object) -> None:
            first.wait(90)
            groups.append(len(rows))  # type: ignore[arg-type]  # a list of rows
            super().note(rows)  # type: ignore[arg-type]  # the same

    async def many() -> None:
        audit = Audit(Slow(journal.database))
        noted = [asyncio.create_task(audit.note(row(number))) for number in range(50)]
        await asyncio.sleep(0)
        noted += [asyncio.create_task(audit.note(row(number))) for number in range(50, 100)]
        asyncio.get_running_loop().call_later(0.05, first.set)
        await asyncio.gather(*noted)
        audit.close()

    asyncio.run(many())
    assert len(groups) <= 3 and sum(groups) == 100
    assert [each.what for each in book.audit(None, None, 0, 200)] == [
        f"jobs {n}" for n in range(100)
    ]
    journal.close()


def test_several_daemons_write_one_log_and_know_each_other_s_tokens(database_url: str) -> None:
    journals = [PostgresJournal(database_url) for _ in range(2)]
    one, other = (AccessStore(journal.database) for journal in journals)
    one.note([row(1)])
    other.note([row(2)])
    assert [each.what for each in one.audit(None, None, 0, 9)] == ["jobs 1", "jobs 2"]
    for journal in journals:
        journal.close()
