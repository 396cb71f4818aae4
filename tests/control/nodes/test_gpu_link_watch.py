"""Which links of GPUs are called degraded, and where the next gang then starts."""

from gantree.control.nodes.links.gpu_link_watch import GpuLinks
from gantree.control.nodes.links.link_reports import CLEAN_S
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.link_watches import events_of

WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH"
REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
HALF = ("gpu-pcie:n2/3", 0.5, "PCIe x8 instead of x16")


class Watched:
    """A cluster of four nodes with eight GPUs, and a watch that looks at the links of these."""

    def __init__(self) -> None:
        self.stage = Stage(cluster(leaves=1, nodes=4, nics=8))
        self.watch = GpuLinks()

    def look(
        self, after_s: float = 15.0, silent: tuple[str, ...] = (), **gpu_3: dict[str, float]
    ) -> list[tuple[str, float, str]]:
        """So long after the last time; gpu_3: what that GPU of a node tells beside and instead of the usual."""
        self.stage.now += after_s
        told = {
            node: {
                gpu: {WIDTH: 16.0} | (gpu_3.get(node, {}) if gpu == 3 else {}) for gpu in range(8)
            }
            for node in ("n0", "n1", "n2", "n3")
            if node not in silent
        }
        events = events_of(self.watch, told, self.stage.scheduler.ledger, self.stage.now)
        if events:
            self.stage.handle(events)
        return [(str(event.link), event.health, event.reason) for event in events]


def test_half_a_width_counts_at_once_and_a_whole_one_after_a_while() -> None:
    watched = Watched()
    assert watched.look() == []
    assert watched.look(n2={WIDTH: 8.0}) == [HALF]
    assert watched.look(n2={WIDTH: 8.0}) == []
    assert watched.look() == []
    assert watched.look(CLEAN_S - 1) == []
    assert watched.look(1) == [("gpu-pcie:n2/3", 1.0, "")]


def test_a_port_that_is_better_for_a_moment_gets_no_better_than_its_worst() -> None:
    watched = Watched()
    watched.look(n2={WIDTH: 4.0})
    watched.look()
    watched.look(n2={WIDTH: 8.0})
    assert watched.look(CLEAN_S) == [HALF]
    assert watched.look(CLEAN_S) == []
    assert watched.look(CLEAN_S) == [("gpu-pcie:n2/3", 1.0, "")]


def test_a_node_that_vanishes_and_gpus_that_are_not_there_change_nothing() -> None:
    watched = Watched()
    watched.look(n2={WIDTH: 8.0})
    assert watched.look(CLEAN_S, silent=("n2",)) == []
    assert watched.look(CLEAN_S, silent=("n0", "n1", "n2", "n3")) == []
    told = {"n9": {0: {WIDTH: 1.0}}, "n0": {64: {WIDTH: 1.0}}}
    assert events_of(watched.watch, told, watched.stage.scheduler.ledger, 1e6) == []
    assert list(map(str, watched.stage.scheduler.ledger.site.links)) == ["gpu-pcie:n2/3"]


def test_a_gpu_that_lost_its_peers_is_found_where_the_others_have_theirs() -> None:
    p2p = "DCGM_EXP_P2P_STATUS"
    peers = {gpu: {f"{p2p}/{other}": 0.0 for other in range(8) if other != gpu} for gpu in range(8)}
    lost = peers | {5: dict.fromkeys(peers[5], 4.0)}
    stage = Stage(cluster(leaves=1, nodes=1, nics=8))
    ledger = stage.scheduler.ledger
    found = events_of(GpuLinks(), {"n0": lost}, ledger, 15.0)
    assert [(str(each.link), each.health) for each in found] == [("gpu-nvlink:n0/5", 0.0)]
    none = {gpu: dict.fromkeys(told, 4.0) for gpu, told in peers.items()}
    assert events_of(GpuLinks(), {"n0": none}, ledger, 15.0) == []


def test_a_clock_that_stands_still_is_no_rate() -> None:
    watched = Watched()
    for replays in range(0, 10_000, 1000):
        assert watched.look(0.0, n2={REPLAYS: float(replays)}) == []


def test_a_gang_of_half_a_node_leaves_the_worn_gpu_alone_and_a_whole_one_takes_another_node() -> (
    None
):
    watched = Watched()
    watched.look(n0={WIDTH: 8.0}, n1={WIDTH: 8.0}, n2={WIDTH: 8.0})
    stage = watched.stage
    stage.submit(job("whole", gpus=8))
    stage.submit(job("half", gpus=4))
    assert stage.nodes("whole") == ["n3"]
    half = stage.state("half").placement
    assert half is not None and 3 not in half.members[0].gpus
