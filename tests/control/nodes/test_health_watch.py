"""Which nodes are called unwell, which well again, and that silence says nothing."""

import logging

import pytest

from gantree.control.nodes.health_watch import CLEAN_S, HealthWatch
from gantree.model.events import UncordonRequested
from gantree.telemetry.dcgm_health import Signs
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
        events = self.watch.update(told, ledger, self.stage.now, 1)
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
        "node n2 looks unwell, as 2 do: that many are not taken out"
    ]
    watched.look(n0=CLEAN, n2=BROKEN)
    watched.look(CLEAN_S, n0=CLEAN, n2=BROKEN)
    watched.look(n2=BROKEN)
    assert watched.cordoned() == ["n1", "n2"]


def test_a_small_cluster_has_one_to_spare() -> None:
    watched = Watched(nodes=2)
    watched.look(n0=BROKEN, n1=BROKEN)
    assert watched.cordoned() == ["n0"]
