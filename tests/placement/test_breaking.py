"""To which node members with parts of GPUs go: where they break least. Against a plain look at every node."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Machine, Mig, Node
from gantree.model.jobs import Job, Role, Shape
from gantree.model.placements import MigPart, Placement, SharePart
from gantree.placement.choice.search import place
from gantree.placement.machine.mig import MODE_S, NODE_S
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

THREE = ("3g.40gb", 4)


def occupancy(nodes: list[Node], *taken: Allocation, gpus: int = 2) -> Occupancy:
    machine = Machine("m", gpus, "A100-80GB", cpus=64.0)
    cluster = Cluster("c", ("leaf", "node"), {"m": machine}, tuple(nodes), allocations=taken)
    return Occupancy(Fabric.build(cluster))


def node(name: str, *cut: Mig, by: str = "gpu") -> Node:
    return Node(name, "m", ("l0",), mig=cut, mig_by=by)


def placed(where: Occupancy, shape: Shape, members: int = 1, *, talk: bool = True) -> Placement:
    job = Job("j", (Role("w", members, shape),), communicates=talk)
    found = place(where, job)
    assert isinstance(found, Placement), found
    assert not problems_of(where, job, found)
    where.check()
    return found


def nodes_of(found: Placement) -> list[str]:
    return [member.node for member in found.members]


def test_an_instance_that_is_there_is_taken_wherever_it_is() -> None:
    where = occupancy([node("n0"), node("n1"), node("n2", Mig(1, (THREE,)))])
    found = placed(where, Shape(mig="3g.40gb"))
    assert found.members[0].mig == (MigPart(1, "3g.40gb", 4),) and not found.changes
    where.take("j", found.members)
    assert nodes_of(placed(where, Shape(mig="2g.20gb"))) == ["n2"], "beside it, not on a new GPU"


def test_the_node_that_is_cut_soonest_is_taken() -> None:
    by_manager, by_gpu = node("n0", Mig(0), by="node"), node("n1")
    in_the_way = node("n2", Mig(0, (("7g.80gb", 0),)))
    seconds = []
    for nodes in ([by_manager], [by_manager, by_gpu], [by_manager, by_gpu, in_the_way]):
        found = placed(occupancy(nodes), Shape(mig="3g.40gb"))
        assert nodes_of(found) == [nodes[-1].name]
        seconds.append(sum(change.seconds for change in found.changes))
    assert seconds == sorted(seconds, reverse=True) and seconds[0] == NODE_S
    assert MODE_S < seconds[1] < NODE_S and seconds[2] < MODE_S


def test_a_share_joins_the_fullest_gpu_that_has_room_before_it_breaks_a_free_one() -> None:
    def tenant(name: str, compute: float) -> Allocation:
        return Allocation(name, name, (), shares=(SharePart(1, compute, 10, "mps"),))

    nodes = [node("n0"), node("n1"), node("n2"), node("n3")]
    whole = Allocation("whole", "n0", (0,))
    where = occupancy(nodes, whole, tenant("n1", 0.25), tenant("n2", 0.5), tenant("n3", 0.75))
    for shape, on in ((0.25, "n3"), (0.5, "n2"), (0.75, "n1"), (1.0, "n0")):
        assert nodes_of(placed(where, Shape(gpu_share=shape))) == [on]


def test_gangs_over_several_nodes_go_where_instances_are_too() -> None:
    cut = (Mig(0, (THREE,)), Mig(1, (THREE,)))
    nodes = [node("n0"), node("n1", *cut), node("n2"), node("n3", *cut)]
    found = placed(occupancy(nodes), Shape(mig="3g.40gb"), 4)
    assert nodes_of(found) == ["n1", "n1", "n3", "n3"] and not found.changes


def test_unlike_roles_leave_whole_nodes_to_whole_gpus_and_go_where_instances_are() -> None:
    nodes = [node("n0"), node("n1"), node("n2", Mig(1, (THREE, ("3g.40gb", 0))))]
    roles = (
        Role("w", 1, Shape(gpus=2)),
        Role("m", 2, Shape(mig="3g.40gb")),
        Role("c", 1, Shape(cpus=2)),
    )
    where, job = occupancy(nodes), Job("j", roles, communicates=False)
    found = place(where, job)
    assert isinstance(found, Placement) and not problems_of(where, job, found)
    assert {m.node for m in found.members if m.mig} == {"n2"} and not found.changes


STATES = st.lists(
    st.sampled_from([None, (), (("1g.10gb", 0),), (THREE,), (("7g.80gb", 0),)]),
    min_size=2,
    max_size=2,
)


@settings(max_examples=examples(75), deadline=None)
@given(
    st.lists(st.tuples(STATES, st.sampled_from(["gpu", "node"])), min_size=1, max_size=4),
    st.sampled_from(["1g.10gb", "3g.40gb", "4g.40gb"]),
    st.integers(1, 2),
    st.booleans(),
)
def test_no_other_node_is_cut_sooner(
    cuts: list[tuple[list[tuple[tuple[str, int], ...] | None], str]],
    profile: str,
    members: int,
    talk: bool,
) -> None:
    nodes = [
        node(
            f"n{number}",
            *(Mig(gpu, has) for gpu, has in enumerate(states) if has is not None),
            by=by,
        )
        for number, (states, by) in enumerate(cuts)
    ]
    shape, seconds = Shape(mig=profile), []
    for alone in nodes:
        found = placed(occupancy([alone]), shape, members, talk=talk)
        each = [change.seconds for change in found.changes]
        seconds.append(max(each, default=0.0) if alone.mig_by == "node" else sum(each))
    found = placed(occupancy(nodes), shape, members, talk=talk)
    assert seconds[int(nodes_of(found)[0][1:])] == min(seconds)


@pytest.mark.parametrize("profile", ["1g.10gb", "3g.40gb"])
def test_what_is_kept_follows_what_comes_and_goes(profile: str) -> None:
    where = occupancy([node("n0"), node("n1", Mig(0, (THREE,))), node("n2", by="nobody")])
    for turn in range(9):
        found = placed(where, Shape(mig=profile))
        where.take(f"j{turn}", found.members)
        if turn % 3 == 2:
            where.give_back(f"j{turn - 1}")
        where.check()
