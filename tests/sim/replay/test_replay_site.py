"""The site of a snapshot as events: a scheduler that is told them knows the site as the one before did."""

from gantree.core.scheduler import Scheduler
from gantree.formats import read_cluster, read_policy
from gantree.model.events import (
    ClusterObserved,
    CordonRequested,
    Event,
    HealthObserved,
    LabelRequested,
    NodeLost,
    OthersHold,
    UncordonRequested,
)
from gantree.model.placements import MemberPlacement
from gantree.sim.replay.site import site_events

SITE = read_cluster(
    """
name: one-leaf
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB, cpus: 64, memory_GiB: 256}}
nodes: [{names: "n[0-5]", machine: m4, at: {leaf: l0}, labels: {pool: a}}]
""",
    "site.yaml",
)
POLICY = read_policy("preset: gantree", "policy.yaml")
TOLD: tuple[Event, ...] = (
    ClusterObserved(id="c", observed_at=0.0, cluster=SITE),
    CordonRequested(id="1", observed_at=1.0, node="n0", reason="fan"),
    CordonRequested(id="2", observed_at=1.0, node="n1", drain=True, deadline_at=90.0),
    NodeLost(id="3", observed_at=1.0, node="n2", reason="power"),
    HealthObserved(id="4", observed_at=1.0, node="n3", source="dcgm", reason="XID 79"),
    HealthObserved(id="5", observed_at=1.0, node="n4", source="dcgm", reason="XID 13"),
    UncordonRequested(id="6", observed_at=2.0, node="n4"),
    LabelRequested(id="7", observed_at=2.0, node="n5", labels=(("pool", None), ("rack", "r1"))),
    OthersHold(id="8", observed_at=2.0, holder="pod", members=(MemberPlacement("w", 0, "n5", (0, 1), ()),)),
)  # fmt: skip


def told(events: tuple[Event, ...]) -> Scheduler:
    scheduler = Scheduler(POLICY)
    for event in events:
        scheduler.handle([event])
    return scheduler


def test_a_scheduler_that_is_told_the_site_of_another_knows_it_as_that_one_does() -> None:
    before = told(TOLD).ledger
    after = told(site_events(before)).ledger
    assert after.site.as_observed() == before.site.as_observed()
    assert after.site.others == before.site.others
    assert after.unusable == before.unusable == {"n2": "power"}
    blocked = {node: cordon.reason for node, cordon in before.site.cordoned.items()}
    assert {node: cordon.reason for node, cordon in after.site.cordoned.items()} == blocked
    assert set(blocked) == {"n0", "n1", "n3"}
    assert after.site.asked["n1"].deadline_at == 90


def test_nothing_is_told_of_a_site_that_nobody_has_described() -> None:
    assert site_events(Scheduler(POLICY).ledger) == ()
