"""Who holds what."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gantree.model.cluster import Allocation, Cluster, Machine, Nic, NicFacts, Node
from gantree.model.errors import BadInput
from gantree.model.jobs import Shape
from gantree.model.placements import MemberPlacement
from gantree.placement.slots.slots import SlotShape, slots
from gantree.testing.pictures import drawn, picture_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples
from support.members import member

NICS = (Nic("a", (0, 1)), Nic("b", (2, 3)))


def site(*allocations: Allocation) -> Cluster:
    machines = {
        "m": Machine("m", 4, nics=NICS, cpus=8.0, memory_GiB=16.0),
        "bare": Machine("bare", 4),
    }
    nodes = (Node("n0", "m", ("l0",)), Node("n1", "m", ("l1",)), Node("n2", "bare", ("l1",)))
    return Cluster("site", ("leaf", "node"), machines, nodes, {}, allocations)


def test_the_site_s_own_allocations_are_taken_with_the_nearest_nics() -> None:
    occupancy = Occupancy(Fabric.build(site(Allocation("old", "n0", (2,), 1.5, 4.0, nics=1))))
    assert occupancy.free_gpus("n0") == (0, 1, 3)
    assert occupancy.free_nics("n0") == ("a",)
    assert occupancy.holder_of_gpu("n0", 2) == "site:old"
    occupancy.check()


@pytest.mark.parametrize(
    "allocations",
    [
        (Allocation("x", "n9"),),
        (Allocation("x", "n0", (4,)),),
        (Allocation("x", "n0", (1,)), Allocation("y", "n0", (1,))),
        (Allocation("x", "n0", (), 9.0),),
        (Allocation("x", "n0", nics=3),),
    ],
)
def test_allocations_that_cannot_be_are_bad_input(allocations: tuple[Allocation, ...]) -> None:
    with pytest.raises(BadInput, match="allocation of"):
        Occupancy(Fabric.build(site(*allocations)))


@pytest.mark.parametrize(
    "wrong",
    [
        member(gpus=(0, 0)),
        member(gpus=(4,)),
        member(gpus=(3,)),
        member(node="n9"),
        member(cpus=8.5),
        member(memory=17),
        replace(member(), nics=("c",)),
        replace(member(), nics=("a",), gpus=(3,)),
    ],
)
def test_taking_what_is_not_free_is_our_bug_and_takes_nothing(wrong: MemberPlacement) -> None:
    occupancy = Occupancy(Fabric.build(site(Allocation("old", "n0", (3,)))))
    with pytest.raises(AssertionError):
        occupancy.take("x", [member("n1"), wrong])
    assert "x" not in occupancy.owners
    assert occupancy.free_gpus("n1") == (0, 1, 2, 3)
    occupancy.check()


def test_room_is_held_bit_by_bit_while_others_leave() -> None:
    occupancy = drawn("l0: n0 aabb n1 ....")
    claim = [MemberPlacement("w", 0, "n0", (1, 2, 3)), MemberPlacement("w", 1, "n1", (0,))]
    occupancy.take_free("C", claim)
    assert picture_of(occupancy) == "l0: n0 aabb n1 C..."
    occupancy.give_back("b")
    occupancy.take_free("C", claim)
    assert picture_of(occupancy) == "l0: n0 aaCC n1 C..."
    occupancy.give_back("a")
    occupancy.take_free("C", claim)
    assert picture_of(occupancy) == "l0: n0 .CCC n1 C..."
    occupancy.check()
    occupancy.give_back("C")
    occupancy.take("C", claim)
    assert picture_of(occupancy) == "l0: n0 .CCC n1 C..."


@pytest.mark.parametrize(("cpus", "memory_GiB"), [(8.0, 0.0), (0.0, 16.0)])
def test_room_is_held_as_soon_as_any_of_what_it_lacks_is_free(
    cpus: float, memory_GiB: float
) -> None:
    half = member(gpus=(), cpus=cpus / 2, memory=memory_GiB / 2)
    claim = [member(gpus=(), cpus=cpus, memory=memory_GiB)]
    occupancy = Occupancy(Fabric.build(site()))
    occupancy.take("leaves", [half])
    occupancy.take("stays", [half])
    held: list[MemberPlacement] = []
    for _ in range(3):
        occupancy.take_free("C", claim)
        held += occupancy.owners["C"]
        occupancy.give_back("leaves")
    assert held == [member(gpus=()), half, half]
    occupancy.check()


def with_broken(*nics: tuple[str, str], allocations: tuple[Allocation, ...] = ()) -> Occupancy:
    facts = tuple(NicFacts(node, nic, health=0.0) for node, nic in nics)
    return Occupancy(Fabric.build(replace(site(*allocations), nics=facts)))


def test_a_broken_nic_is_neither_counted_nor_named_as_free() -> None:
    occupancy = with_broken(("n0", "a"))
    assert (occupancy.free_nics("n0"), occupancy.free_nics("n1")) == (("b",), ("a", "b"))
    assert occupancy.free_nics_of_node.tolist() == [1, 2, 0]
    assert occupancy.emptied().free_nics_of_node.tolist() == [2, 2, 0]
    occupancy.check()
    occupancy.emptied().check()


def test_a_worn_nic_is_still_free() -> None:
    facts = (NicFacts("n0", "a", health=0.1),)
    occupancy = Occupancy(Fabric.build(replace(site(), nics=facts)))
    assert occupancy.free_nics("n0") == ("a", "b")


def test_a_broken_nic_stays_with_its_holder_and_is_not_free_after_it() -> None:
    occupancy = with_broken(("n0", "a"))
    occupancy.take("x", [replace(member(), nics=("a", "b"))])
    assert occupancy.free_nics_of_node.tolist() == [0, 2, 0]
    occupancy.check()
    occupancy.copy().check()
    with pytest.raises(AssertionError):
        occupancy.take("y", [replace(member(gpus=(1,)), nics=("a",))])
    occupancy.give_back("x")
    assert occupancy.free_nics("n0") == ("b",)
    assert occupancy.free_nics_of_node.tolist() == [1, 2, 0]
    occupancy.check()


def test_the_site_s_allocations_take_broken_nics_last() -> None:
    near_the_broken = Allocation("old", "n0", (0,), nics=1)
    occupancy = with_broken(("n0", "a"), allocations=(near_the_broken,))
    assert occupancy.owners["site:old"][0].nics == ("b",)
    both = with_broken(("n0", "a"), allocations=(replace(near_the_broken, nics=2),))
    assert both.owners["site:old"][0].nics == ("b", "a")
    both.check()


def test_a_broken_nic_of_a_machine_that_has_none_such_is_bad_input() -> None:
    with pytest.raises(BadInput, match="node n0 has no NIC 'z', only a, b"):
        with_broken(("n0", "z"))


def test_giving_back_what_nobody_holds_does_nothing() -> None:
    occupancy = drawn("l0: n0 aa..")
    occupancy.give_back("nobody")
    assert picture_of(occupancy) == "l0: n0 aa.."


def test_a_copy_lives_on_its_own() -> None:
    occupancy = drawn("l0: n0 aa.. n1 ....")
    twin = occupancy.copy()
    twin.give_back("a")
    twin.mark("n1", usable=False)
    assert picture_of(occupancy) == "l0: n0 aa.. n1 ...."
    assert picture_of(twin) == "l0: n0 .... n1! ...."
    occupancy.check()
    twin.check()


def test_fractions_of_cpus_do_not_drift() -> None:
    occupancy = Occupancy(Fabric.build(site()))
    for turn in range(100):
        occupancy.take(f"x{turn}", [member(gpus=(), cpus=0.08)])
    for turn in range(100):
        occupancy.give_back(f"x{turn}")
    occupancy.take("all", [member(gpus=(), cpus=8.0)])
    occupancy.check()


def test_check_sees_arrays_that_the_owners_do_not_explain() -> None:
    occupancy = drawn("l0: n0 aa..")
    occupancy.free_gpus_of_node[0] += 1
    with pytest.raises(AssertionError, match="free_gpus_of_node"):
        occupancy.check()


class Comings(RuleBasedStateMachine):
    """Owners come and go, one NIC is broken, nodes fail and return; indexes of three shapes follow all the way."""

    def __init__(self) -> None:
        super().__init__()
        self.occupancy = with_broken(("n0", "a"))
        asked = (Shape(gpus=1, cpus=1.0), Shape(gpus=2), Shape(gpus=1, nics=1))
        self.shapes = [SlotShape.of(shape, ()) for shape in asked]

    @rule(
        owner=st.sampled_from("abc"),
        node=st.sampled_from(["n0", "n1", "n2"]),
        gpus=st.sets(st.integers(0, 3)),
        nics=st.sets(st.sampled_from("ab")),
    )
    def claim(self, owner: str, node: str, gpus: set[int], nics: set[str]) -> None:
        wanted = member(node, tuple(sorted(gpus)), cpus=len(gpus) / 3)
        there = tuple(sorted(nics)) if node != "n2" else ()
        self.occupancy.take_free(owner, [replace(wanted, nics=there)])

    @rule(owner=st.sampled_from("abc"))
    def leave(self, owner: str) -> None:
        self.occupancy.give_back(owner)

    @rule(node=st.sampled_from(["n0", "n1", "n2"]), usable=st.booleans())
    def mark(self, node: str, usable: bool) -> None:
        self.occupancy.mark(node, usable)

    @rule()
    def look(self) -> None:
        for shape in self.shapes:
            slots(self.occupancy, shape)

    @rule()
    def go_on_with_a_copy(self) -> None:
        self.occupancy = self.occupancy.copy()

    @invariant()
    def arrays_are_what_the_owners_say(self) -> None:
        self.occupancy.check()

    @invariant()
    def no_broken_nic_is_free(self) -> None:
        for node, whole in (("n0", {"b"}), ("n1", {"a", "b"})):
            held = {
                n
                for o in self.occupancy.owners.values()
                for m in o
                if m.node == node
                for n in m.nics
            }
            assert set(self.occupancy.free_nics(node)) == whole - held
            index = self.occupancy.fabric.index_of_node[node]
            assert self.occupancy.free_nics_of_node[index] == len(whole - held)


TestComings = Comings.TestCase
TestComings.settings = settings(max_examples=examples(20), stateful_step_count=20, deadline=None)


def test_an_index_follows_even_where_the_log_no_longer_reaches_back() -> None:
    occupancy = drawn("l0: n0 .... n1 ....")
    shape = SlotShape.of(Shape(gpus=2), ())
    assert slots(occupancy, shape).of_node.tolist() == [2, 2]
    for turn in range(3000):
        occupancy.take(f"x{turn}", [member("n0", (0,))])
        occupancy.give_back(f"x{turn}")
    occupancy.take("x", [member("n1", (0,))])
    assert occupancy.log.since(0) is None
    assert slots(occupancy, shape).of_node.tolist() == [2, 1]


def test_sums_of_free_gpus_follow_every_step() -> None:
    occupancy = drawn("s0/l0: n0 .... n1 ....\ns0/l1: n2 ....\ns1/l2: n3 ....")
    sums = occupancy.free_gpus_in_domain(2)
    occupancy.take("a", [member("n1", (0, 2)), member("n3", (1,))])
    assert sums.tolist() == [6, 4, 3]
    assert [occupancy.free_gpus_in_domain(t).tolist() for t in (0, 1)] == [[13], [10, 3]]
    with pytest.raises(AssertionError):
        occupancy.take("b", [member("n0", (0,)), member("n1", (0,))])
    assert sums.tolist() == [6, 4, 3]
    occupancy.give_back("a")
    assert sums.tolist() == [8, 4, 4]
