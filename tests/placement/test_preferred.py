"""What is only preferred: a tier inside the node or of the site goes before speed, and never keeps a gang waiting."""

import pytest

from gantree.model.cluster import Cluster, DataSet, DomainFacts, Node
from gantree.model.jobs import DataNeed, Job, Role, Shape, Slices, TopologySpec
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.testing import builders
from gantree.testing.pictures import drawn
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy


def gang(members: int, gpus: int = 1, **topology: object) -> Job:
    request = TopologySpec(**topology)  # type: ignore[arg-type]  # fields by name, as the tests have them
    return Job("x", (Role("w", members, Shape(gpus=gpus)),), topology=request)


def in_role(job: Job) -> Job:
    """The same request said by the only role instead of the gang."""
    (role,) = job.roles
    return Job(job.name, (Role(role.name, role.members, role.shape, topology=job.topology),))


def held(occupancy: Occupancy, job: Job) -> list[tuple[str, tuple[int, ...]]]:
    answer = place(occupancy, job)
    assert isinstance(answer, Placement)
    assert problems_of(occupancy, job, answer) == []
    occupancy.take("x", answer.members)
    occupancy.check()
    return [(member.node, member.gpus) for member in answer.members]


# Four GPUs a node, two on each socket: of n0 one of each socket is free.
BROKEN_UP = "s0/l0: n0 .a.a n1 ...."


@pytest.mark.parametrize("job", [gang(2, preferred="socket"), in_role(gang(2, preferred="socket"))])
def test_a_node_with_a_free_socket_goes_before_a_fuller_one_where_a_socket_is_preferred(
    job: Job,
) -> None:
    assert held(drawn(BROKEN_UP), job) == [("n1", (0,)), ("n1", (1,))]


def test_roles_that_prefer_a_socket_together_share_one() -> None:
    roles = (Role("a", 1, Shape(gpus=1)), Role("b", 1, Shape(gpus=1)))
    job = Job("x", roles, topology=TopologySpec(preferred="socket"))
    assert held(drawn(BROKEN_UP), job) == [("n1", (0,)), ("n1", (1,))]


def test_a_preferred_socket_that_cannot_be_had_is_let_go() -> None:
    assert held(drawn("s0/l0: n0 .a.a n1 aaaa"), gang(2, preferred="socket")) == [
        ("n0", (0,)), ("n0", (2,)),
    ]  # fmt: skip


def test_a_gang_too_large_for_a_node_ignores_what_it_prefers_inside_one() -> None:
    assert len(held(drawn("s0/l0: n0 .... n1 ...."), gang(8, preferred="socket"))) == 8


def test_preferred_slices_that_do_not_nest_are_no_reason_to_decline() -> None:
    slices = (Slices(3, "socket"), Slices(2, "pcie", preferred=True))
    assert len(held(drawn("s0/l0: n0 ......"), gang(6, slices=slices))) == 6


def site(**facts: object) -> Occupancy:
    """One leaf of two nodes and two of one."""
    leaves = ("l0", "l0", "l1", "l2")
    nodes = tuple(Node(f"n{i}", "dgx-h100", ("s0", leaf)) for i, leaf in enumerate(leaves))
    machines = {"dgx-h100": machine("dgx-h100")}
    tiers = ("spine", "leaf", "node")
    return Occupancy(Fabric.build(Cluster("site", tiers, machines, nodes, **facts)))  # type: ignore[arg-type]  # by name


WORN = (DomainFacts("node", "n0", health=0.2), DomainFacts("node", "n1", health=0.2))


@pytest.mark.parametrize(
    ("job", "nodes"),
    [
        (gang(2, 8), ["n2", "n3"]),
        (gang(2, 8, preferred="spine"), ["n2", "n3"]),
        (gang(2, 8, preferred="leaf"), ["n0", "n1"]),
        (in_role(gang(2, 8, preferred="leaf")), ["n0", "n1"]),
    ],
)
def test_worn_nodes_are_avoided_but_not_for_a_wider_tier_than_the_preferred_one(
    job: Job, nodes: list[str]
) -> None:
    assert [node for node, _ in held(site(domains=WORN), job)] == nodes


def test_data_at_hand_does_not_draw_a_gang_out_of_the_tier_that_it_prefers() -> None:
    data = (DataSet("tokens", "node", "n2"), DataSet("tokens", "node", "n3"))
    wanted = Job(
        "x",
        (Role("w", 2, Shape(gpus=8)),),
        topology=TopologySpec(preferred="leaf"),
        data=(DataNeed("tokens", 1e6),),
    )
    assert [node for node, _ in held(site(data=data), wanted)] == ["n0", "n1"]


def test_members_without_gpus_are_in_one_socket_wherever_they_are() -> None:
    nodes = (Node("n0", "cpu"), Node("n1", "cpu"))
    machines = {"cpu": builders.machine(0, name="cpu", cpus=4.0)}
    occupancy = Occupancy(Fabric.build(Cluster("c", ("node",), machines, nodes)))
    roles = (Role("a", 2, Shape(cpus=1)), Role("b", 1, Shape(cpus=0.5)))
    job = Job("x", roles, topology=TopologySpec(required="socket"))
    assert held(occupancy, job) == [("n0", ()), ("n0", ()), ("n0", ())]
