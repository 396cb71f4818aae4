"""Cables that are out lower the share of a domain's up-links, as UFM and ibnetdiscover tell of their ports."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.control.nodes.links.link_reports import CLEAN_S
from gantree.control.nodes.links.uplink_watch import UplinkWatch
from gantree.model.cluster import Cluster, Link, Node
from gantree.model.errors import GantreeError
from gantree.telemetry.fabric_ports import Uplinks, uplinks_in
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.link_watches import events_of
from support.ufm import Json, fabric

PRINT = Path(__file__).parents[4] / "shared/data/topology/ibnetdiscover/topograph-example.txt"
UNITS, HOSTS = 3, 2


def site(uplink_GBps: float | None = None) -> Cluster:
    """Leaves l0, l1, l2 of two hosts with the names that UFM has of them; the leaves are called otherwise there."""
    (model,) = cluster(nics=2).machines.values()
    nodes = tuple(
        Node(f"u{unit}n{host}", model.name, ("s0", f"l{unit}"))
        for unit in range(UNITS)
        for host in range(HOSTS)
    )
    links = {"spine": Link(25, 12), "leaf": Link(50, 6, uplink_GBps)}
    return Cluster("test", ("spine", "leaf", "node"), {model.name: model}, nodes, links)


class Watched:
    """A fabric of four up-links of 50 GB/s a leaf domain, and a watch that reads UFM's ports."""

    def __init__(self, uplink_GBps: float | None = None) -> None:
        self.stage = Stage(site(uplink_GBps))
        self.watch = UplinkWatch()

    def look(self, out: int = 0, after_s: float = 15.0) -> list[tuple[str, float, str]]:
        """So long after the last time, with so many cables of leaf-0-0 and leaf-1-0 out."""
        self.stage.now += after_s
        told = uplinks_in(json.dumps(ports(out)))
        events = events_of(self.watch, told, self.stage.scheduler.ledger, self.stage.now)
        if events:
            self.stage.handle(events)
        return [(str(event.link), event.health, event.reason) for event in events]


def ports(out: int = 0) -> list[Json]:
    """The ports of the fabric, of which some up-links of the first unit are not active."""
    _, found, _ = fabric(UNITS, 2, HOSTS)
    of_unit = [
        each
        for each in found
        if each["system_name"] in ("leaf-0-0", "leaf-1-0") and "spine" in each["peer_node_name"]
    ]
    for each in of_unit[:out]:
        each.update(logical_state="Down", physical_state="Polling")
    return found


def test_domains_are_told_by_their_hosts_and_carry_what_their_cables_do() -> None:
    told = uplinks_in(json.dumps(ports(1)))
    assert told["u0n0"] == {0: Uplinks("spine-x/leaf-x-0", 150.0), 1: Uplinks("spine-x", 0.0)}
    assert told["u1n1"][0] == Uplinks("spine-x/leaf-x-1", 200.0)


@pytest.mark.parametrize("uplink_GBps", [None, 200.0])
def test_a_cable_that_is_out_counts_at_once_and_its_return_after_a_while(
    uplink_GBps: float | None,
) -> None:
    watched = Watched(uplink_GBps)
    assert watched.look() == []
    three = ("leaf:s0/l0", 0.75, "up-links carry 150 of 200 GB/s")
    assert watched.look(out=1) == [three]
    assert watched.look(out=1) == []
    assert watched.look() == []
    assert watched.look(after_s=CLEAN_S) == [("leaf:s0/l0", 1.0, "")]


def test_a_daemon_that_starts_while_cables_are_out_finds_it_by_the_peers() -> None:
    assert Watched().look(out=2) == [("leaf:s0/l0", 0.5, "up-links carry 100 of 200 GB/s")]


def test_a_domain_without_up_links_carries_nothing_that_leaves_it_and_is_used_inside() -> None:
    watched = Watched()
    assert watched.look() == []
    assert [(link, health) for link, health, _ in watched.look(out=4)] == [("leaf:s0/l0", 0.0)]
    watched.stage.submit(job("a", 2, 8), job("b", 4, 8))
    assert watched.stage.nodes("b") == ["u1n0", "u1n1", "u2n0", "u2n1"]
    assert watched.stage.nodes("a") == ["u0n0", "u0n1"]


def test_two_units_that_are_one_leaf_in_the_file_have_their_up_links_together() -> None:
    whole = site(400.0)
    nodes = tuple(replace(node, at=("s0", "l" + "001"[int(node.name[1])])) for node in whole.nodes)
    stage = Stage(replace(whole, nodes=nodes))
    found = events_of(UplinkWatch(), uplinks_in(json.dumps(ports(2))), stage.scheduler.ledger, 15.0)
    told = [(str(each.link), each.health, each.reason) for each in found]
    assert told == [
        ("leaf:s0/l0", 0.75, "up-links carry 300 of 400 GB/s"),
        ("leaf:s0/l1", 0.5, "up-links carry 200 of 400 GB/s"),
    ]


def test_a_node_that_vanishes_from_the_fabric_changes_nothing() -> None:
    watched = Watched()
    watched.look()
    told = uplinks_in(json.dumps(ports()))
    del told["u0n1"]
    assert events_of(watched.watch, told, watched.stage.scheduler.ledger, 30.0) == []
    assert events_of(watched.watch, {}, watched.stage.scheduler.ledger, 45.0) == []


@pytest.mark.parametrize("text", ["", "[", '[{"name": "x"}]', json.dumps(ports())[:-40], "hello\n"])
def test_half_an_answer_and_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(GantreeError):
        uplinks_in(text)


@pytest.mark.skipif(not PRINT.exists(), reason="needs ../shared/data/topology")
def test_the_print_of_a_real_fabric_is_read() -> None:
    told = uplinks_in(PRINT.read_text())
    assert len(told) > 100
    assert sum(of_tier[0].GBps > 0 for of_tier in told.values()) > 100
    lines = PRINT.read_text().splitlines(keepends=True)
    with pytest.raises(GantreeError, match="the print was cut"):
        uplinks_in("".join(lines[: len(lines) // 2]))


def test_one_page_of_several_is_refused() -> None:
    with pytest.raises(GantreeError, match="pages that were not given"):
        uplinks_in(json.dumps({"data": ports(), "filtered_resources": 999}))
