"""What a check found at fault is marked like what other health sources find; its prices are those of the live map."""

from typing import Any

from gantree.control.nodes.checks.check_marks import marks_of_check
from gantree.control.nodes.checks.check_prices import prices_of_check
from gantree.model.cluster import LinkId
from gantree.model.events import HealthObserved, LinkHealthObserved
from gantree.model.orders import MemberLaunch, StartGang
from gantree.testing.builders import cluster
from gantree.testing.stage import Stage


def fault(
    node: str | None = None, link: tuple[str, str] | None = None, share: float = 0.2
) -> dict[str, Any]:
    return {"node": node, "gpu": None, "link": link, "share": share, "reason": "slow"}


def order(*nodes: str, gpus: int = 8) -> StartGang:
    members = tuple(
        MemberLaunch("w", n, node, n, n * 8, 8, tuple(range(gpus)), (), ("true",))
        for n, node in enumerate(nodes)
    )
    return StartGang(id="j/1/start", job="j", attempt=1, world_size=8 * len(nodes), members=members)


def test_nodes_are_taken_out_up_to_a_fifth_and_the_others_kept_with_a_reason() -> None:
    stage = Stage(cluster(leaves=1, nodes=5))
    found = marks_of_check(stage.scheduler.ledger, "j", 2, [fault("n1"), fault("n3")], now=0.0)
    assert all(isinstance(event, HealthObserved) for event in found)
    assert [(e.id, e.node, e.source, e.kept) for e in found if isinstance(e, HealthObserved)] == [
        ("j/2/check/n1", "n1", "check", ""),
        ("j/2/check/n3", "n3", "check", "1 node is out already, the limit is a fifth of 5 nodes"),
    ]
    stage.handle(found)
    assert list(stage.scheduler.ledger.site.cordoned) == ["n1"]


def test_nodes_that_other_sources_took_out_count() -> None:
    stage = Stage(cluster(leaves=1, nodes=5))
    stage.tell(HealthObserved, node="n0", source="dcgm", reason="GPU 3: XID 79")
    (found,) = marks_of_check(stage.scheduler.ledger, "j", 1, [fault("n1")], now=0.0)
    assert isinstance(found, HealthObserved)
    assert found.kept.startswith("1 node is out already")


def test_a_link_carries_the_share_that_was_measured_of_what_it_carried() -> None:
    stage = Stage(cluster(leaves=2, nodes=2))
    fabric = stage.scheduler.ledger.rooms().fabric
    link = LinkId("leaf", fabric.names_of_domain[fabric.tiers.index("leaf")][0])
    faults = [fault(link=(link.tier, link.path), share=0.5)]
    for attempt, health in ((1, 0.5), (2, 0.25)):
        found = marks_of_check(stage.scheduler.ledger, "j", attempt, faults, now=0.0)
        stage.handle(found)
        assert [e.health for e in found if isinstance(e, LinkHealthObserved)] == [health]
        assert stage.scheduler.ledger.site.health_of_link() == {link: health}


def test_prices_are_of_the_gang_its_members_pairs_and_gpus_and_follow_worn_links() -> None:
    stage = Stage(cluster(leaves=2, nodes=2))
    asked = order("n0", "n1", "n2")
    prices = prices_of_check(asked, stage.scheduler.ledger.fabric)
    assert [member for member, _ in prices["members"]] == [0, 1, 2]
    assert sorted((a, b) for a, b, _ in prices["pairs"]) == [(0, 1), (0, 2), (1, 2)]
    assert len(prices["gpus"]) == 3 * 28
    assert prices["gang"] > 0
    before = {(a, b): price for a, b, price in prices["pairs"]}
    stage.tell(LinkHealthObserved, link=LinkId("node", "n0"), source="x", health=0.2)
    after = {
        (a, b): price
        for a, b, price in prices_of_check(asked, stage.scheduler.ledger.fabric)["pairs"]
    }
    assert after[1, 2] == before[1, 2]


def test_members_without_gpus_or_on_unknown_nodes_have_no_price() -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    fabric = stage.scheduler.ledger.fabric
    assert prices_of_check(order("n0", "n1", gpus=0), fabric) == {}
    assert prices_of_check(order("n0", "n9"), fabric) == {}
    assert prices_of_check(order("n0"), None) == {}
