"""The measuring of decisions: that it measures what it says, not how fast this machine is."""

from random import Random

from gantree.sim.bench.decisions import decisions
from gantree.sim.bench.mix import gang, half_full

GANGS = 4000


def test_the_figures_are_of_the_gangs_that_were_asked_for_and_the_same_gangs_again() -> None:
    first, second = (decisions(gpus=512, decisions=30, seed=7) for _ in range(2))
    assert (first["gpus"], first["decisions"]) == (512, 30)
    assert first["refused"] == second["refused"]
    assert 0 < first["median_us"] <= first["p99_us"]
    assert first["median_us"] < first["handle_p99_us"]
    assert decisions(gpus=512, decisions=30, seed=8)["refused"] != first["refused"]


def test_the_cluster_is_half_full_and_broken_up() -> None:
    site = half_full(131_072, Random(1))
    taken = [len(allocation.gpus) for allocation in site.allocations]
    assert len(site.tiers) == 4
    assert abs(sum(taken) / (len(site.nodes) * 8) - 0.5) < 0.02
    assert set(taken) == set(range(1, 9))


def test_the_mix_is_as_documented() -> None:
    random = Random(1)
    gangs = [gang(f"g{number}", random) for number in range(GANGS)]

    def share(kind: list[bool]) -> float:
        return round(sum(kind) / GANGS, 1)

    assert share([g.topology.required == "leaf" for g in gangs]) == 0.3
    assert share([g.topology.preferred == "leaf" for g in gangs]) == 0.4
    assert share([bool(g.topology.slices) for g in gangs]) == 0.1
    assert share([g.members > 8 for g in gangs]) == 0.2
    assert all(g.members % cut.members == 0 for g in gangs for cut in g.topology.slices)
    assert {g.roles[0].shape.gpus for g in gangs} == {1, 2, 4, 8}
