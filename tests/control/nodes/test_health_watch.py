"""Which nodes are called unwell, which well again, and that silence says nothing."""

import logging

import pytest

from gantree.control.nodes.health_watch import CLEAN_S, HealthWatch
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.events import HealthObserved, UncordonRequested
from gantree.telemetry.dcgm.health import Signs
from gantree.testing.builders import cluster
from gantree.testing.stage import Stage

XID = "DCGM_FI_DEV_XID_ERRORS"
BROKEN: Signs = {XID: 79.0}
HARMLESS: Signs = {XID: 45.0}
CLEAN: Signs = {XID: 0.0}
OFF_THE_BUS = "GPU 3: XID 79 (GPU has fallen off the bus)"


class Watched:
    """A cluster of nodes with eight GPUs, and a watch that looks at it."""

    def __init__(self, nodes: int = 10) -> None:
        self.stage, self.watch = Stage(cluster(leaves=1, nodes=nodes)), HealthWatch()

    def look(self, after_s: float = 15.0, **gpu_3: Signs | None) -> list[tuple[str, str]]:
        """So long after the last time; gpu_3: the signs of that GPU of each node, None: it is not told of."""
        self.stage.now += after_s
        told = {
            node: {gpu: CLEAN for gpu in range(8) if gpu != 3} | ({3: signs} if signs else {})
            for node, signs in gpu_3.items()
        }
        ledger = self.stage.scheduler.ledger
        judged = self.watch.judge(told, ledger.fabric, self.stage.now)
        events = self.watch.events(judged, ledger, self.stage.now, 1)
        if events:
            self.stage.handle(events)
        return [(event.node, event.reason) for event in events]

    def cordoned(self) -> list[str]:
        return list(self.stage.scheduler.ledger.site.cordoned)


def test_a_node_is_unwell_at_once_and_well_after_a_while_clean() -> None:
    watched = Watched()
    assert watched.look(n0=BROKEN, n1=CLEAN) == [("n0", OFF_THE_BUS)]
    assert watched.look(n0=BROKEN, n1=CLEAN) == []
    assert watched.look(n0=CLEAN) == []
    assert watched.look(CLEAN_S - 1, n0=CLEAN) == []
    assert watched.cordoned() == ["n0"]
    assert watched.look(1, n0=CLEAN) == [("n0", "")]
    assert watched.cordoned() == []


@pytest.mark.parametrize("not_clean", [HARMLESS, None, BROKEN], ids=["xid", "gone", "broken"])
def test_what_is_not_clean_begins_the_while_anew(not_clean: Signs | None) -> None:
    watched = Watched()
    watched.look(n0=BROKEN)
    watched.look(n0=CLEAN)
    assert watched.look(CLEAN_S, n0=not_clean) == []
    assert watched.look(n0=CLEAN) == []
    assert watched.look(CLEAN_S, n0=CLEAN) == [("n0", "")]


def test_who_does_not_answer_changes_nothing() -> None:
    watched = Watched()
    watched.look(n0=BROKEN)
    watched.look(n0=CLEAN)
    assert watched.look(CLEAN_S) == []
    assert watched.look(n0=CLEAN) == []
    assert watched.cordoned() == ["n0"]


def test_findings_add_up_and_what_an_operator_forgave_is_not_told_again() -> None:
    watched = Watched()
    watched.look(n0=BROKEN)
    watched.stage.tell(UncordonRequested, node="n0")
    assert watched.look(n0=BROKEN) == []
    assert watched.cordoned() == []
    failed = {XID: 45.0, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1.0}
    both = f"{OFF_THE_BUS}; GPU 3: a row of memory could not be remapped"
    assert watched.look(n0=failed) == [("n0", both)]
    assert watched.look(n0=BROKEN) == []
    assert watched.cordoned() == ["n0"]


def test_no_more_than_a_share_of_the_nodes_is_taken_out(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(nodes=10)
    with caplog.at_level(logging.ERROR):
        watched.look(n0=BROKEN, n1=BROKEN, n2=BROKEN)
        watched.look(n0=BROKEN, n1=BROKEN, n2=BROKEN)
    assert watched.cordoned() == ["n0", "n1"]
    assert [line.getMessage() for line in caplog.records] == [
        "node n2 looks unwell and stays in use, for 2 nodes are out already, the limit is a fifth of 10 nodes"
    ]
    watched.look(n0=CLEAN, n2=BROKEN)
    watched.look(CLEAN_S, n0=CLEAN, n2=BROKEN)
    watched.look(n2=BROKEN)
    assert watched.cordoned() == ["n1", "n2"]


def test_a_small_cluster_has_one_to_spare() -> None:
    watched = Watched(nodes=2)
    watched.look(n0=BROKEN, n1=BROKEN)
    assert watched.cordoned() == ["n0"]


KEPT = "1 node is out already, the limit is a fifth of 5 nodes"


def kept(watched: Watched) -> dict[str, str]:
    """Why nodes stay in use that show a fault, by the ledger and by one that was folded anew."""
    ledger = watched.stage.scheduler.ledger
    again = restored(snapshot_of(watched.stage.scheduler), watched.stage.policy).ledger
    assert again.site.unwell == ledger.site.unwell
    found = {node: ledger.site.kept_in_use(node) for node in ledger.site.unwell}
    return {node: one[0].kept for node, one in found.items() if one}


def test_a_node_beyond_the_limit_is_on_record_with_its_fault_and_why_it_stays_in_use() -> None:
    watched = Watched(nodes=5)
    assert watched.look(n0=BROKEN, n1=BROKEN) == [("n0", OFF_THE_BUS), ("n1", OFF_THE_BUS)]
    assert (watched.cordoned(), kept(watched)) == (["n0"], {"n1": KEPT})
    assert watched.look(n0=BROKEN, n1=BROKEN) == []


def test_a_restart_forgets_no_node_that_is_kept_in_use() -> None:
    watched = Watched(nodes=5)
    watched.look(n0=BROKEN, n1=BROKEN)
    watched.watch = HealthWatch()
    assert watched.look(n0=BROKEN, n1=BROKEN) == []
    assert kept(watched) == {"n1": KEPT}


def test_the_node_that_has_shown_its_fault_longest_is_taken_out_when_fewer_are() -> None:
    watched = Watched(nodes=5)
    watched.look(n4=BROKEN)
    watched.look(n3=BROKEN, n4=BROKEN)
    watched.look(n1=BROKEN, n3=BROKEN, n4=BROKEN)
    assert (watched.cordoned(), [*kept(watched)]) == (["n4"], ["n3", "n1"])
    watched.stage.tell(UncordonRequested, node="n4")
    assert watched.look(n1=BROKEN, n3=BROKEN, n4=BROKEN) == [("n3", OFF_THE_BUS)]
    assert (watched.cordoned(), [*kept(watched)]) == (["n3"], ["n1"])


def test_a_slot_that_a_node_leaves_is_given_on_in_the_same_round() -> None:
    watched = Watched(nodes=5)
    watched.look(n0=BROKEN, n1=BROKEN)
    watched.look(n0=CLEAN, n1=BROKEN)
    assert watched.look(CLEAN_S, n0=CLEAN, n1=BROKEN) == [("n0", ""), ("n1", OFF_THE_BUS)]
    assert (watched.cordoned(), kept(watched)) == (["n1"], {})


def test_a_node_that_is_kept_in_use_is_well_once_its_sign_has_ended() -> None:
    watched = Watched(nodes=5)
    watched.look(n0=BROKEN, n1=BROKEN)
    watched.look(n0=BROKEN, n1=CLEAN)
    assert watched.look(CLEAN_S, n0=BROKEN, n1=CLEAN) == [("n1", "")]
    assert kept(watched) == {}


def test_nodes_that_another_source_took_out_count_until_it_calls_them_well() -> None:
    watched = Watched(nodes=5)
    watched.stage.tell(HealthObserved, node="n0", source="operator", reason="PSU 2 failed")
    watched.look(n0=CLEAN, n1=BROKEN)
    assert (watched.cordoned(), kept(watched)) == (["n0"], {"n1": KEPT})
    watched.stage.tell(HealthObserved, node="n0", source="operator", reason="")
    watched.look(n0=CLEAN, n1=BROKEN)
    assert (watched.cordoned(), kept(watched)) == (["n1"], {})


def test_what_an_operator_overrules_of_a_kept_node_is_not_told_again_nor_taken_out() -> None:
    watched = Watched(nodes=5)
    watched.look(n0=BROKEN, n1=BROKEN)
    watched.stage.tell(UncordonRequested, node="n1")
    watched.stage.tell(UncordonRequested, node="n0")
    assert watched.look(n0=BROKEN, n1=BROKEN) == []
    assert (watched.cordoned(), kept(watched)) == ([], {})


def test_a_new_fault_of_an_overruled_node_counts_against_the_limit() -> None:
    watched = Watched(nodes=5)
    watched.look(n0=BROKEN)
    watched.stage.tell(UncordonRequested, node="n0")
    watched.look(n1=BROKEN)
    worse = {XID: 45.0, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1.0}
    watched.look(n0=worse, n1=BROKEN)
    assert (watched.cordoned(), [*kept(watched)]) == (["n1"], ["n0"])
