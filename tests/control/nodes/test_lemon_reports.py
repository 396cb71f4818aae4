"""Lemons are taken out like nodes with other faults: within the limit, until overruled, or until they are well."""

from typing import Any

import pytest

from gantree.control.nodes.lemon_reports import LemonReports, reason_of
from gantree.model.events import HealthObserved, UncordonRequested
from gantree.testing.builders import cluster
from gantree.testing.stage import Stage


def row(node: str = "n0", days: int = 4, **more: Any) -> dict[str, Any]:
    counts = {"faults": days, "out": 0, "links": 0, "slow_ranks": 0}
    return {"node": node, "days": days, **counts, "forgiven": False, "grown": True, **more}


class Site:
    """Nodes of which lemons are reported."""

    def __init__(self, nodes: int = 5) -> None:
        self.stage = Stage(cluster(leaves=1, nodes=nodes))
        self.reports = LemonReports()

    def look(self, *rows: dict[str, Any]) -> list[HealthObserved]:
        events = self.reports.events(rows, self.stage.scheduler.ledger, self.stage.now, 1)
        self.stage.handle(events)
        return events

    @property
    def out(self) -> dict[str, str]:
        cordoned = self.stage.scheduler.ledger.site.cordoned
        return {node: each.reason for node, each in cordoned.items()}

    def kept(self, node: str) -> str:
        return self.stage.scheduler.ledger.site.unwell[node]["lemon"].kept


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"faults": 3, "links": 2, "slow_ranks": 1}, "3 faults, 2 worn links, 1 slow rank"),
        ({"faults": 1, "out": 1, "links": 1}, "1 fault, 1 time out of use, 1 worn link"),
        ({"faults": 0, "out": 4, "slow_ranks": 2}, "4 times out of use, 2 slow ranks"),
    ],
)
def test_the_reason_counts_the_signs(counts: dict[str, Any], words: str) -> None:
    assert reason_of(row(days=6, **counts)) == f"signs on 6 of 28 days: {words}"


def test_a_lemon_is_out_until_it_is_none_and_to_look_again_says_nothing() -> None:
    site = Site()
    site.look(row())
    assert site.out == {"n0": "signs on 4 of 28 days: 4 faults"}
    assert site.look(row()) == []
    site.look(row(days=5))
    assert site.out == {"n0": "signs on 5 of 28 days: 5 faults"}
    site.look()
    assert site.out == {}
    assert site.look() == []


def test_a_fifth_of_the_nodes_is_out_those_of_the_most_days_first() -> None:
    site = Site(nodes=5)
    site.look(row("n3", 9), row("n1", 6), row("n2", 5))
    assert list(site.out) == ["n3"]
    assert site.kept("n1") == "1 node is out already, the limit is a fifth of 5 nodes"
    assert site.look(row("n3", 9), row("n1", 6), row("n2", 5)) == []
    site.look(row("n1", 6), row("n2", 5))
    site.look(row("n1", 6), row("n2", 5))
    assert list(site.out) == ["n1"]


def test_nodes_that_other_sources_took_out_count_and_their_own_signs_do_not_add_to_it() -> None:
    site = Site(nodes=5)
    site.stage.tell(HealthObserved, node="n0", source="dcgm", reason="GPU 3: XID 79")
    site.look(row("n1"), row("n0"))
    assert site.out == {"n0": "GPU 3: XID 79; signs on 4 of 28 days: 4 faults"}
    assert site.kept("n1")


def test_uncordon_overrules_it_until_signs_come_on_a_further_day() -> None:
    site = Site()
    site.look(row())
    site.stage.tell(UncordonRequested, node="n0")
    for known in (row(), row(days=5), row(forgiven=True, grown=False)):
        assert site.look(known) == [], "counted before it was overruled, or nothing new since"
    site.look(row(forgiven=True))
    assert site.out == {"n0": "signs on 4 of 28 days: 4 faults"}, "a day went, another came"
    assert site.look(row()) == []


def test_a_lemon_that_was_overruled_and_is_none_any_more_is_forgotten() -> None:
    site = Site()
    site.look(row())
    site.stage.tell(UncordonRequested, node="n0")
    site.look()
    assert site.stage.scheduler.ledger.site.unwell == {}
    assert site.look(row(forgiven=True)) == [], "counted before it was forgotten"
