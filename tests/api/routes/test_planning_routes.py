"""Queues, reclaim, promises and what-if through the real daemon, over kill -9 and over a changed policy."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.model.errors import BadInput, Conflict, NotFound
from support.daemon import Daemon

CLUSTER = """
name: pair
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
"""
POLICY = """
preset: gantree
queues:
  - {name: research, guarantee: {gpus: 4}, weight: 3}
  - {name: product, guarantee: {gpus: 4}, limit: {gpus: 6}}
evictions: {grace: 1s}
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "state", CLUSTER, POLICY) as daemon:
        yield daemon


def submit(
    daemon: Daemon,
    name: str,
    queue: str,
    gpus: int,
    *more: str,
    members: int = 1,
    script: str = "sleep 300",
) -> None:
    gang = f"gang: [{{role: w, members: {members}, each: {{gpus: {gpus}}}, run: [sh, -c, '{script}']}}]"
    lines = [f"name: {name}", f"queue: {queue}", gang, *more]
    daemon.client.submit("\n".join(lines) + "\n", base_dir="/tmp")


def row(daemon: Daemon, queue: str) -> dict[str, Any]:
    return next(each for each in daemon.client.queues() if each["name"] == queue)


def node_of(daemon: Daemon, job: str) -> str:
    node: str = daemon.client.job(job)["placement"]["members"][0]["node"]
    return node


def test_a_queue_takes_back_what_it_lent_and_everybody_is_told(daemon: Daemon) -> None:
    submit(daemon, "own", "research", 4)
    submit(daemon, "guest", "research", 4)
    daemon.wait("own", "running")
    daemon.wait("guest", "running")
    research, product = row(daemon, "research"), row(daemon, "product")
    assert (research["used"]["gpus"], research["running"]) == (8, 2)
    assert (research["borrowed"], product["lent"]) == ({"gpus": 4}, {"gpus": 4})
    assert (research["weight"], product["limit"]) == (3, {"gpus": 6})
    (as_is,) = daemon.client.what_if("guest")["alternatives"]
    assert as_is["now"] and as_is["stopped"] == []
    submit(daemon, "owner", "product", 4)
    daemon.wait("owner", "running")
    assert row(daemon, "product")["lent"] == {}
    assert daemon.client.job("guest")["preempted_by"] == "owner"
    assert daemon.client.job("own")["phase"] == "running"
    assert "never" in daemon.client.why("guest")["refused"]


def test_a_job_for_a_queue_that_is_not_there_is_refused_at_once(daemon: Daemon) -> None:
    with pytest.raises(BadInput, match=r"^job\.yaml: job lost: queue: there is no queue `vision`"):
        submit(daemon, "lost", "vision", 1)
    assert daemon.client.jobs() == []


def test_jobs_of_a_queue_that_a_new_policy_lacks_are_told_of_at_the_start(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", CLUSTER, POLICY) as daemon:
        submit(daemon, "left", "research", 1)
        daemon.wait("left", "running")
        daemon.kill()
        daemon.policy_text = POLICY.replace("research", "vision")
        daemon.start()
        warning = "queue research is not in the policy, and has jobs that go on: left"
        assert warning in daemon.output.read_text()
        assert row(daemon, "research")["in_policy"] is False
        assert "in_policy" not in row(daemon, "vision")


def test_what_was_told_survives_kill_9(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        submit(daemon, "a", "x", 4, "time_limit: 10m")
        submit(daemon, "b", "y", 4, "time_limit: 20m")
        daemon.wait("a", "running")
        daemon.wait("b", "running")
        submit(daemon, "wide", "x", 4, "time_limit: 1h", members=2)
        submit(daemon, "held", "x", 1, "hold: true")
        told = daemon.client.when("wide")
        assert told["start"] is not None
        assert told["start"]["reserved"] and told["start"]["promised"]
        assert {end["job"] for end in told["hangs_on"]} == {"a", "b"}
        assert all(end["enforced"] for end in told["hangs_on"])
        assert told["start"]["starts_at"] == pytest.approx(time.time() + 1200, abs=60)
        listed = {each["job"]: each for each in daemon.client.jobs()}
        assert listed["wide"]["starts_at"] == told["start"]["starts_at"]
        assert listed["wide"]["promised"]
        assert daemon.client.why("wide")["start"] == told["start"]
        daemon.kill()
        daemon.start()
        assert daemon.client.when("wide")["start"] == told["start"]
        assert daemon.client.job("held")["held"]
        assert daemon.client.when("a")["start"] is None


def test_what_if_answers_from_the_live_state_and_changes_nothing(daemon: Daemon) -> None:
    submit(daemon, "a", "research", 4, "time_limit: 10m")
    daemon.wait("a", "running")
    submit(daemon, "wide", "research", 4, "time_limit: 1h", members=2)
    facts = list(daemon.client.facts())
    changes: list[dict[str, object]] = [
        {"members": 1},
        {"priority": "serving"},
        {"gpu": "A100-80GB", "members": 1},
        {"queue": "product"},
    ]
    answer = daemon.client.what_if("wide", changes)
    as_is, small, urgent, other, elsewhere = answer["alternatives"]
    assert not as_is["now"]
    assert small["now"] and small["place"]["nodes"] == ["n1"]
    assert small["cost_USD"] == pytest.approx(4 * 6.88)
    assert urgent["stopped"] == [] or urgent["stopped"][0]["job"] == "a"
    assert other["refused"]["never"]
    assert elsewhere["refused"]["gate"] == "LIMIT"
    assert list(daemon.client.facts()) == facts
    with pytest.raises(BadInput, match="no queue"):
        daemon.client.what_if("wide", [{"queue": "prodct"}])
    with pytest.raises(BadInput):
        daemon.client.what_if("wide", [{"colour": "red"}])
    with pytest.raises(BadInput):
        daemon.client.what_if("wide", [{"members": n} for n in range(1, 60)])
    with pytest.raises(NotFound):
        daemon.client.what_if("nobody")
    with pytest.raises(NotFound):
        daemon.client.when("nobody")


def test_moves_are_told_and_made_only_when_asked_for(daemon: Daemon) -> None:
    """Three gangs of 2 GPUs and the end of one leave two half-free nodes; `whole` needs a node of its own."""
    for name in ("s0", "s1", "s2"):
        submit(daemon, name, "research", 2)
        daemon.wait(name, "running")
    with pytest.raises(Conflict, match="moves are made for jobs that wait"):
        daemon.client.defragment("s0")
    daemon.client.cancel("s1")
    daemon.wait("s1")
    nodes = {name: node_of(daemon, name) for name in ("s0", "s2")}
    assert set(nodes.values()) == {"n0", "n1"}
    submit(daemon, "whole", "product", 4)
    plan = daemon.client.defragment("whole")["plan"]
    (move,) = plan["moves"]
    assert move["source"]["nodes"] == plan["place"]["nodes"] == [nodes[move["job"]]]
    assert 0 < plan["cost_gpu_s"] < plan["gain_gpu_s"]
    assert daemon.client.job("whole")["phase"] == "pending"
    assert daemon.client.defragment("whole", apply=True)["plan"]["moves"][0]["job"] == move["job"]
    daemon.wait("whole", "running")
    daemon.wait(move["job"], "running")
    assert [node_of(daemon, move["job"])] == move["target"]["nodes"]
    submit(daemon, "another", "product", 4)
    answer = daemon.client.defragment("another")
    assert answer["plan"] is None and "No moves let another start now" in answer["reason"]
    with pytest.raises(Conflict, match="No moves"):
        daemon.client.defragment("another", apply=True)


def test_a_policy_changed_over_a_restart_rules_from_then_on(daemon: Daemon) -> None:
    submit(daemon, "runs", "research", 4)
    daemon.wait("runs", "running")
    submit(daemon, "waits", "product", 4, members=2)
    told = daemon.client.when("waits")
    assert (
        told["start"] is None and "at most" in told["why"]
    )  # no guess where a quota stands before it
    daemon.stop()
    daemon.policy_text = POLICY.replace(", limit: {gpus: 6}", "").replace("research,", "science,")
    daemon.start(with_cluster=False)
    assert daemon.client.job("runs")["phase"] == "running"
    assert row(daemon, "research")["guarantee"] == {}
    assert row(daemon, "research")["used"]["gpus"] == 4
    assert row(daemon, "product")["limit"] == {}
    daemon.client.cancel("runs")
    daemon.wait("waits", "running")
