"""Equal places: what is demanded of a cluster so that a job runs again as it ran, and what is said where it cannot."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.control.nodes.run_versions import policy_version, versions_of
from gantree.control.requests.rerun import demanded, obstacles, relation_at, relation_of
from gantree.executors.local.launch.rank_map import rank_map
from gantree.formats.policy.reader import PRESETS
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.errors import Unreachable
from gantree.model.jobs import Job, Role, Shape
from gantree.model.orders import MemberLaunch, StartGang
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples


def site(leaves: int, nodes: int, machine: str = "m4", gpu: str = "H100-80GB") -> Cluster:
    machines = {machine: Machine(machine, 4, gpu)}
    where = [(leaf, node) for leaf in range(leaves) for node in range(nodes)]
    return Cluster(
        "c",
        ("leaf", "node"),
        machines,
        tuple(Node(f"n{leaf}-{node}", machine, (f"l{leaf}",)) for leaf, node in where),
    )


def job(members: int) -> Job:
    return Job("j", (Role("w", members, Shape(gpus=4)),))


def record(cluster: Cluster, nodes: list[str]) -> dict[str, Any]:
    """The record of a gang of one member with four GPUs on each of these nodes."""
    members = tuple(
        MemberLaunch(
            role="w",
            rank=n,
            node=node,
            node_rank=n,
            first_rank=n,
            processes=1,
            gpus=(0, 1, 2, 3),
            nics=(),
            run=(),
        )
        for n, node in enumerate(nodes)
    )
    order = StartGang(id="", job="j", attempt=1, world_size=len(nodes), members=members)
    return rank_map(order, cluster, {node.name: node for node in cluster.nodes})


def test_two_leaves_of_two_are_asked_for_again_and_had_elsewhere() -> None:
    ran = record(site(2, 2), ["n0-0", "n0-1", "n1-0", "n1-1"])
    asked, fabric = demanded(job(4), ran), Fabric.build(site(4, 4))
    assert place(Occupancy(fabric, empty=True), job(4)) != place(
        Occupancy(fabric, empty=True), asked
    )
    assert obstacles(asked, ran, fabric) == ()
    found = place(Occupancy(fabric, empty=True), asked)
    assert isinstance(found, Placement)
    assert relation_at(asked, found, fabric).together["leaf"] == (0, 0, 1, 1)


def test_a_cluster_without_an_equal_place_says_what_differs() -> None:
    ran = record(site(1, 4), ["n0-0", "n0-1", "n0-2", "n0-3"])
    asked = demanded(job(4), ran)
    (sentence,) = obstacles(asked, ran, Fabric.build(site(2, 2)))
    assert "leaf" in sentence
    uneven = record(site(2, 4), ["n0-0", "n0-1", "n0-2", "n1-0"])
    told = obstacles(demanded(job(4), uneven), uneven, Fabric.build(site(1, 8)))
    assert told == ("members shared leaf domains 3 + 1, and would share them 4",)
    other = Fabric.build(site(1, 4, "m4b"))
    assert obstacles(asked, ran, other) == ("machines were 4 x m4, and would be 4 x m4b",)
    (refused,) = obstacles(asked, ran, Fabric.build(site(1, 4, "m4", "A100-80GB")))
    assert "H100-80GB" in refused


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.data())
def test_a_place_is_equal_to_itself_whatever_its_nodes_are_called(
    leaves: int, nodes: int, data: st.DataObject
) -> None:
    cluster = site(leaves, nodes)
    names = [node.name for node in cluster.nodes]
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    renamed = replace(cluster, nodes=tuple(replace(n, name=f"x{n.name}") for n in cluster.nodes))
    assert relation_of(record(cluster, chosen)) == relation_of(
        record(renamed, [f"x{n}" for n in chosen])
    )


def test_members_are_as_many_as_the_attempt_had() -> None:
    ran = record(site(1, 4), ["n0-0", "n0-1"])
    assert demanded(job(4), ran).members == 2


def test_equal_policies_have_one_version_and_others_another() -> None:
    versions = {policy_version(policy) for policy in PRESETS.values()}
    assert len(versions) == len(PRESETS)
    one = PRESETS["gantree"]
    assert policy_version(replace(one)) == policy_version(one)


def test_driver_versions_are_those_of_this_machine_alone() -> None:
    def no_driver() -> dict[str, str]:
        raise Unreachable("none")

    assert versions_of("here", lambda: {"driver": "550"})("there") == {}
    assert versions_of("here", lambda: {"driver": "550"})("here") == {"driver": "550"}
    assert versions_of("here", no_driver)("here") == {}
