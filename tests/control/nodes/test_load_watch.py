"""Which links count as busy, and that new gangs keep away while running ones stay."""

from dataclasses import replace

import pytest

from gantree.control.nodes.links.link_reports import CLEAN_S
from gantree.control.nodes.links.load_watch import LoadWatch
from gantree.core.cycle.degradations import degradation
from gantree.model.cluster import LinkId
from gantree.model.errors import BadInput
from gantree.model.events import LinkHealthObserved
from gantree.model.jobs import AxisTraffic, Traffic
from gantree.model.phases import Phase
from gantree.telemetry.link_load import loads_in
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.link_watches import events_of

LEAF = LinkId("leaf", "s0/l0")


class Watched:
    """A few leaves, and a watch of how busy their up-links are."""

    def __init__(self, leaves: int = 2, nodes: int = 4) -> None:
        self.stage = Stage(cluster(leaves=leaves, nodes=nodes, nics=8))
        self.watch = LoadWatch()

    def look(self, after_s: float = 15.0, **load: float) -> list[tuple[str, float, float]]:
        """So long after the last time; load is by the name of a leaf."""
        self.stage.now += after_s
        text = "".join(
            f'gantree_link_load{{link="leaf:s0/{leaf}"}} {x}\n' for leaf, x in load.items()
        )
        ledger = self.stage.scheduler.ledger
        events = events_of(self.watch, loads_in(text), ledger, self.stage.now)
        if events:
            self.stage.handle(events)
        return [(str(event.link), event.health, event.load) for event in events]


def test_a_link_is_busy_from_half_on_in_steps_and_less_busy_only_after_a_while() -> None:
    watched = Watched()
    assert watched.look(l0=0.49, l1=0.2) == []
    assert watched.look(l0=0.55) == [("leaf:s0/l0", 1.0, 0.5)]
    assert watched.look(l0=0.59) == []
    assert watched.look(l0=0.87) == [("leaf:s0/l0", 1.0, 0.8)]
    assert watched.look(l0=0.1) == []
    assert watched.look(l0=0.6) == []
    assert watched.look(CLEAN_S, l0=0.1) == [("leaf:s0/l0", 1.0, 0.6)]
    watched.look(l0=0.1)
    assert watched.look(CLEAN_S, l0=0.1) == [("leaf:s0/l0", 1.0, 0.0)]
    assert watched.stage.scheduler.ledger.site.links == {}


def test_a_full_link_keeps_a_rest_and_health_is_not_touched() -> None:
    watched = Watched()
    assert watched.look(l0=1.0) == [("leaf:s0/l0", 1.0, 0.9)]
    assert watched.stage.scheduler.ledger.site.health_of_link() == {}


def test_a_new_gang_keeps_away_from_a_busy_leaf_and_a_running_one_stays() -> None:
    """Three leaves of two nodes: a gang of three nodes crosses the up-links of two leaves."""
    idle, busy = Watched(leaves=3, nodes=2), Watched(leaves=3, nodes=2)
    busy.look(l0=0.95)
    for watched in (idle, busy):
        watched.stage.submit(job("a", 3, 8))
        watched.stage.started("a")
    assert idle.stage.nodes("a") == ["n0", "n1", "n2"]
    assert busy.stage.nodes("a") == ["n2", "n3", "n4"]
    idle.look(l0=0.95, l1=0.95)
    idle.stage.wait(7 * 86400.0)
    assert idle.stage.nodes("a") == ["n0", "n1", "n2"]
    assert idle.stage.phase("a") is Phase.RUNNING


def test_the_price_of_staying_leaves_out_load_and_has_health() -> None:
    """A degradation that is on record beside the load of the same links is that of the health alone."""
    watched = Watched(leaves=2, nodes=2)
    stage = watched.stage
    stage.submit(
        replace(job("a", 3, 8), traffic=Traffic((AxisTraffic("data", 400e9),), compute_s=0.0))
    )
    stage.started("a")
    state = stage.state("a")
    stage.tell(LinkHealthObserved, link=LEAF, source="ufm", health=0.5)
    alone = degradation(stage.scheduler.ledger, state)
    watched.look(l0=0.95, l1=0.95)
    assert alone is not None
    assert degradation(stage.scheduler.ledger, state) == alone


@pytest.mark.parametrize(
    "text",
    ["", "up 1\n", 'gantree_link_load{link="leaf:s0/l9"} 0.9\n', 'gantree_link_load{link="leaf:s0/l0"} 1.5\n',
     'gantree_link_load{link="leaf:s0/l0"} NaN\n', "gantree_link_load 0.9\n",
     'gantree_link_load{link="gpu-pcie:n0/1"} 0.9\n'],
)  # fmt: skip
def test_what_tells_no_load_of_a_link_says_nothing(text: str) -> None:
    watched = Watched()
    ledger = watched.stage.scheduler.ledger
    assert events_of(watched.watch, loads_in(text), ledger, 15.0) == []


def test_half_a_text_is_refused() -> None:
    with pytest.raises(BadInput, match="no metrics"):
        loads_in('gantree_link_load{link="leaf:s0/l0"} 0.')
