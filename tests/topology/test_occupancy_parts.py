"""Parts of GPUs, other devices and amounts on NUMA nodes in an occupancy: taken, held and given back."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gantree.model.cluster import Allocation, Cluster, Machine, Mig, Node
from gantree.model.errors import BadInput
from gantree.model.placements import MemberPlacement, MigPart, NumaPart, SharePart
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples
from support.members import member


def parts_site(*allocations: Allocation, **spares: int) -> Cluster:
    """Three nodes of 2 GPUs that cut each GPU alone, whole nodes, or not at all; two instances are there."""
    machine = Machine(
        "m", 2, "H100-80GB", numa=(0, 1), cpus=8.0, devices=(("fpga", 2),), numa_memory_GBps=100.0
    )
    there = (Mig(0, (("3g.40gb", 4), ("1g.10gb", 0))),)
    nodes = (
        Node("n0", "m", ("l0",), mig=there),
        Node("n1", "m", ("l0",), mig=there, mig_by="node"),
        Node("n2", "m", ("l1",), mig=there, mig_by="nobody", tenants=2),
    )
    return Cluster(
        "parts", ("leaf", "node"), {"m": machine}, nodes, {}, allocations, spares=dict(spares)
    )


def part(
    node: str = "n0", gpu: int = 0, profile: str = "3g.40gb", start: int = 4
) -> MemberPlacement:
    return MemberPlacement("w", 0, node, mig=(MigPart(gpu, profile, start),))


def tenant(node: str = "n0", compute: float = 0.5, alone: bool = False) -> MemberPlacement:
    share = SharePart(1, compute, 10.0, "mps", alone)
    return MemberPlacement("w", 0, node, share=share)


def test_a_gpu_is_whole_again_when_the_last_instance_of_it_is_idle() -> None:
    occupancy = Occupancy(Fabric.build(parts_site()))
    assert occupancy.free_gpus("n0") == (0, 1)
    occupancy.take("a", [part()])
    assert occupancy.free_gpus("n0") == (1,)
    assert occupancy.holder_of_gpu("n0", 0) == "a"
    assert occupancy.free_gpus_in_domain(0).tolist() == [1 + 2 + 1]
    occupancy.give_back("a")
    assert occupancy.free_gpus("n0") == (0, 1)
    assert len(occupancy.state_of_node(0).gpus[0].instances) == 2
    occupancy.take("b", [member("n0", (0, 1))])
    occupancy.give_back("b")
    assert 0 not in occupancy.parts_of_node
    occupancy.check()


def test_a_node_that_is_cut_as_a_whole_keeps_cut_gpus_from_whole_members_while_it_is_held() -> None:
    occupancy = Occupancy(Fabric.build(parts_site()))
    assert (occupancy.free_gpus("n1"), occupancy.free_gpus("n2")) == ((0, 1), (1,))
    occupancy.take("a", [member("n1", (), cpus=1.0)])
    assert occupancy.free_gpus("n1") == (1,)
    assert "cut only while nobody" in occupancy.missing([part("n1", 1)])
    assert occupancy.missing([part("n1", 0)]) == ""
    occupancy.give_back("a")
    assert occupancy.free_gpus("n1") == (0, 1)
    assert occupancy.missing([part("n1", 1), part("n1", 0, start=0)]) == ""
    occupancy.check()


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([part()], [part()], "instance 3g.40gb at 4 of GPU 0 is not free"),
        ([part()], [member("n0", (0,))], "GPUs 0 are not free"),
        ([member("n0", (0,))], [part()], "GPU 0 is held whole"),
        ([tenant()], [tenant(compute=0.6)], "0.6 of the compute of GPU 1"),
        ([tenant()], [tenant(alone=True)], "held alone"),
        ([tenant()], [member("n0", (1,))], "GPUs 1 are not free"),
        ([tenant()], [part(gpu=1)], "GPU 1 is shared"),
        ([replace(member(gpus=()), devices=(("fpga", 2),))],) * 2 + ("2 fpga are not free",),
        ([], [replace(member(gpus=()), devices=(("dpu", 1),))], "1 dpu are not free"),
        ([], [replace(member(), numa=(NumaPart(0, memory_GBps=101.0),))], "101 GB/s"),
    ],
)
def test_parts_that_clash_are_told_in_words_and_nothing_is_taken(
    first: list[MemberPlacement], second: list[MemberPlacement], words: str
) -> None:
    occupancy = Occupancy(Fabric.build(parts_site()))
    occupancy.take("a", first)
    assert words in occupancy.missing(second)
    with pytest.raises(AssertionError, match="on n0"):
        occupancy.take("b", [member("n1", (1,)), *second])
    assert "b" not in occupancy.owners
    occupancy.check()


def test_the_site_s_own_parts_are_taken() -> None:
    held = Allocation(
        "old",
        "n1",
        mig=(MigPart(0, "1g.10gb", 3),),
        shares=(SharePart(1, 0.5, 8.0, "mps"), SharePart(1, 0.25, 8.0, "mps")),
        devices=(("fpga", 1),),
    )
    occupancy = Occupancy(Fabric.build(parts_site(held)))
    assert len(occupancy.owners["site:old"]) == 2
    assert occupancy.free_gpus("n1") == ()
    assert occupancy.devices.free("fpga").tolist() == [2, 1, 2]
    assert occupancy.devices.free("dpu").tolist() == [0, 0, 0]
    occupancy.check()
    with pytest.raises(BadInput, match=r"allocation of old on n1: .* is not free"):
        Occupancy(Fabric.build(parts_site(held, held)))


def test_check_sees_an_instance_that_nobody_holds() -> None:
    occupancy = Occupancy(Fabric.build(parts_site()))
    occupancy.take("a", [part()])
    occupancy.owners["a"] = (member("n0", ()),)
    with pytest.raises(AssertionError, match="parts_of_node 0"):
        occupancy.check()


class PartsComeAndGo(RuleBasedStateMachine):
    """Owners hold whole GPUs, instances, shares, devices and bandwidth wherever these are free, and leave."""

    def __init__(self) -> None:
        super().__init__()
        self.occupancy = Occupancy(Fabric.build(parts_site(leaf=1)))
        self.started = 0

    @rule(
        node=st.sampled_from(["n0", "n1", "n2"]),
        gpu=st.integers(0, 1),
        profile=st.sampled_from(["1g.10gb", "1g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]),
        start=st.integers(0, 6),
        whole=st.sets(st.integers(0, 1), max_size=1),
        cpus=st.sampled_from([0.0, 0.5]),
    )
    def hold_instance(
        self, node: str, gpu: int, profile: str, start: int, whole: set[int], cpus: float
    ) -> None:
        numa = (NumaPart(gpu, cpus, 0.0, 30.0),) if cpus else ()
        wanted = replace(part(node, gpu, profile, start), gpus=tuple(whole), cpus=cpus, numa=numa)
        self._take_if_free(wanted)

    @rule(
        node=st.sampled_from(["n0", "n1", "n2"]),
        compute=st.sampled_from([0.2, 0.5, 0.9]),
        alone=st.booleans(),
        fpgas=st.integers(0, 2),
    )
    def hold_share(self, node: str, compute: float, alone: bool, fpgas: int) -> None:
        devices = (("fpga", fpgas),) if fpgas else ()
        self._take_if_free(replace(tenant(node, compute, alone), devices=devices))

    @rule(node=st.sampled_from(["n0", "n1", "n2"]), gpus=st.sets(st.integers(0, 1)))
    def hold_whole(self, node: str, gpus: set[int]) -> None:
        self._take_if_free(member(node, tuple(sorted(gpus)), cpus=0.5))

    def _take_if_free(self, wanted: MemberPlacement) -> None:
        before = self.occupancy.copy()
        self.started += 1
        if self.occupancy.missing([wanted]):
            with pytest.raises(AssertionError):
                self.occupancy.take(f"x{self.started}", [wanted])
            assert self.occupancy.parts_of_node == before.parts_of_node
            assert self.occupancy.free_mask_of_node == before.free_mask_of_node
        else:
            self.occupancy.take(f"x{self.started}", [wanted])

    @rule(pick=st.integers(0, 50))
    def leave(self, pick: int) -> None:
        owners = list(self.occupancy.owners)
        if owners:
            self.occupancy.give_back(owners[pick % len(owners)])

    @rule(node=st.sampled_from(["n0", "n1", "n2"]), start=st.integers(0, 6))
    def claim(self, node: str, start: int) -> None:
        wanted = replace(
            part(node, 0, "1g.10gb", start), gpus=(1,), cpus=2.0, devices=(("fpga", 1),)
        )
        self.occupancy.take_free("claim", [replace(wanted, rank=start)])

    @rule(node=st.sampled_from(["n0", "n1", "n2"]), usable=st.booleans())
    def mark(self, node: str, usable: bool) -> None:
        self.occupancy.mark(node, usable)

    @rule()
    def go_on_with_a_copy(self) -> None:
        self.occupancy = self.occupancy.copy()

    @invariant()
    def books_are_right(self) -> None:
        self.occupancy.check()

    @invariant()
    def a_gpu_is_free_where_nobody_holds_anything_of_it(self) -> None:
        for name in ("n0", "n1", "n2"):
            held = {
                gpu
                for members in self.occupancy.owners.values()
                for one in members
                if one.node == name
                for gpu in (*one.gpus, *one.parts)
            }
            free = set(self.occupancy.free_gpus(name))
            assert free <= {0, 1} - held
            if name == "n0":
                assert free == {0, 1} - held


TestPartsComeAndGo = PartsComeAndGo.TestCase
TestPartsComeAndGo.settings = settings(
    max_examples=examples(20), stateful_step_count=20, deadline=None
)
