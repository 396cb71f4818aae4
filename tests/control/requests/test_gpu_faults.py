"""Faults of GPUs that are reported as they happen: what is on record of a node then, and how many nodes go out."""

from gantree.control.nodes.health_watch import HealthWatch
from gantree.control.requests.gpu_faults import GpuFaults
from gantree.core.ledger.site import Illness
from gantree.model.events import Event, UncordonRequested
from gantree.model.phases import Phase
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

OFF_THE_BUS = "XID 79 (GPU has fallen off the bus)"


class Reported:
    """A cluster whose scheduler hears each report at once."""

    def __init__(self, nodes: int = 10) -> None:
        self.stage = Stage(cluster(leaves=1, nodes=nodes))
        self._ids = 0
        self.faults = GpuFaults(
            lambda: self.stage.scheduler.ledger, self._append, self._name, lambda: self.stage.now
        )

    def _append(self, event: Event) -> None:
        self.stage.handle([event])

    def _name(self, node: str, what: str) -> str:
        self._ids += 1
        return f"{what}/{node}/{self._ids}"

    def of(self, node: str, source: str = "operator") -> Illness:
        return self.stage.scheduler.ledger.site.unwell[node][source]

    def cordoned(self) -> list[str]:
        return list(self.stage.scheduler.ledger.site.cordoned)


def test_faults_of_a_node_add_up_and_so_do_its_lost_gpus() -> None:
    reported = Reported()
    assert reported.faults.report("n0", gpu=3, xid=79) == f"GPU 3: {OFF_THE_BUS}"
    assert reported.of("n0").lost_gpus == (3,)
    reported.faults.report("n0", gpu=5, xid=48)
    assert reported.of("n0").reason == f"GPU 3: {OFF_THE_BUS}; GPU 5: XID 48 (double-bit ECC error)"
    assert reported.of("n0").lost_gpus == (3,)
    reported.faults.report("n0", gpu=1, xid=95)
    assert reported.of("n0").lost_gpus == (1, 3)


def test_an_xid_of_a_program_is_no_fault() -> None:
    reported = Reported()
    assert reported.faults.report("n0", gpu=3, xid=13) == ""
    assert reported.cordoned() == []


def test_without_an_index_the_address_names_the_gpu() -> None:
    reported = Reported()
    reported.faults.report("n0", xid=79, address="0000:3b:00", source="kernel-log")
    found = reported.of("n0", "kernel-log")
    assert (found.reason, found.lost_gpus) == (f"GPU 0000:3b:00: {OFF_THE_BUS}", ())


def test_nodes_that_any_source_took_out_count_and_beyond_a_fifth_nobody_is_stopped() -> None:
    reported = Reported(nodes=10)
    reported.stage.submit(job("a", 1, 8))
    reported.stage.started("a")
    (node,) = reported.stage.nodes("a")
    others = [each for each in (f"n{number}" for number in range(10)) if each != node]
    watch = HealthWatch()
    signs = {gpu: {"DCGM_FI_DEV_XID_ERRORS": 48.0} for gpu in range(8)}
    ledger = reported.stage.scheduler.ledger
    judged = watch.judge({others[0]: signs}, ledger.fabric, 0.0)
    reported.stage.handle(watch.events(judged, ledger, 0.0, 1))
    reported.faults.report(others[1], gpu=0, xid=79)
    reported.faults.report(node, gpu=0, xid=79)
    assert reported.of(node).kept == "2 nodes are out already, the limit is a fifth of 10 nodes"
    assert reported.stage.phase("a") is Phase.RUNNING
    reported.faults.report(others[1], gpu=1, xid=79)  # one that is out may show more
    assert reported.of(others[1]).kept == ""


def test_a_fault_after_an_operator_overruled_the_same_one_counts() -> None:
    reported = Reported()
    reported.faults.report("n0", gpu=3, xid=79)
    reported.stage.tell(UncordonRequested, node="n0")
    assert reported.cordoned() == []
    reported.faults.report("n0", gpu=3, xid=79)
    assert reported.cordoned() == ["n0"]


def test_a_source_says_that_a_node_is_well_for_itself_alone() -> None:
    reported = Reported()
    reported.faults.report("n0", gpu=3, xid=79, source="logs")
    reported.faults.report("n0", gpu=3, xid=79)
    reported.faults.clear("n0")
    assert reported.cordoned() == ["n0"]
    reported.faults.clear("n0", "logs")
    assert reported.cordoned() == []
