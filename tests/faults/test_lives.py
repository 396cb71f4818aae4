"""Lives under faults: a few fixed seeds in the suite, thousands in `make soak`; and the tools they are made of."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from gantree.journal.sqlite import FILE, connect
from gantree.model.orders import MemberLaunch
from support.faults import write_ahead_log as log
from support.faults.clocks import MachineClocks, Timeline
from support.faults.devices_in_use import DevicesInUse
from support.faults.disk import LOG, Disk
from support.faults.life import LEAST_EVENTS, LEAST_FAULTS
from support.faults.plan import DAILY, FAULTY, SERVING, Action, plan_of
from support.faults.points import Died, Points
from support.faults.shrink import shrunk
from support.faults.soak import lived
from support.faults.tally import FAULTS, Tally, table

SEEDS = (0, 3, 5, 9)
"""Of both kinds of journals, and quick."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life_under_faults_loses_nothing_and_starts_nothing_twice(seed: int) -> None:
    outcome = lived(seed)
    assert outcome.error == "", "\n".join(outcome.trace[-60:])
    assert outcome.events >= LEAST_EVENTS
    assert sum(outcome.tally.values()) >= LEAST_FAULTS


def test_a_seed_is_the_same_life_each_time() -> None:
    plan = [action for action, _ in zip(plan_of(6), range(60), strict=False)]
    one, other = lived(6, plan), lived(6, plan)
    assert [_unplaced(line) for line in one.trace] == [_unplaced(line) for line in other.trace]
    assert one.events == other.events
    assert one.tally == other.tally


def _unplaced(line: str) -> str:
    """A line of a trace without the directory of the run."""
    before, _, after = line.partition("gantree-life-")
    return before + after.partition("/")[2]


def test_every_kind_of_fault_comes_in_some_life() -> None:
    kinds = {
        action.kind
        for seed in range(5)
        for action, _ in zip(plan_of(seed), range(400), strict=False)
    }
    assert kinds == DAILY.keys() | FAULTY.keys() | SERVING.keys()
    lines = table(Tally(dict.fromkeys(FAULTS, 1)), 1).splitlines()
    assert [line[:22].strip() for line in lines[1:-1]] == list(FAULTS)


# ----- the disk


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path, Tally(), Random(0))


def write(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"INSERT INTO t VALUES ({number})")
    connection.execute("COMMIT")


def opened(disk: Disk, points: Points) -> sqlite3.Connection:
    connection = connect(disk.place / FILE, disk.attached(points))
    connection.execute("CREATE TABLE IF NOT EXISTS t (n)")
    return connection


def rows(disk: Disk) -> list[int]:
    with closing(sqlite3.connect(disk.place / FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [number for (number,) in connection.execute("SELECT n FROM t ORDER BY n")]


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_leaves_what_was_waited_for_and_no_half_transaction(
    tmp_path: Path, seed: int
) -> None:
    lots = Random(seed)
    disk = Disk(tmp_path, Tally(), lots)
    with closing(opened(disk, Points())) as connection:
        for number in range(lots.randint(1, 30)):
            write(connection, number)
        synced = number
        connection.execute("PRAGMA synchronous = NORMAL")
        for number in range(100, 100 + lots.randint(1, 10)):
            write(connection, number)
        disk.after_power_cut()
    found = rows(disk)
    assert found[: synced + 1] == list(range(synced + 1))
    more = found[synced + 1 :]
    assert more == list(range(100, 100 + len(more))), "a part without what came before it"


def test_a_kill_leaves_all_that_was_written(disk: Disk) -> None:
    points = Points()

    def die(where: str) -> None:
        disk.after_kill()
        raise Died

    with closing(opened(disk, points)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        write(connection, 1)
        points.plan(2, die)
        with pytest.raises(Died):
            write(connection, 2)
    assert rows(disk) == [1]


def test_a_full_disk_refuses_a_transaction_whole(disk: Disk) -> None:
    with closing(opened(disk, Points())) as connection:
        write(connection, 1)
        disk.is_full = True
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            connection.executemany("INSERT INTO t VALUES (?)", [("x" * 4000,)] * 9)
        assert not connection.in_transaction
        disk.is_full = False
        write(connection, 2)
        disk.after_kill()
    assert rows(disk) == [1, 2]


def test_the_end_of_a_log_is_that_of_its_last_whole_transaction(disk: Disk) -> None:
    with closing(opened(disk, Points())) as connection:
        write(connection, 1)
        whole = log.end_of(disk.place / LOG, log.NOTHING)
        assert whole.size == (disk.place / LOG).stat().st_size
        with (disk.place / LOG).open("ab") as file:
            file.write(b"torn")
        assert log.end_of(disk.place / LOG, whole) == whole
    assert log.end_of(disk.place / "nothing", whole) == log.NOTHING


# ----- clocks, devices, plans


def test_a_machine_that_is_frozen_does_not_notice(
    clocks: MachineClocks, timeline: Timeline
) -> None:
    before = clocks.since_boot()
    clocks.freeze()
    timeline.advance(100.0)
    assert clocks.since_boot() == before
    clocks.thaw()
    timeline.advance(1.0)
    assert clocks.since_boot() == before + 1.0
    clocks.set_wall(-50.0)
    assert clocks.wall() == timeline.now - 50.0
    clocks.boot()
    assert clocks.since_boot() == 0.0


@pytest.fixture
def timeline() -> Timeline:
    return Timeline()


@pytest.fixture
def clocks(timeline: Timeline) -> Iterator[MachineClocks]:
    yield MachineClocks(timeline)


def test_two_processes_on_one_gpu_are_found() -> None:
    def member(node: str, *gpus: int) -> MemberLaunch:
        return MemberLaunch("w", 0, node, 0, 0, 1, gpus, (), ("true",))

    devices = DevicesInUse()
    assert devices.begin(("a", 1, 0, 0), member("n0", 0, 1)) == []
    assert devices.begin(("b", 1, 0, 0), member("n1", 0)) == []
    assert devices.begin(("c", 1, 0, 0), member("n0", 2)) == []
    (clash,) = devices.begin(("d", 1, 0, 0), member("n0", 1))
    assert "('a', 1, 0, 0) both run on n0: 1" in clash
    devices.end(("a", 1, 0, 0))
    devices.end(("d", 1, 0, 0))
    assert devices.begin(("e", 1, 0, 0), member("n0", 1)) == []


def test_a_plan_is_shortened_to_what_is_needed_to_fail() -> None:
    plan = [Action("time passes", number) for number in range(100)]
    needed = {plan[17], plan[63], plan[64]}
    found = shrunk(plan, lambda part: needed <= set(part), within_s=10.0)
    assert set(found) == needed
