"""reproduce: curves are compared bit for bit, and real processes are preempted and moved."""

from gantree.sim.experiments.reliability.reproduce import (
    ASKED,
    STEPS,
    STOPPED,
    all_curves,
    differing,
    read_curve,
)

ALONE = "begins after step 0 on node n0\nstep 1 loss 0x1.8p-3\nstep 2 loss 0x1.4p-3\n"


def test_a_step_that_is_done_twice_counts_only_if_it_came_out_otherwise() -> None:
    plain = read_curve([ALONE])
    again = read_curve([ALONE, "begins after step 1 on node n1\nstep 2 loss 0x1.4p-3\n"])
    other = read_curve([ALONE, "begins after step 1 on node n1\nstep 2 loss 0x1.5p-3\n"])
    assert (again.steps, again.nodes) == (3, ("n0", "n1"))
    assert differing(again, plain) == []
    assert differing(other, plain) == [2]
    assert differing(read_curve([ALONE.replace("step 2", "step 3")]), plain) == [2, 3]


def test_a_job_that_is_preempted_and_moved_has_the_curve_of_one_that_is_not() -> None:
    curves = all_curves()
    plain = curves["undisturbed"]
    assert sorted(plain.losses()) == list(range(1, STEPS + 1))
    for mode in (ASKED, STOPPED):
        assert curves[mode].nodes == ("n0", "n1")
        assert differing(curves[mode], plain) == []
    assert curves[STOPPED].steps > STEPS
