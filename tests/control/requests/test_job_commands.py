"""Suspend, scale, another priority, nodes by hand: what the controller takes and what it refuses, in words."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.views import queries
from gantree.control.engine.controller import Controller
from gantree.core.explain.explain import why
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import MARKET_LABEL
from gantree.model.errors import BadInput, Conflict, NotFound
from gantree.model.events import GangEnded, GangStarted
from gantree.model.jobs import Elastic, Job
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.recording import RecordingCluster

SITE = cluster(leaves=1, nodes=2)


def start(place: Path) -> Controller:
    controller = Controller(SqliteJournal(place), Policy(), RecordingCluster, site=SITE)
    controller.recover()
    return controller


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = start(tmp_path)
    yield controller
    controller.close()


def run(controller: Controller, spec: Job) -> None:
    controller.submit([spec], "/", {})
    controller.step()
    event = GangStarted(id=f"{spec.name}/on", observed_at=0.0, job=spec.name, attempt=1)
    controller.inbox.append([event])
    controller.step()
    assert controller.ledger.jobs[spec.name].phase is Phase.RUNNING


def phase(controller: Controller, name: str) -> str:
    return str(controller.ledger.jobs[name].phase)


def end(controller: Controller, name: str) -> None:
    event = GangEnded(id=f"{name}/off", observed_at=0.0, job=name, attempt=1, exit_code=143)
    controller.inbox.append([event])
    controller.step()


def test_a_running_job_is_suspended_resumed_and_suspended_again(controller: Controller) -> None:
    run(controller, job("a", 1, 8))
    for _ in range(2):
        assert controller.jobs.suspend("a") == "a"
        controller.step()
    assert phase(controller, "a") == "stopping"
    end(controller, "a")
    assert phase(controller, "a") == "pending"
    controller.jobs.release("a")
    controller.step()
    assert controller.ledger.jobs["a"].phase is Phase.STARTING


def test_what_is_over_or_about_to_be_cannot_be_suspended(controller: Controller) -> None:
    run(controller, job("a", 1, 8))
    controller.jobs.cancel("a")
    controller.step()
    with pytest.raises(Conflict, match="stopped for good: cancelled"):
        controller.jobs.suspend("a")
    end(controller, "a")
    with pytest.raises(Conflict, match="has ended"):
        controller.jobs.suspend("a")
    with pytest.raises(NotFound):
        controller.jobs.suspend("nobody")


def test_sizes_that_cannot_be_are_refused_with_those_that_can(controller: Controller) -> None:
    run(controller, replace(job("a", 1, 8), elastic=Elastic(1, 4)))
    run(controller, job("b", 1, 8))
    with pytest.raises(BadInput, match="found 9; allowed for a: 1, 2, 3, 4"):
        controller.jobs.scale("a", 9)
    with pytest.raises(Conflict, match="b is not elastic"):
        controller.jobs.scale("b", 2)
    with pytest.raises(Conflict, match="cannot have 2 members now: no room beside it"):
        controller.jobs.scale("a", 2)
    controller.jobs.scale("a", 1)
    controller.jobs.suspend("a")
    controller.step()
    with pytest.raises(Conflict, match="ask again when it waits or runs"):
        controller.jobs.scale("a", 2)
    end(controller, "a")
    controller.jobs.scale("a", 2)
    controller.step()
    assert controller.ledger.jobs["a"].spec.members == 2


def test_a_priority_is_a_class_of_the_policy_or_a_number(controller: Controller) -> None:
    run(controller, job("a"))
    for asked, number in (("production", 300), (123, 123)):
        controller.jobs.reprioritise("a", asked)
        controller.step()
        assert controller.ledger.jobs["a"].priority == number
    with pytest.raises(BadInput, match="no-such"):
        controller.jobs.reprioritise("a", "no-such")
    with pytest.raises(BadInput, match="a number up to"):
        controller.jobs.reprioritise("a", 10**12)


def test_what_operators_say_of_nodes_survives_a_restart(tmp_path: Path) -> None:
    controller = start(tmp_path)
    controller.nodes.cordon("n0", "fan")
    controller.nodes.drain("n1", 3600.0)
    controller.nodes.label("n0", {"pool": "x"})
    controller.step()
    controller.close()
    again = start(tmp_path)
    assert {node: (c.reason, c.drain) for node, c in again.ledger.site.cordoned.items()} == {
        "n0": ("fan", False),
        "n1": ("", True),
    }
    assert again.ledger.site.labels == {"n0": {"pool": "x"}}
    assert len(again.journal.read_inbox(0, 100)) == 4  # the site is not observed again
    again.submit([job("a")], "/", {})
    again.step()
    assert "no node may be used" in why(again.ledger, "a", again.clock()).sentence
    again.nodes.uncordon("n0")
    again.step()
    assert again.ledger.jobs["a"].phase is Phase.STARTING
    again.close()


def test_a_cordon_on_a_node_that_is_drained_does_not_end_that(controller: Controller) -> None:
    controller.nodes.drain("n0", None, "fan")
    controller.step()
    controller.nodes.cordon("n0")
    controller.step()
    cordon = controller.ledger.site.cordoned["n0"]
    assert (cordon.drain, cordon.reason) == (True, "fan")


def test_what_cannot_be_said_of_a_node_is_refused(controller: Controller) -> None:
    nodes = controller.nodes
    with pytest.raises(NotFound, match="there is no node n7"):
        nodes.cordon("n7")
    with pytest.raises(NotFound):
        nodes.uncordon("n7")
    with pytest.raises(BadInput, match="reason"):
        nodes.cordon("n0", "two\nlines")
    with pytest.raises(BadInput, match="deadline"):
        nodes.drain("n0", -1.0)
    with pytest.raises(BadInput, match="allowed: letters"):
        nodes.label("n0", {"bad key": "x"})
    with pytest.raises(BadInput, match="cluster file"):
        nodes.label("n0", {MARKET_LABEL: "x"})
    with pytest.raises(BadInput, match="found none"):
        nodes.label("n0", {})
    with pytest.raises(BadInput, match="found no value"):
        nodes.label("n0", {"pool": ""})
    assert nodes.uncordon("n0") == "n0"


def test_the_output_of_all_ranks_is_there_after_a_gang_was_made_smaller(
    controller: Controller,
) -> None:
    run(controller, replace(job("a", 2, 8), elastic=Elastic(1, 2)))
    controller.jobs.scale("a", 1)
    controller.step()
    assert controller.ledger.jobs["a"].spec.processes == 1
    root = Caller("root", EVERYTHING, "socket")
    assert queries.log_of(controller.read_view(), root, "a") == ("a", 2, 1)
