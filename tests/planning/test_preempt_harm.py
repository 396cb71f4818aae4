"""How little harm a plan does: against every subset of victims, and for the symptoms that users of others report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.jobs import Job, Role, Shape, TopologySpec
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import find, fits, place
from gantree.planning.preemption.plan import Forbidden, Victim, plan_preemption, why_not
from gantree.planning.preemption.prices import MOST_LEVELS, levels, price
from gantree.testing.builders import cluster, job
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

FACTOR = 2.0
"""A plan's harm is at most so many times the least there is (docs/least-harm.md has the mean)."""


@dataclass(frozen=True)
class Question:
    """Gangs of two rights on a small cluster, and a wanted one."""

    occupancy: Occupancy
    wanted: Job
    victims: tuple[Victim, ...]

    def without(self, owners: Sequence[str]) -> Occupancy:
        emptier = self.occupancy.copy()
        for owner in owners:
            emptier.give_back(owner)
        return emptier

    def fits_without(self, owners: Sequence[str]) -> bool:
        return fits(self.without(owners), self.wanted)


def question(seed: int) -> Question:
    rng = Random(seed)
    occupancy = Occupancy(Fabric.build(cluster(leaves=2, nodes=2, gpus=4)))
    victims = []
    for number in range(rng.randint(3, 7)):
        name = f"j{number}"
        verdict = place(occupancy, job(name, rng.randint(1, 3), rng.choice([1, 1, 2, 4])))
        if isinstance(verdict, Placement):
            occupancy.take(name, verdict.members)
            right = (float(rng.randint(0, 1)),)
            victims.append(Victim(name, 0, float(rng.randint(0, 9)), number, right))
    members = rng.randint(1, 4)
    sliced = members % 2 == 0 and rng.random() < 0.3
    wanted = job(
        "wanted",
        members,
        rng.choice([1, 2, 4]),
        required=rng.choice([None, "leaf", "node"]),
        slices=(2, rng.choice(["leaf", "node"])) if sliced else None,
    )
    return Question(occupancy, wanted, tuple(victims))


def least(asked: Question, admits: Callable[[Sequence[str]], bool]) -> tuple[float, float] | None:
    """(greatest right, harm) of the best subset, by trying them all; None where none is enough."""
    best = None
    for size in range(len(asked.victims) + 1):
        for subset in combinations(asked.victims, size):
            owners = [victim.owner for victim in subset]
            if admits(owners) and asked.fits_without(owners):
                harm = harm_of(subset)
                best = harm if best is None else min(best, harm)
    return best


def harm_of(victims: Sequence[Victim]) -> tuple[float, float]:
    top = max((victim.right[0] for victim in victims), default=-1.0)
    return top, sum(victim.harm_gpu_s for victim in victims if victim.right[0] == top)


@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
@settings(max_examples=examples(60), deadline=None)
def test_a_plan_is_nearly_the_least_harmful_and_nobody_in_it_can_be_spared(
    seed: int, quota: int
) -> None:
    """The quota wants so many of the even-numbered gangs gone."""
    asked = question(seed)

    def admits(owners: Sequence[str]) -> bool:
        return sum(int(owner[1:]) % 2 == 0 for owner in owners) >= quota

    plan = plan_preemption(asked.occupancy, asked.wanted, asked.victims, admits=admits)
    best = least(asked, admits)
    assert (plan is None) == (best is None)
    if plan is None or best is None:
        return
    owners = [victim.owner for victim in plan.victims]
    asked.without(owners).take("wanted", plan.placement.members)
    assert admits(owners)
    top, harm_gpu_s = harm_of(plan.victims)
    assert top == best[0], "nobody of a greater right goes where those of a lesser one are enough"
    assert harm_gpu_s <= FACTOR * best[1] + 1e-9 or quota
    for spared in owners:
        others = [owner for owner in owners if owner != spared]
        assert not (admits(others) and asked.fits_without(others)), f"{spared} could be spared"


# ----- what users of other schedulers report (shared list of peers, section 3)


def test_eight_gpus_scattered_over_four_nodes_are_not_evicted_for_a_gang_that_needs_one_node() -> (
    None
):
    """kueue#5243: the cheapest eight GPUs are on four nodes, and after their eviction nothing could start."""
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=4, gpus=8)))
    victims: list[Victim] = []
    for node in range(4):
        for gpu in range(8):
            name = f"j{node}-{gpu}"
            occupancy.take(name, (MemberPlacement("w", 0, f"n{node}", (gpu,)),))
            harm_gpu_s = 1.0 if gpu < 2 else 5.0 + node
            victims.append(Victim(name, 0, harm_gpu_s, len(victims)))
    plan = plan_preemption(occupancy, job("wanted", 1, 8), victims)
    assert plan is not None
    assert sorted(victim.owner for victim in plan.victims) == [f"j0-{gpu}" for gpu in range(8)]


def test_a_fully_packed_domain_can_be_preempted_by_a_gang_that_requires_it() -> None:
    """KAI#1591: no leaf has a free GPU, and the one with the least to lose is emptied."""
    occupancy = Occupancy(Fabric.build(cluster(leaves=3, nodes=2, gpus=8)))
    victims = []
    for node, harm_gpu_s in enumerate([9.0, 9.0, 4.0, 4.0, 1.0, 9.0]):
        occupancy.take(f"j{node}", (MemberPlacement("w", 0, f"n{node}", tuple(range(8))),))
        victims.append(Victim(f"j{node}", 0, harm_gpu_s, node))
    plan = plan_preemption(occupancy, job("wanted", 2, 8, required="leaf"), victims)
    assert plan is not None
    assert sorted(victim.owner for victim in plan.victims) == ["j2", "j3"]


def test_the_victim_that_has_just_saved_goes_though_it_is_the_larger_one() -> None:
    """kueue#477: victims by the work since their last checkpoint, not by size or age."""
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=2, gpus=8)))
    for gpu in range(8):
        occupancy.take(f"s{gpu}", (MemberPlacement("w", 0, "n0", (gpu,)),))
    occupancy.take("large", (MemberPlacement("w", 0, "n1", tuple(range(8))),))
    victims = [Victim(f"s{gpu}", 0, 100.0, gpu) for gpu in range(8)]
    victims.append(Victim("large", 0, 480.0, 8))
    plan = plan_preemption(occupancy, job("wanted", 1, 8), victims)
    assert plan is not None
    assert [victim.owner for victim in plan.victims] == ["large"]
    one = plan_preemption(occupancy, job("wanted", 1, 1), victims)
    assert one is not None
    assert one.harm_gpu_s == 100.0


def test_a_node_that_is_dear_for_one_member_may_be_cheap_for_both() -> None:
    """On n0 the first member costs a gang of lesser right, the second one then as much right as all of n1."""
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=2, gpus=4)))
    victims: list[Victim] = []
    for owner, node, gpus, right in (
        ("lesser", "n0", (0, 1), 0.0),
        ("greater", "n0", (2, 3), 1.0),
        ("both", "n1", (0, 1, 2, 3), 1.0),
    ):
        occupancy.take(owner, (MemberPlacement("w", 0, node, gpus),))
        victims.append(Victim(owner, 0, 3.0, len(victims), (right,)))
    plan = plan_preemption(occupancy, job("wanted", 2, 2), victims)
    assert plan is not None
    assert [victim.owner for victim in plan.victims] == ["both"]


def test_of_the_gangs_on_a_node_the_cheapest_go() -> None:
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=1, gpus=8)))
    victims = []
    for gpu, harm_gpu_s in enumerate([8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 4.0]):
        occupancy.take(f"j{gpu}", (MemberPlacement("w", 0, "n0", (gpu,)),))
        victims.append(Victim(f"j{gpu}", 0, harm_gpu_s, gpu))
    plan = plan_preemption(occupancy, job("wanted", 1, 4), victims)
    assert plan is not None
    assert plan.harm_gpu_s == 1.0 + 2.0 + 3.0 + 4.0


def test_a_gang_on_two_nodes_that_clears_both_is_cheaper_than_one_on_each() -> None:
    occupancy = Occupancy(Fabric.build(cluster(leaves=2, nodes=2, gpus=4)))
    both = tuple(MemberPlacement("w", rank, f"n{rank}", (0, 1, 2, 3)) for rank in range(2))
    occupancy.take("both", both)
    for node in (2, 3):
        occupancy.take(f"j{node}", (MemberPlacement("w", 0, f"n{node}", (0, 1, 2, 3)),))
    victims = [Victim("both", 0, 10.0, 0), Victim("j2", 0, 6.0, 1), Victim("j3", 0, 6.0, 2)]
    plan = plan_preemption(occupancy, job("wanted", 2, 4), victims)
    assert plan is not None
    assert [victim.owner for victim in plan.victims] == ["both"]


# ----- gangs that counts say little of


def test_a_gpu_that_two_gangs_share_is_free_only_when_both_are_gone() -> None:
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=2, gpus=1)))
    half = Role("w", 1, Shape(gpu_share=0.5))
    for number in range(4):
        found = find(occupancy, Job(f"s{number}", (half,)))
        assert found is not None
        occupancy.take(f"s{number}", found.members)
    victims = [
        Victim(f"s{n}", 0, harm_gpu_s, n) for n, harm_gpu_s in enumerate([1.0, 9.0, 4.0, 4.0])
    ]
    whole = plan_preemption(occupancy, job("wanted", 1, 1), victims)
    assert whole is not None
    assert sorted(victim.owner for victim in whole.victims) == ["s2", "s3"]
    part = plan_preemption(occupancy, Job("wanted", (half,)), victims)
    assert part is not None
    assert [victim.owner for victim in part.victims] == ["s0"]


def test_a_gang_of_several_roles_clears_a_domain_for_all_of_them() -> None:
    occupancy = Occupancy(Fabric.build(cluster(leaves=2, nodes=2, gpus=4)))
    victims = []
    for node, harm_gpu_s in enumerate([1.0, 9.0, 4.0, 4.0]):
        occupancy.take(f"j{node}", (MemberPlacement("w", 0, f"n{node}", (0, 1, 2, 3)),))
        victims.append(Victim(f"j{node}", 0, harm_gpu_s, node))
    roles = (Role("head", 1, Shape(gpus=1)), Role("worker", 1, Shape(gpus=4)))
    wanted = Job("wanted", roles, topology=TopologySpec(required="leaf"))
    plan = plan_preemption(occupancy, wanted, victims)
    assert plan is not None
    assert sorted(victim.owner for victim in plan.victims) == ["j2", "j3"]


def test_gpus_that_are_free_in_two_nvlink_domains_do_not_count_as_one() -> None:
    """Two pairs on a node; a gang in one NVLink domain needs the cheaper of the two whole."""
    links = [
        [("NV4" if a // 2 == b // 2 else "SYS") if a != b else "X" for b in range(4)]
        for a in range(4)
    ]
    pairs = Machine("m", 4, "A6000-48GB", tuple(map(tuple, links)), (0, 0, 1, 1))
    site = Cluster("pairs", ("leaf", "node"), {"m": pairs}, (Node("n0", "m", ("l0",)),))
    occupancy = Occupancy(Fabric.build(site))
    occupancy.take("cheap", (MemberPlacement("w", 0, "n0", (1,)),))
    occupancy.take("dear", (MemberPlacement("w", 0, "n0", (3,)),))
    victims = [Victim("cheap", 0, 1.0, 0), Victim("dear", 0, 2.0, 1)]
    plan = plan_preemption(occupancy, job("wanted", 1, 2, required="nvlink"), victims)
    assert plan is not None
    assert [victim.owner for victim in plan.victims] == ["cheap"]


def test_a_large_plan_asks_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 single-GPU jobs on 64 nodes leave for one gang; each question to the search costs as much as a placement."""
    asked = []

    def counted(occupancy: Occupancy, wanted: Job) -> bool:
        asked.append(wanted.name)
        return fits(occupancy, wanted)

    monkeypatch.setattr("gantree.planning.preemption.trial.fits", counted)
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=64, gpus=8)))
    for number in range(512):
        member = MemberPlacement("w", 0, f"n{number // 8}", (number % 8,))
        occupancy.take(f"j{number}", (member,))
    victims = [Victim(f"j{number}", 0, float(number * 37 % 100), number) for number in range(512)]
    plan = plan_preemption(occupancy, job("wanted", 50, 8, required="leaf"), victims)
    assert plan is not None
    assert len(plan.victims) == 400
    assert len(asked) <= 4


# ----- why not


def test_a_refusal_for_harm_names_who_must_not_be_stopped_and_why() -> None:
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=2, gpus=4)))
    victims = []
    for number in range(4):
        gpus = (0, 1) if number % 2 == 0 else (2, 3)
        occupancy.take(f"j{number}", (MemberPlacement("w", 0, f"n{number // 2}", gpus),))
        victims.append(Victim(f"j{number}", 0, 1.0 + number, number))
    forbidden = [Forbidden(victims[1], "min_run"), Forbidden(victims[3], "non-preemptible")]
    allowed = [victims[0], victims[2]]
    wanted = job("wanted", 1, 4)
    assert plan_preemption(occupancy, wanted, allowed) is None
    assert why_not(occupancy, wanted, allowed, forbidden) == (forbidden[0],)
    assert why_not(occupancy, job("wanted", 3, 4), allowed, forbidden) == ()


def test_a_dear_gang_that_may_be_stopped_is_no_reason_to_name_a_protected_one() -> None:
    """Two nodes are wanted: one of the protected gangs must go, and for the other node the dear one may."""
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=3, gpus=4)))
    victims = []
    for node, harm_gpu_s in enumerate([1.0, 100.0, 2.0]):
        occupancy.take(f"j{node}", (MemberPlacement("w", 0, f"n{node}", (0, 1, 2, 3)),))
        victims.append(Victim(f"j{node}", 0, harm_gpu_s, node))
    forbidden = [Forbidden(victims[0], "budget"), Forbidden(victims[2], "budget")]
    named = why_not(occupancy, job("wanted", 2, 4), [victims[1]], forbidden)
    assert named == (forbidden[0],)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**7 - 1))
@settings(max_examples=examples(30), deadline=None)
def test_whoever_stands_in_the_way_is_named_and_all_of_them_are_needed(
    seed: int, mask: int
) -> None:
    asked = question(seed)
    allowed = [victim for n, victim in enumerate(asked.victims) if mask >> n & 1]
    forbidden = [Forbidden(v, "budget") for n, v in enumerate(asked.victims) if not mask >> n & 1]
    if plan_preemption(asked.occupancy, asked.wanted, allowed) is not None:
        return
    named = why_not(asked.occupancy, asked.wanted, allowed, forbidden)
    everybody = [victim.owner for victim in asked.victims]
    assert bool(named) == asked.fits_without(everybody)
    owners = [each.victim.owner for each in named]
    may_go = [victim.owner for victim in allowed]
    for owner in owners:
        others = [other for other in owners if other != owner]
        assert not asked.fits_without([*may_go, *others])


# ----- prices


def test_a_greater_right_weighs_more_than_any_harm_below_it() -> None:
    assert price(1, 0.0) > 100_000 * price(0, 1e9)
    assert price(0, 2.0) > price(0, 1.0) + price(0, 0.5)


@pytest.mark.parametrize("count", [1, MOST_LEVELS, MOST_LEVELS + 3])
def test_rights_beyond_the_levels_share_the_least_one(count: int) -> None:
    found = levels([(float(right),) for right in range(count)])
    assert found[-1] == min(count, MOST_LEVELS) - 1
    assert found == sorted(found)
    assert found.count(0) == max(1, count - MOST_LEVELS + 1)
