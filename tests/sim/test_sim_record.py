"""What is recorded of attempts: from when to when each held its place, with how many GPUs, and why it was stopped."""

from gantree.formats.traces import TraceJob
from gantree.policy.rules import Policy
from gantree.sim.cluster import Overheads
from gantree.sim.record import Span
from gantree.sim.run import Simulation
from gantree.testing.builders import cluster


def run(*trace: TraceJob) -> Simulation:
    simulation = Simulation(
        cluster(leaves=1, nodes=2, gpus=4), trace, Policy(), Overheads(start_s=5)
    )
    while simulation.step():
        pass
    return simulation


def told(span: Span) -> tuple[str, int, float, float | None, float, str]:
    return (span.job, span.attempt, span.from_s, span.to_s, span.gpus, span.cause)


def test_each_attempt_is_a_span_with_its_cause_and_what_it_lost() -> None:
    simulation = run(
        TraceJob("low", 0, 100, 2, 4, priority="research"),
        TraceJob("high", 40, 10, 2, 4, priority="serving"),
    )
    assert [told(span) for span in simulation.record.spans] == [
        ("tlow", 1, 0, 40, 8, "priority"),
        ("thigh", 1, 40, 55, 8, ""),
        ("tlow", 2, 55, 160, 8, ""),
    ]
    assert simulation.cluster.work_of_job["tlow"].lost_s_of_attempt == {1: 40.0}


def test_spans_add_up_to_the_held_gpu_seconds() -> None:
    simulation = run(*(TraceJob(f"j{n}", n * 7 % 50, 5 + n * 13 % 40, 1, 4) for n in range(20)))
    spans = simulation.record.spans
    held = sum((span.to_s - span.from_s) * span.gpus for span in spans if span.to_s is not None)
    assert held == simulation.record.held_gpu_s > 0


def test_the_losses_of_attempts_add_up_to_those_of_the_job() -> None:
    low = TraceJob("low", 0, 100, 2, 4, priority="research", checkpoint_s=30)
    simulation = run(
        low, *(TraceJob(f"h{n}", 40 + n * 50, 10, 1, 4, priority="serving") for n in range(2))
    )
    work = simulation.cluster.work_of_job["tlow"]
    assert len(work.lost_s_of_attempt) == 2
    assert sum(work.lost_s_of_attempt.values()) == work.lost_s > 0
