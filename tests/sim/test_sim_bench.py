"""The measuring of decisions: that it measures what it says, not how fast this machine is."""

from random import Random

from gantree.sim.bench.decisions import decisions
from gantree.sim.bench.memory import memory
from gantree.sim.bench.mix import GPUS_OF_LEAF, gang, half_full
from gantree.sim.bench.siblings import fill, large_gang, refusals
from gantree.sim.bench.tas import tas

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

    too_large = [g.members > GPUS_OF_LEAF and g.topology.required == "leaf" for g in gangs]
    held = [g.topology.required == "leaf" for g in gangs]
    assert share([one and not other for one, other in zip(held, too_large, strict=True)]) == 0.3
    assert 0.04 < sum(too_large) / GANGS < 0.1
    assert share([g.topology.preferred == "leaf" for g in gangs]) == 0.4
    assert share([bool(g.topology.slices) for g in gangs]) == 0.1
    assert share([g.members > 8 for g in gangs]) == 0.2
    assert all(g.members % cut.members == 0 for g in gangs for cut in g.topology.slices)
    assert {g.roles[0].shape.gpus for g in gangs} == {1, 2, 4, 8}


def test_a_large_gang_is_placed_and_measured() -> None:
    figures = large_gang(1024, 40, 1, "spine", decisions=2, seed=1)
    assert (figures["gpus"], figures["members"], figures["placed"]) == (1024, 40, 2)
    assert 0 < figures["median_us"] <= figures["p99_us"]
    assert large_gang(64, 80, 1, "leaf", decisions=2, seed=1)["placed"] == 0


def test_an_empty_cluster_is_filled_to_the_last_gpu() -> None:
    figures = fill(64)
    assert (figures["jobs"], figures["placed"]) == (64, 64)
    assert 0 < figures["seconds"] < figures["handle_seconds"] + 60


def test_every_gang_that_is_made_to_be_refused_is() -> None:
    assert refusals(2048, decisions=4, seed=1)["refused"] == 1.0


def test_all_gangs_of_the_kueue_test_get_a_place() -> None:
    figures = tas(queues=1)
    assert figures["gangs"] == figures["placed"] == 500
    assert figures["events"] == 1500
    assert figures["makespan_s"] == 61.0  # the last large gang comes at 60 s and runs for one


def test_memory_is_that_of_all_shapes() -> None:
    figures = memory(1024)
    assert (figures["gpus"], figures["shapes"]) == (1024, 10)
    assert figures["after_import_MB"] > 0
