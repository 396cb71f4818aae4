"""Plans that make room, against every subset of victims."""

from collections.abc import Iterable
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.choice.search import fits, place
from gantree.planning.preemption.plan import Victim, plan_preemption
from gantree.testing.builders import cluster, job
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples


def busy(wishes: Iterable[tuple[int, int]]) -> tuple[Occupancy, list[str]]:
    """Two leaves of two 4-GPU nodes, filled with as many of the (members, gpus) gangs as fit, in order."""
    occupancy = Occupancy(Fabric.build(cluster(leaves=2, nodes=2, gpus=4)))
    names = []
    for number, (members, gpus) in enumerate(wishes):
        verdict = place(occupancy, job(f"j{number}", members, gpus))
        if isinstance(verdict, Placement):
            occupancy.take(f"j{number}", verdict.members)
            names.append(f"j{number}")
    return occupancy, names


def fits_without(occupancy: Occupancy, owners: Iterable[str], wanted: Job) -> bool:
    emptier = occupancy.copy()
    for owner in owners:
        emptier.give_back(owner)
    return fits(emptier, wanted)


fills = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 4])), min_size=1, max_size=7)
wants = st.tuples(
    st.integers(1, 4), st.sampled_from([1, 2, 4]), st.sampled_from([None, "leaf", "node"])
)


@given(fills, wants, st.data())
@settings(max_examples=examples(80))
def test_a_plan_exists_exactly_where_stopping_everyone_helps_and_is_proven(
    wishes: list[tuple[int, int]], want: tuple[int, int, str | None], data: st.DataObject
) -> None:
    occupancy, names = busy(wishes)
    members, gpus, required = want
    wanted = job("wanted", members, gpus, required=required)
    harms = data.draw(st.lists(st.integers(0, 5), min_size=len(names), max_size=len(names)))
    victims = [
        Victim(name, 0, float(harm), n)
        for n, (name, harm) in enumerate(zip(names, harms, strict=True))
    ]
    before = {owner: tuple(held) for owner, held in occupancy.owners.items()}
    plan = plan_preemption(occupancy, wanted, victims)
    assert {owner: tuple(held) for owner, held in occupancy.owners.items()} == before
    if plan is None:
        assert not fits_without(occupancy, names, wanted)
        return
    emptier = occupancy.copy()
    for victim in plan.victims:
        emptier.give_back(victim.owner)
    emptier.take("wanted", plan.placement.members)
    emptier.check()


@given(fills, st.sampled_from([1, 2, 4]), st.data())
@settings(max_examples=examples(80))
def test_no_victim_is_stopped_whose_room_is_not_used(
    wishes: list[tuple[int, int]], gpus: int, data: st.DataObject
) -> None:
    occupancy, names = busy(wishes)
    harms = data.draw(st.permutations(range(len(names))))
    victims = [Victim(name, 0, float(harms[n]), n) for n, name in enumerate(names)]
    plan = plan_preemption(occupancy, job("wanted", 1, gpus), victims)
    held = {(m.node, gpu) for m in plan.placement.members for gpu in m.gpus} if plan else set()
    for victim in plan.victims if plan else ():
        theirs = {(m.node, gpu) for m in occupancy.owners[victim.owner] for gpu in m.gpus}
        assert held & theirs, f"{victim.owner} is stopped and nothing of it is used"


def test_one_cheap_victim_is_preferred_to_a_dear_one_and_to_two() -> None:
    occupancy, _ = busy([(1, 4), (1, 4), (1, 4), (1, 4)])
    victims = [Victim("j0", 0, 9.0, 0), Victim("j1", 0, 2.0, 1), Victim("j2", 0, 3.0, 2)]
    plan = plan_preemption(occupancy, job("wanted", 1, 4), victims)
    assert plan is not None
    assert [victim.owner for victim in plan.victims] == ["j1"]


def test_the_least_harmful_leaf_is_emptied() -> None:
    """Every pair of victims is tried by hand; only those that share a leaf can help."""
    occupancy, names = busy([(1, 4)] * 4)
    harm = {"j0": 1.0, "j1": 8.0, "j2": 2.0, "j3": 3.0}
    wanted = job("wanted", 2, 4, required="leaf")
    plan = plan_preemption(
        occupancy, wanted, [Victim(name, 0, harm[name], n) for n, name in enumerate(names)]
    )
    assert plan is not None
    best = min(
        sum(harm[name] for name in pair)
        for pair in combinations(names, 2)
        if fits_without(occupancy, pair, wanted)
    )
    assert sum(victim.harm_gpu_s for victim in plan.victims) == best
