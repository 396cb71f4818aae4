"""Routes of the site, and of waiting, asked in one process: facts, readiness, nodes."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gantree.api import readiness
from gantree.api.backend import Backend
from gantree.api.readiness import Readiness
from gantree.api.views import job_view
from gantree.api.views.node_view import node_row, node_rows
from gantree.control.engine.controller import Controller
from gantree.model.errors import NotFound, Unreachable
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.front import Front

ACCESS = "users: {otto: {grants: {role: operator}}}"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Two nodes: one drained under a job that nobody may stop, and one with a job that waits for nothing."""
    place = tmp_path_factory.mktemp("front")
    with Front(place, ACCESS, cluster(leaves=1, nodes=2), Policy()) as front:
        stays = replace(job("stays", gpus=8), preemptible=False)
        front.on_thread(lambda controller: controller.submit([stays, job("goes")], "/", {}))
        front.on_thread(lambda controller: controller.nodes.drain("n0"))
        yield front


def test_facts_that_were_compacted_are_said_before_anything_is_sent(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front.controller.journal, "compacted_to", lambda: 2)
    told = front.ask("otto", "GET", "/v1/facts")
    assert (told.status, "ask for those after 2" in told.text) == (409, True)
    assert front.ask("otto", "GET", "/v1/facts?after=2").status == 200


def test_domains_say_how_full_they_are_one_tier_at_a_time(front: Front) -> None:
    site = front.ask("otto", "GET", "/v1/cluster/domains").json
    assert (site["inside"], site["tier"], site["gpus"], site["usable"]) == ("s0/l0", "node", 16, 8)
    assert [(row["usable"], row["free"]) for row in site["domains"]] == [(0, 0), (8, 7)]


def test_domains_say_which_gpus_of_a_node_are_free(front: Front) -> None:
    leaf = front.ask("otto", "GET", "/v1/cluster/domains?inside=s0/l0").json
    states = {row["name"]: (row["state"], row["strip"][0]) for row in leaf["domains"]}
    assert (leaf["tier"], leaf["left_out"]) == ("node", 0)
    assert states == {"n0": ("draining", [0, 0]), "n1": ("ready", [1, 0])}
    node = front.ask("otto", "GET", "/v1/cluster/domains?inside=n1").json
    assert (node["parent"], [row["name"] for row in node["domains"]]) == (leaf["inside"], ["n1"])
    first = front.ask("otto", "GET", f"/v1/cluster/domains?inside={leaf['inside']}&limit=1").json
    assert ([row["name"] for row in first["domains"]], first["left_out"]) == (["n0"], 1)
    assert front.ask("otto", "GET", "/v1/cluster/domains?inside=nowhere").status == 404


def test_one_node_is_told_as_in_the_list_with_who_stays_on_it(front: Front) -> None:
    def asked(controller: Controller) -> None:
        rows = node_rows(controller.ledger)
        assert [node_row(controller.ledger, row["node"]) for row in rows] == rows
        waits_for = {row["node"]: row["waits_for"] for row in rows}
        assert waits_for == {"n0": ["stays"], "n1": []}
        with pytest.raises(NotFound):
            node_row(controller.ledger, "n7")

    front.on_thread(asked)


def test_who_waits_for_a_job_does_not_have_it_told_at_every_change(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    detail = job_view.job_detail

    def counted(ledger: Any, job: str) -> dict[str, Any]:
        told.append(job)
        return detail(ledger, job)

    monkeypatch.setattr(job_view, "job_detail", counted)
    waited_s: list[float] = []

    async def wait(ticket: object, patience_s: float) -> bool:
        waited_s.append(patience_s)
        await asyncio.sleep(0.1)
        return True

    monkeypatch.setattr("gantree.api.routes.jobs.wait_until_set", wait)
    answer = front.ask("otto", "GET", "/v1/jobs/stays?wait_s=0.5")
    assert (answer.status, answer.json["job"]) == (200, "stays")
    assert len(waited_s) > 2 and told == ["stays"]


def test_an_answer_that_came_after_its_asker_had_left_is_not_given_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "ANSWER_WITHIN_S", 0.01)
    gate = asyncio.Event()
    asked: list[object] = []

    async def ask(question: object) -> dict[str, object]:
        asked.append(question)
        await gate.wait()
        return {"asked": len(asked)}

    async def scene() -> None:
        backend = SimpleNamespace(
            loop=SimpleNamespace(stopping=False, failure=None), call_controller=ask
        )
        ready = Readiness(cast("Backend", backend))
        with pytest.raises(Unreachable):
            await ready.answer()
        gate.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await ready.answer() == {"asked": 2}

    asyncio.run(scene())
