"""Clusters that nobody has to write: a virtual one, and one of this machine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.input import clusters
from gantree.formats import read_cluster
from gantree.model.errors import Unreachable
from gantree.telemetry.nvml.driver import Detected
from gantree.topology.hardware.catalog import machine

Gantree = Callable[..., Any]


def no_driver(name: str) -> Detected:
    raise Unreachable(f"no driver for {name}")


def one_dgx(name: str) -> Detected:
    return Detected(hostname="a-host", machine=replace(machine("dgx-a100"), name=name))


def test_a_virtual_cluster_is_so_many_machines_under_one_leaf() -> None:
    cluster = read_cluster(clusters.virtual_text("dgx-h100:12"), "test")
    assert [node.name for node in cluster.nodes] == [f"n{number}" for number in range(12)]
    assert {(node.machine, node.at) for node in cluster.nodes} == {("dgx-h100", ("l0",))}


def test_this_machine_becomes_a_cluster_of_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "detect", one_dgx)
    cluster = read_cluster(clusters.this_machine_text(), "test")
    (node,) = cluster.nodes
    assert (cluster.name, node.name) == ("a-host", "a-host")
    assert cluster.machines[node.machine].links == machine("dgx-a100").links


def test_this_machine_is_drawn(gantree: Gantree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "detect", one_dgx)
    answer = gantree("topo", "--detect", "--json").json()
    assert [(node["node"], node["gpus"]) for node in answer["nodes"]] == [("a-host", [None] * 8)]


def test_without_a_driver_up_offers_what_can_be_done(
    gantree: Gantree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(clusters, "detect", no_driver)
    outcome = gantree("up", "--state", tmp_path / "state")
    assert (outcome.code, outcome.out) == (1, "")
    assert "no driver for this-machine" in outcome.err
    assert "give a cluster file with --cluster" in outcome.err
    assert not (tmp_path / "state").exists()
    assert gantree("topo", "--detect").code == 1
