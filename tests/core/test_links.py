"""Links of which a source says that they carry less: the next decision heeds it, and it is on record."""

from dataclasses import replace

import pytest

from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.journal.encoding.codec import FACT_CODEC
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.model.cluster import Cluster, DomainFacts, LinkId
from gantree.model.events import ClusterObserved, LinkHealthObserved, LinkRestoreRequested
from gantree.model.site_facts import LinkHealthNoted
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.topology.fabric.conditions import Conditions
from support.same_ledger import differences

NODE, LEAF, NIC = LinkId("node", "n0"), LinkId("leaf", "s0/l0"), LinkId("nic", "n0/mlx5_1")
SITE = cluster(leaves=2, nodes=4, nics=8)


def stage_of(site: Cluster = SITE) -> Stage:
    return Stage(site)


def reported(stage: Stage, link: LinkId, health: float, source: str = "ufm", why: str = "") -> None:
    stage.tell(LinkHealthObserved, link=link, source=source, health=health, reason=why)


def residual(stage: Stage, link: LinkId) -> float:
    """The share of its rate that new traffic finds."""
    fabric = stage.scheduler.ledger.rooms().fabric
    if link.nic is not None:
        return Conditions(fabric).residual_of_nic(*link.nic)
    return Conditions(fabric).residual(*fabric.find(link.tier, link.path))


def noted(stage: Stage) -> list[LinkHealthNoted]:
    return [fact for fact in stage.facts if isinstance(fact, LinkHealthNoted)]


@pytest.mark.parametrize(
    ("link", "members", "elsewhere"),
    [
        (NODE, 2, ["n1", "n2"]),
        (NODE, 4, ["n4", "n5", "n6", "n7"]),
        (NIC, 2, ["n1", "n2"]),
        (NIC, 4, ["n4", "n5", "n6", "n7"]),
    ],
)
def test_a_gang_starts_beside_a_link_at_half_rate(
    link: LinkId, members: int, elsewhere: list[str]
) -> None:
    sound, sick = stage_of(), stage_of()
    reported(sick, link, 0.5)
    for stage in (sound, sick):
        stage.submit(job("a", members, 8))
    assert sound.nodes("a") == [f"n{number}" for number in range(members)]
    assert sick.nodes("a") == elsewhere


def test_a_gang_that_has_no_other_place_starts_there_all_the_same() -> None:
    stage = stage_of()
    reported(stage, NODE, 0.5)
    stage.submit(job("a", 8, 8))
    assert sorted(stage.nodes("a")) == [f"n{number}" for number in range(8)]


@pytest.mark.parametrize("link", [NODE, LEAF, NIC])
def test_of_several_sources_the_lowest_counts_until_each_says_that_the_link_is_whole(
    link: LinkId,
) -> None:
    stage = stage_of()
    reported(stage, link, 0.5, "ufm", "4x became 2x")
    reported(stage, link, 0.25, "counters")
    assert residual(stage, link) == 0.25
    reported(stage, link, 1.0, "counters")
    assert residual(stage, link) == 0.5
    reported(stage, link, 1.0, "ufm")
    assert residual(stage, link) == 1.0
    assert stage.scheduler.ledger.site.links == {}


def test_what_the_cluster_file_says_stays_the_upper_limit() -> None:
    stage = stage_of(replace(SITE, domains=(DomainFacts("leaf", "s0/l0", health=0.75, load=0.5),)))
    reported(stage, LEAF, 0.9)
    assert residual(stage, LEAF) == 0.75 * 0.5
    reported(stage, LEAF, 0.5)
    assert residual(stage, LEAF) == 0.5 * 0.5
    reported(stage, LEAF, 1.0)
    assert residual(stage, LEAF) == 0.75 * 0.5


def test_an_operator_overrules_a_report_until_its_source_says_something_else() -> None:
    stage = stage_of()
    reported(stage, NIC, 0.5, why="PCIe x8")
    stage.tell(LinkRestoreRequested, link=NIC)
    assert residual(stage, NIC) == 1.0
    reported(stage, NIC, 0.5, why="PCIe x8")
    assert residual(stage, NIC) == 1.0, "the same again is nothing new"
    reported(stage, NIC, 0.25, why="PCIe x4")
    assert residual(stage, NIC) == 0.25


def test_a_node_whose_links_are_broken_takes_nothing_new() -> None:
    stage = stage_of()
    reported(stage, NODE, 0.0, why="no link")
    stage.submit(job("a", 8, 8), job("b", 7, 8))
    assert (stage.nodes("a"), "n0" in stage.nodes("b")) == ([], False)
    stage.ended("b")
    reported(stage, NODE, 1.0)
    assert len(stage.nodes("a")) == 8


def test_the_same_again_and_what_is_not_there_are_no_facts() -> None:
    stage = stage_of()
    reported(stage, NODE, 1.0)
    for link in (LinkId("leaf", "s9/l9"), LinkId("rack", "r0"), LinkId("nic", "n0/eth7"),
                 LinkId("nic", "n99/mlx5_0"), LinkId("gpu", "n0")):  # fmt: skip
        reported(stage, link, 0.5)
    for health in (-0.5, 1.5, float("nan")):
        reported(stage, NODE, health)
    stage.tell(LinkRestoreRequested, link=NODE)
    assert noted(stage) == []
    reported(stage, NODE, 0.5)
    reported(stage, NODE, 0.5)
    assert len(noted(stage)) == 1


def test_the_file_read_anew_keeps_reports_of_links_that_it_still_has() -> None:
    stage = stage_of()
    reported(stage, NIC, 0.5)
    reported(stage, LinkId("node", "n7"), 0.5)
    smaller = replace(SITE, nodes=SITE.nodes[:7])
    stage.tell(ClusterObserved, cluster=smaller)
    assert list(stage.scheduler.ledger.site.links) == [NIC]
    assert residual(stage, NIC) == 0.5


def test_a_recovered_and_a_restored_scheduler_know_the_same_links() -> None:
    stage = stage_of()
    reported(stage, NIC, 0.5, why="PCIe x8")
    reported(stage, LEAF, 0.25)
    stage.tell(LinkRestoreRequested, link=LEAF)
    stage.submit(job("a", 2, 8))
    fold = Scheduler(stage.policy)
    fold.recover(FACT_CODEC.decode(FACT_CODEC.encode(fact)) for fact in stage.facts)
    assert differences(fold.ledger, stage.scheduler.ledger, any_order=True) == []
    codec = SnapshotCodec()
    text = codec.encode(snapshot_of(stage.scheduler, codec.begin(0)))
    again = restored(SnapshotCodec().decode(text), stage.policy)
    assert again.ledger.site == stage.scheduler.ledger.site
    assert again.ledger.fabric is not None
    assert again.ledger.fabric.cluster == stage.scheduler.ledger.rooms().fabric.cluster
