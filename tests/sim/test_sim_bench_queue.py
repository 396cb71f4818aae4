"""The measuring of long queues: that it measures what it says, not how fast this machine is."""

from gantree.sim.bench.queue import queue


def test_all_gangs_wait_while_the_cycle_is_measured_and_some_are_placed_as_others_end() -> None:
    figures = queue(gpus=1024, gangs=60, events=12, reservations=2)
    assert (figures["gpus"], figures["waiting"], figures["reservations"]) == (1024, 60, 2)
    assert figures["running"] >= 50
    assert figures["placed"] > 0
    assert 0 < figures["all_median_ms"] <= figures["all_p99_ms"]
    assert figures["full_cycle_ms"] > 0
