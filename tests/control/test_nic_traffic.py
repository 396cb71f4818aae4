"""What NICs sent, joined with who holds them."""

from dataclasses import replace

from gantree.control.nodes.gpu_use_watch import GpuUseWatch
from gantree.control.nodes.nic_traffic import MOST_S, NicTraffic
from gantree.model.events import GpuUseObserved
from gantree.telemetry.infiniband import PortReading
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

GBPS = 50.0
BUSY = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.5, "DCGM_FI_PROF_DRAM_ACTIVE": 0.2}


class Site:
    """Two nodes of 8 GPUs and 8 NICs; `a` has all of n0 and asked for no NIC, `b` half of n1 with NICs."""

    def __init__(self) -> None:
        self.stage = Stage(cluster(1, 1, 2, 8, 8))
        self.stage.submit(job("a", 1, 8))
        (role,) = job("b", 1, 4).roles
        half = replace(role, shape=replace(role.shape, nics=2))
        self.stage.submit(replace(job("b"), roles=(half,)))
        self.stage.started("a")
        self.stage.started("b")
        self.stage.now += 600.0
        self.traffic, self.sent = NicTraffic(), 0.0
        fabric = self.stage.scheduler.ledger.fabric
        assert fabric is not None
        self.fabric = fabric
        self.names = [nic.name for nic in fabric.machine_of_node(0).nics]

    def read(self, GB: float, seconds: float = 15.0) -> None:
        """Each NIC has sent so much more."""
        self.stage.now, self.sent = self.stage.now + seconds, self.sent + GB * 1e9
        readings = dict.fromkeys(self.names, PortReading(GBPS, True, sent_bytes=self.sent))
        told = {"n0": readings, "n1": readings, "elsewhere": readings}
        judged = self.traffic.judge(told, self.fabric, self.stage.now)
        self.traffic.events(judged, self.stage.scheduler.ledger, self.stage.now, 1)

    def taken(self) -> dict[str, float]:
        return {name: self.traffic.taken((name, 1)) for name in ("a", "b")}


def test_a_gang_sends_by_its_nics_or_by_all_of_its_nodes() -> None:
    site = Site()
    assert len(site.names) == 8
    site.read(100.0)
    assert site.taken() == {"a": 0.0, "b": 0.0}, "of one reading nothing follows"
    site.read(3.0)
    site.read(2.0)
    assert site.taken() == {"a": 8 * 5.0, "b": 2 * 5.0}
    assert site.taken() == {"a": 0.0, "b": 0.0}


def test_garbage_gaps_and_counters_that_began_anew_tell_nothing() -> None:
    site = Site()
    for GB, seconds in (
        (1.0, 15.0),
        (1.0, MOST_S + 1),
        (-1.5, 15.0),
        (GBPS * 20, 15.0),
        (0.0, 0.0),
    ):
        site.read(GB, seconds)
    assert site.taken() == {"a": 0.0, "b": 0.0}


def test_of_a_gang_that_has_just_begun_its_part_of_the_time_counts() -> None:
    site = Site()
    site.read(0.0)
    site.stage.ended("a")
    site.stage.submit(job("c", 1, 8))
    site.stage.now += 10.0
    site.stage.started("c")
    site.read(3.0, 5.0)
    assert site.traffic.taken(("c", 1)) == 8 * 3.0 * 5 / 15
    assert site.traffic.taken(("a", 1)) == 0.0


def test_it_is_reported_with_what_the_gpus_did_and_is_forgotten_where_nobody_looks() -> None:
    site = Site()
    watch = GpuUseWatch(nics=site.traffic)
    told = {"n0": dict.fromkeys(range(8), BUSY)}
    ledger, reports = site.stage.scheduler.ledger, list[GpuUseObserved]()
    for _ in range(22):
        site.read(1.5)
        judged = watch.judge(told, site.fabric, site.stage.now)
        reports += watch.events(judged, ledger, site.stage.now, 1)
    (report,) = reports
    assert [(used.job, used.drawn.nic_GB) for used in report.gangs] == [("a", 8 * 1.5 * 20)]
    assert site.taken()["b"] == 2 * 1.5, "what nobody takes is not kept"
