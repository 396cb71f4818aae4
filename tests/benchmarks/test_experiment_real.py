"""The reality check on one machine: gantree reads its files, tables name what is void, and it tells what it lacks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gantree.formats import read_cluster, read_job
from gantree.model.jobs import Job

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from experiment_real import __main__ as command  # found by then
from experiment_real import network, page
from experiment_real.run import Measured, tables
from experiment_real.scenarios import SCENARIOS, Scenario
from experiment_real.site import cluster, job


def jobs_of(scenario: Scenario) -> list[Job]:
    texts = (
        job(f"j{n}", each.members, ["true"], each.pinned) for n, each in enumerate(scenario.jobs)
    )
    return [spec for text in texts for spec in read_job(text, "job.yaml")]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.key)
def test_the_files_of_a_scenario_are_read_and_its_jobs_fit_beside_each_other(
    scenario: Scenario,
) -> None:
    site = read_cluster(cluster(scenario.busy, load=0.5), "cluster.yaml")
    assert [node.launch for node in site.nodes[:1]] == [("ip", "netns", "exec", network.node(0))]
    assert len({node.address for node in site.nodes}) == len(site.nodes) == 8
    free = 8 - len(scenario.busy)
    assert sum(spec.gpus for spec in jobs_of(scenario)) <= free


def measured(step_s: float, predicted_s: float, idle: float, name: str = "gantree") -> Measured:
    return Measured(Scenario("placement", name, ()), step_s, predicted_s, ("0 1",), idle)


def test_a_table_compares_with_the_first_of_a_group_and_marks_what_is_void() -> None:
    found = [measured(0.5, 0.25, 0.5), measured(2.0, 2.5, 0.1, "random")]
    rows = list(tables(found, 0.2))[2:]
    assert rows == [
        "| placement | gantree | 0 1 | 0.50 s | 1.0x | 0.25 s | 2.0x | 50% |",
        "| placement | random | 0 1 | 2.00 s | 4.0x | 2.50 s | 1.2x | 10% (void) |",
    ]
    assert "predictions are within 2.0x in 1 valid scenarios of 2" in page.result(found, 0.2)
    assert "no scenario is valid" in page.result(found[1:], 0.2)


def test_it_says_what_is_missing_and_ends_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["experiment_real"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    command.main()
    assert capsys.readouterr().out == "Skipped: network namespaces need root.\n"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program: None)
    command.main()
    assert capsys.readouterr().out == "Skipped: there is no ip (package iproute2).\n"


def test_a_network_that_cannot_be_made_is_removed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, ...]] = []

    def refuse(*words: str) -> None:
        said.append(words)
        raise subprocess.CalledProcessError(2, words, stderr="Operation not permitted\n")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program: program)
    monkeypatch.setattr(network, "_run", refuse)
    monkeypatch.setattr(network, "remove", lambda: said.append(("removed",)))
    told = command.missing(sys.executable)
    assert told == "the network cannot be made: ip netns add gtr-switches: Operation not permitted"
    assert said[-1] == ("removed",)
