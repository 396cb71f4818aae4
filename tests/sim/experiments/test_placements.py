"""Fleets of the placement experiments, and two gangs on shared up-links."""

import pytest

from gantree.sim.experiments.network.congestion import FIRST, Case, measure, second_place
from gantree.sim.experiments.placements import FLEETS, GANTREE, Fleet, Run, job_in
from gantree.topology.traffic.footprint import fits


def test_pods_have_at_most_so_many_gpus_and_gangs_keep_theirs() -> None:
    whole, single = (Fleet("v100-100g", "muri-trace3", each).rows() for each in (8, 1))
    for one, other in zip(whole, single, strict=True):
        assert one.members * one.gpus_per_member == other.members * other.gpus_per_member
        assert one.gpus_per_member <= 8
        assert other.gpus_per_member == 1


@pytest.mark.parametrize("fleet", FLEETS, ids=lambda fleet: fleet.name)
def test_no_job_draws_a_model_that_its_gpus_cannot_hold(fleet: Fleet) -> None:
    run = Run(fleet, "heavy", GANTREE, 1)
    for row in fleet.rows()[::40]:
        assert fits(job_in(run, row), fleet.gpu()) is not False


def test_the_second_gang_leaves_busy_links_alone_where_it_knows_of_them() -> None:
    case = Case("llama-7b", 4)
    leaves = (
        {node[0] for node in second_place(case, 0.0)},
        {node[0] for node in second_place(case, 0.9)},
    )
    assert leaves == ({"a", "b"}, {"c", "d"})
    assert {node[0] for node in FIRST} == {"a", "b"}


def test_gangs_that_meet_on_narrow_links_slow_each_other_down_and_others_do_not() -> None:
    pair = measure(Case("llama-7b", 4))
    assert min(pair.without) > 1.3
    assert pair.with_load == pytest.approx((1.0, 1.0))
