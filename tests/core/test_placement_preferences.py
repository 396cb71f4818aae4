"""The scheduler places gangs by the preferences of its policy, also when it makes room by preemption."""

import pytest

from gantree.formats.policy.reader import PRESETS
from gantree.model.cluster import Cluster, Node
from gantree.model.jobs import Shape
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
    TypicalMember,
)
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.policy.rules import PlacementRule, Policy
from gantree.testing.builders import job, machine
from gantree.testing.stage import Stage
from gantree.topology.hardware import catalog

FOURS = ((Shape(gpus=4), 1.0),)
"""A site to which members of four GPUs come."""


def four_and_six() -> Cluster:
    """A node of four GPUs and one of six: a member of two fits the first more tightly, and breaks its four."""
    machines = {name: machine(size, name=name) for name, size in (("m4", 4), ("m6", 6))}
    nodes = (Node("four", "m4", ("l0",)), Node("six", "m6", ("l0",)))
    return Cluster("site", ("leaf", "node"), machines, nodes)


def slow_and_fast() -> Cluster:
    """A leaf of two A100 nodes and one of eight H100 nodes."""
    nodes = (
        *(Node(f"slow{n}", "dgx-a100", ("l0",)) for n in range(2)),
        *(Node(f"fast{n}", "dgx-h100", ("l1",)) for n in range(8)),
    )
    machines = {name: catalog.machine(name) for name in ("dgx-a100", "dgx-h100")}
    return Cluster("site", ("leaf", "node"), machines, nodes)


def test_preferences_are_those_of_the_policy() -> None:
    policy = Policy(fragmentation_weight=3.0, demand=((Shape(1), 6.0),), exact_s=2.0)
    assert placement_preferences_of(policy) == PlacementPreferences(
        3.0, (TypicalMember(Shape(1), 6.0),), 2.0
    )
    blind = PlacementPreferences(placement="random", seed=7)
    assert placement_preferences_of(Policy(placement="random", placement_seed=7)) == blind
    assert all(
        placement_preferences_of(preset) == DEFAULT_PREFERENCES
        for preset in PRESETS.values()
        if preset.placement == "topology"
    )


@pytest.mark.parametrize(("policy", "node"), [(Policy(), "four"), (Policy(demand=FOURS), "six")])
def test_who_usually_comes_decides_where_a_member_goes(policy: Policy, node: str) -> None:
    stage = Stage(four_and_six(), policy)
    stage.submit(job("small", gpus=2))
    assert stage.nodes("small") == [node]


@pytest.mark.parametrize(("weight", "nodes"), [(0.0, "fast"), (5.0, "slow")])
def test_the_weight_decides_where_a_gang_goes(weight: float, nodes: str) -> None:
    stage = Stage(slow_and_fast(), Policy(fragmentation_weight=weight))
    stage.submit(job("gang", members=2, gpus=8))
    assert {node.rstrip("0123456789") for node in stage.nodes("gang")} == {nodes}


@pytest.mark.parametrize(("policy", "node"), [(Policy(), "four"), (Policy(demand=FOURS), "six")])
def test_room_is_made_where_the_site_prefers_it(policy: Policy, node: str) -> None:
    stage = Stage(four_and_six(), policy)
    stage.submit(job("low", 5, 2, priority="research"))
    stage.started("low")
    stage.submit(job("urgent", gpus=2, priority="serving"))
    claim = stage.scheduler.ledger.claims["urgent"]
    assert [member.node for member in claim.placement.members] == [node]
    stage.ended("low", exit_code=143)
    assert stage.nodes("urgent") == [node]


def leaves_of_two() -> Cluster:
    """Two leaves of two nodes of two GPUs."""
    nodes = tuple(Node(f"n{n}", "m2", (f"l{n // 2}",)) for n in range(4))
    return Cluster("site", ("leaf", "node"), {"m2": machine(2, name="m2")}, nodes)


@pytest.mark.parametrize(
    ("placement", "nodes"), [("topology", ["n2", "n3"]), ("first-fit", ["n1", "n2"])]
)
def test_a_baseline_places_every_gang_of_a_decision(
    placement: PlacementRule, nodes: list[str]
) -> None:
    policy = Policy(placement=placement)
    stage = Stage(leaves_of_two(), policy)
    stage.submit(job("first", gpus=2))
    stage.submit(job("pair", 2, 2))
    assert [stage.nodes("first"), stage.nodes("pair")] == [["n0"], nodes]
    stage.submit(job("rest", gpus=2, priority="research"))
    stage.started("rest")
    stage.submit(job("urgent", gpus=2, priority="serving"))
    claim = stage.scheduler.ledger.claims["urgent"]
    assert [member.node for member in claim.placement.members] == stage.nodes("rest")


def test_a_reservation_is_where_the_baseline_places_it() -> None:
    places = {}
    rules: tuple[PlacementRule, ...] = ("topology", "first-fit")
    for placement in rules:
        stage = Stage(leaves_of_two(), Policy(placement=placement))
        stage.submit(job("first", gpus=2))
        stage.submit(job("stays", gpus=2))
        stage.started("first")
        stage.ended("first", exit_code=0)
        stage.submit(job("short", 3, 2, time_limit_s=60))
        stage.started("short")
        stage.submit(job("wide", 2, 2))
        reserved = stage.scheduler.ledger.reservations["wide"].placement
        places[placement] = [member.node for member in reserved.members]
    assert places == {"topology": ["n2", "n3"], "first-fit": ["n0", "n2"]}
