"""Real daemons take lemons out at their start, from a journal with weeks of small faults."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gantree.accounting.node_signs import DAY_S
from gantree.api.client.client import Client
from gantree.control.engine.controller import Controller
from gantree.formats import read_cluster
from gantree.journal.sqlite import SqliteJournal
from gantree.model.events import HealthObserved
from gantree.policy.rules import Policy
from support.daemon import Program
from support.pods import PodStage
from support.recording import RecordingCluster

CLUSTER = """
name: ten
tiers: [node]
nodes: [{names: "n[0-9]", machine: dgx-h100}]
"""
FAULTY_DAYS = {"n0": (3, 6, 9, 12, 15), "n1": (4, 8, 12), "n2": (10, 11)}
"""The days before today on which nodes had a fault that went away."""


class Journal:
    """A state directory with weeks of history, and the daemon there."""

    def __init__(self, state: Path) -> None:
        self.state, self.client = state, Client(state)
        state.mkdir()
        _seed(state, time.time())
        self.start("--cordon-lemons")

    def start(self, *words: str) -> None:
        told = (*words, "--log-level", "critical")
        self.program = Program("up", "--state", str(self.state), *told)
        self.program.says(" ready: ")

    def restart(self) -> None:
        self.stop()
        self.start("--cordon-lemons")

    def stop(self) -> None:
        self.program.stop()
        self.program.said.close()

    def lemon(self, node: str) -> str:
        """What is said of a node as a lemon; "" for none."""
        signs: list[Mapping[str, Any]] = self.client.node(node)["signs"]
        return next((each["reason"] for each in signs if each["source"] == "lemon"), "")

    def until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not done():
            assert time.monotonic() < deadline, self.client.nodes()
            time.sleep(0.05)


def _seed(state: Path, now: float) -> None:
    """Lead there through the days of FAULTY_DAYS, with a clock that is set to each."""
    moment = now - 20 * DAY_S
    controller = Controller(
        SqliteJournal(state), Policy(), RecordingCluster, site=read_cluster(CLUSTER, "c.yaml"),
        make_clock=lambda newest: lambda: moment,
    )  # fmt: skip
    controller.recover()
    faults = [(ago, node) for node, days in FAULTY_DAYS.items() for ago in days]
    for ago, node in sorted(faults, reverse=True):
        for second, reason in enumerate(("PSU 2 failed", "")):
            moment = now - ago * DAY_S + second
            told = f"{node}/{ago}/{second}"
            controller.inbox.append(
                [
                    HealthObserved(
                        id=told, observed_at=moment, node=node, source="bmc", reason=reason
                    )
                ]
            )
            controller.step()
    controller.close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "state")
    yield journal
    journal.stop()


def test_a_lemon_is_cordoned_and_an_operator_overrules_it_over_restarts(journal: Journal) -> None:
    journal.until(lambda: journal.client.node("n0")["state"] == "cordoned")
    assert journal.lemon("n0") == "signs on 5 of 28 days: 5 faults"
    assert {each["node"] for each in journal.client.nodes() if each["state"] == "cordoned"} == {
        "n0"
    }
    journal.client.uncordon("n0")
    journal.until(lambda: journal.client.node("n0")["state"] == "ready")
    journal.client.node_fault("n1", reason="PSU 2 failed", source="bmc")
    journal.client.node_fault("n1", source="bmc")
    journal.restart()
    journal.until(lambda: journal.lemon("n1"))
    assert journal.lemon("n1") == "signs on 4 of 28 days: 4 faults"
    assert journal.client.node("n1")["state"] == "cordoned"
    assert journal.client.node("n0")["state"] == "ready"


def test_a_lemon_of_a_kubernetes_cluster_is_cordoned(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    _seed(state, time.time())
    with PodStage(tmp_path / "unused") as stage:
        stage.nodes("n[0-9]")
        words = ("--api-server", stage.running.url, "--state", str(state), "--cordon-lemons")
        with Program("kubernetes", *words, "--log-level", "critical") as program:
            program.says(" ready: ")
            _until_cordoned(Client(state), "n0")
            assert program.stop() == 0


def _until_cordoned(client: Client, node: str) -> None:
    deadline = time.monotonic() + 120
    while client.node(node)["state"] != "cordoned":
        assert time.monotonic() < deadline, client.nodes()
        time.sleep(0.05)
