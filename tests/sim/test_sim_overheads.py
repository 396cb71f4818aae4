"""What a simulated cluster needs for orders, and how late it tells what has happened."""

from gantree.formats import read_cluster, read_policy
from gantree.formats.traces import TraceJob
from gantree.sim.overheads import AttemptOverheads, Overheads
from gantree.sim.run import Simulation

SITE = read_cluster(
    """
name: one
tiers: [leaf, node]
machines: {m2: {gpus: 2, gpu: H100-80GB, cpus: 8, memory_GiB: 64}}
nodes: [{names: "n[0-1]", machine: m2, at: {leaf: l0}}]
""",
    "site.yaml",
)
POLICY = read_policy("preset: gantree\nevictions: {min_run: 0s}\n", "policy.yaml")


def run(overheads: Overheads, *rows: TraceJob) -> dict[str, tuple[float | None, float | None, int]]:
    """First start, end and attempts of each job."""
    one = Simulation(SITE, rows, POLICY, overheads)
    while one.step():
        pass
    return {row.job_id: (row.first_start_s, row.end_s, row.attempts) for row in one.result().jobs}


def test_an_end_is_known_late_and_until_then_the_place_is_held() -> None:
    rows = TraceJob("a", 0, 100, 2, 2), TraceJob("b", 0, 10, 2, 2)
    assert run(Overheads(end_s=3), *rows) == {"a": (0, 103, 1), "b": (103, 116, 1)}


def test_who_is_told_to_stop_after_its_work_was_done_has_ended_by_itself() -> None:
    rows = TraceJob("a", 0, 100, 2, 2), TraceJob("p", 102, 10, 2, 2, priority="production")
    assert run(Overheads(end_s=3), *rows) == {"a": (0, 103, 1), "p": (103, 116, 1)}
    assert run(Overheads(end_s=1), *rows)["a"] == (0, 101, 1)
    before = TraceJob("p", 99, 10, 2, 2, priority="production")
    assert run(Overheads(end_s=3), rows[0], before)["a"] == (0, 215, 2)


def test_what_is_seen_together_is_decided_together() -> None:
    rows = TraceJob("a", 0, 100, 1, 2), TraceJob("b", 0, 100.25, 1, 2), TraceJob("c", 0, 101, 1, 0)
    assert moments(0.0, *rows) == [0, 100, 100.25, 101]
    assert moments(0.5, *rows) == [0, 100.25, 101]


def moments(together_s: float, *rows: TraceJob) -> list[float]:
    """When something was decided."""
    one, found = Simulation(SITE, rows, POLICY, Overheads(together_s=together_s)), [0.0]
    while one.step():
        found.append(one.now)
    return sorted(set(found))


def test_an_attempt_may_need_what_no_other_does() -> None:
    own = {
        ("ta", 1): AttemptOverheads(start_s=7, stop_s=4),
        ("ta", 2): AttemptOverheads(end_s=2),
    }
    rows = TraceJob("a", 0, 100, 2, 2), TraceJob("p", 50, 10, 2, 2, priority="production")
    assert run(Overheads(start_s=1, of_attempt=own), *rows) == {
        "a": (7, 168, 2), "p": (55, 65, 1)
    }  # fmt: skip
