"""Which NICs are called degraded, which whole again, and that silence says nothing."""

from dataclasses import replace

from gantree.control.nodes.links.link_reports import CLEAN_S
from gantree.control.nodes.links.nic_watch import SPARED, TOO_MANY, NicWatch
from gantree.model.cluster import LinkId
from gantree.model.events import LinkRestoreRequested
from gantree.telemetry.infiniband import PortReading
from gantree.testing.builders import cluster
from gantree.testing.stage import Stage
from support.link_watches import events_of

NICS = [f"mlx5_{number}" for number in range(8)]
HALF = "negotiated 200 Gb/s instead of 400 Gb/s"


class Watched:
    """A cluster of ten nodes with eight NICs, and a watch that looks at it."""

    def __init__(self, nodes: int = 10) -> None:
        self.stage = Stage(cluster(leaves=1, nodes=nodes, nics=8))
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.watch = NicWatch()

    def look(
        self, after_s: float = 15.0, silent: tuple[str, ...] = (), **mlx5_1: PortReading
    ) -> list[tuple[str, float, str]]:
        """So long after the last time; mlx5_1: the reading of that NIC of each node that is not as usual."""
        self.stage.now += after_s
        usual = PortReading(50.0, True)
        told = {
            node: dict.fromkeys(NICS, usual) | {"mlx5_1": mlx5_1.get(node, usual)}
            for node in self.nodes
            if node not in silent
        }
        ledger = self.stage.scheduler.ledger
        events = events_of(self.watch, told, ledger, self.stage.now)
        if events:
            self.stage.handle(events)
        return [(str(event.link), event.health, event.reason) for event in events]


def at(rate_GBps: float, *, up: bool = True) -> PortReading:
    return PortReading(rate_GBps, up)


def test_half_a_rate_counts_at_once_and_a_whole_one_after_a_while() -> None:
    watched = Watched()
    assert watched.look() == []
    assert watched.look(n2=at(25.0)) == [("nic:n2/mlx5_1", 0.5, HALF)]
    assert watched.look(n2=at(25.0)) == []
    assert watched.look() == []
    assert watched.look(CLEAN_S - 1) == []
    assert watched.look(1) == [("nic:n2/mlx5_1", 1.0, "")]
    assert watched.stage.scheduler.ledger.site.links == {}


def test_a_port_that_comes_and_goes_stays_degraded() -> None:
    watched = Watched()
    watched.look(n2=at(25.0))
    for _ in range(10):
        assert watched.look(CLEAN_S - 20) == []
        assert watched.look(n2=at(25.0)) == []


def test_a_lower_rate_than_before_is_told_and_a_port_that_is_down_carries_nothing() -> None:
    watched = Watched()
    watched.look(n2=at(25.0))
    quarter = "negotiated 100 Gb/s instead of 400 Gb/s"
    assert watched.look(n2=at(12.5)) == [("nic:n2/mlx5_1", 0.25, quarter)]
    assert watched.look(n2=at(50.0, up=False)) == [("nic:n2/mlx5_1", 0.0, "its port is down")]


def test_a_node_that_is_silent_changes_nothing() -> None:
    watched = Watched()
    watched.look(n2=at(25.0))
    assert watched.look(2 * CLEAN_S, silent=("n2",)) == []
    assert watched.look(2 * CLEAN_S, silent=tuple(watched.nodes)) == []
    assert list(map(str, watched.stage.scheduler.ledger.site.links)) == ["nic:n2/mlx5_1"]


def test_a_rounded_rate_is_whole() -> None:
    assert Watched().look(n2=at(49.0)) == []


def test_beyond_a_fifth_ports_that_are_down_stay_in_use_and_say_so() -> None:
    """Two nodes: a fifth of sixteen NICs are three."""
    watched = Watched(nodes=2)
    ledger, watched.stage.now = watched.stage.scheduler.ledger, 1.0
    told = {"n0": dict.fromkeys(NICS, at(50.0, up=False)), "n1": dict.fromkeys(NICS, at(50.0))}
    events = events_of(watched.watch, told, ledger, 1.0)
    assert [event.health for event in events] == [0.0] * 3 + [SPARED] * 5
    assert events[3].reason == f"its port is down; {TOO_MANY}"
    watched.stage.handle(events)
    assert events_of(watched.watch, told, ledger, 2.0) == [], "the same again is nothing new"


def test_a_rate_that_the_file_gives_too_high_shows_on_every_nic() -> None:
    """So it is found; no gang is kept from starting by it."""
    site = cluster(leaves=1, nodes=2, nics=8)
    (machine,) = site.machines.values()
    nics = tuple(replace(nic, bandwidth_GBps=50.0) for nic in machine.nics)
    site = replace(site, machines={machine.name: replace(machine, nics=nics)})
    told = {node: dict.fromkeys(NICS, at(25.0)) for node in ("n0", "n1")}
    events = events_of(NicWatch(), told, Stage(site).scheduler.ledger, 1.0)
    assert [(event.health, event.reason) for event in events] == [(0.5, HALF)] * 16


def test_what_an_operator_overruled_is_told_again_only_if_it_changes() -> None:
    watched = Watched()
    watched.look(n2=at(25.0))
    watched.stage.tell(LinkRestoreRequested, link=LinkId("nic", "n2/mlx5_1"))
    assert watched.look(n2=at(25.0)) == []
    assert [health for _, health, _ in watched.look(n2=at(12.5))] == [0.25]


def test_without_a_rate_in_the_model_the_median_of_its_like_is_the_whole_one() -> None:
    watched = Watched()
    fabric = watched.stage.scheduler.ledger.rooms().fabric
    assert fabric.machines[0].nics[0].bandwidth_GBps is None
    assert [link for link, _, _ in watched.look(n2=at(25.0))] == ["nic:n2/mlx5_1"]


def test_devices_and_nodes_that_the_cluster_has_not_are_passed_over() -> None:
    watched = Watched()
    told = {"n99": {"mlx5_0": at(1.0)}, "n0": {"eth0": at(1.0)}}
    assert events_of(watched.watch, told, watched.stage.scheduler.ledger, 1.0) == []


def test_errors_and_a_lower_rate_are_one_report_with_both_reasons() -> None:
    watched = Watched()
    symbols = "node_infiniband_symbol_error_total"
    readings = [PortReading(25.0, True, {symbols: 300.0 * step}) for step in range(6)]
    told = [watched.look(n2=reading) for reading in readings]
    assert told[0] == [("nic:n2/mlx5_1", 0.5, HALF)]
    assert watched.look(n2=PortReading(12.5, True, {symbols: 1800.0})) == [
        ("nic:n2/mlx5_1", 0.25, "negotiated 100 Gb/s instead of 400 Gb/s, symbol errors")
    ]
