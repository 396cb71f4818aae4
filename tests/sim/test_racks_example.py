"""What examples/racks/README.md says of its traces: who waits how long, and who is stopped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.formats import read_cluster, read_trace
from gantree.formats.policy.reader import read_policy
from gantree.sim.results import JobRow
from gantree.sim.run import simulate

EXAMPLE = Path(__file__).parents[2] / "examples/racks"


def simulated(trace: str, policy: str) -> dict[str, JobRow]:
    site = read_cluster((EXAMPLE / "cluster.yaml").read_text(), "cluster.yaml")
    rules = read_policy((EXAMPLE / f"policy-{policy}.yaml").read_text(), "policy.yaml")
    result = simulate(site, read_trace(EXAMPLE / f"{trace}.csv"), rules)
    return {row.job_id: row for row in result.jobs}


def stopped_for(rows: dict[str, JobRow], by: str) -> Iterator[str]:
    """Why a job was stopped, for all that were stopped for another."""
    return (stop.cause for row in rows.values() for stop in row.stops if stop.by == by)


@pytest.mark.parametrize(
    ("policy", "waits_s"),
    [("counts", [0, 0, 0, 5400, 5400]), ("cells", [0, 0, 0, 0, 4800])],
)
def test_gangs_of_a_rack_wait_while_nobody_borrows_and_no_longer(
    policy: str, waits_s: list[float]
) -> None:
    rows = simulated("jobs", policy)
    gangs = [rows[f"gec-{number}"] for number in range(5)]
    assert [gang.wait_s for gang in gangs] == waits_s
    assert all(gang.domains[0] == 1 and gang.finished and not gang.stops for gang in gangs)
    for gang in gangs:
        assert list(stopped_for(rows, gang.job_id)) == (["reclaim"] * 4 if gang.wait_s == 0 else [])
    assert all(row.finished for row in rows.values())


def test_heroes_get_their_racks_at_once_and_nobody_is_stopped_twice_for_one() -> None:
    rows = simulated("heroes", "heroes")
    racks = {"peer-1": 1, "hero-1": 1, "hero-2": 2, "hero-4": 4}
    for hero, count in racks.items():
        assert rows[hero].wait_s == 0
        assert rows[hero].domains[0] == count
        stopped = [row.job_id for row in rows.values() for stop in row.stops if stop.by == hero]
        assert len(stopped) == len(set(stopped))
        assert len(stopped) <= 18 * count
    assert set(stopped_for(rows, "peer-1")) == {"moved"}
    assert set(stopped_for(rows, "hero-4")) == {"priority"}
    assert all(row.finished for row in rows.values())
