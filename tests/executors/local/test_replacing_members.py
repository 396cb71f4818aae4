"""One member of a running gang starts anew, in its place or on another node, and the processes of the others stay."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.executors.local.shim.shim import read_json
from gantree.model.events import (
    GangEnded,
    GangStarted,
    GangStartFailed,
    MemberLost,
    MemberStarted,
    RankExited,
)
from gantree.model.orders import ReplaceMember, StartGang
from support.gangs import GangStage, left_over

NOTES = 'echo "$$ $GANTREE_NODE $GANTREE_LIFE" >> {notes}/$RANK; '
ALL_BEGAN = "until [ $(ls {notes} | wc -l) -ge 6 ]; do sleep 0.02; done; "
WAITS = "until [ -e {notes}/over ]; do sleep 0.02; done"


def begin(
    stage: GangStage, notes: Path, script: str = NOTES + WAITS, *, replaceable: bool = True
) -> StartGang:
    """A gang of three members with two processes each, whose members can be replaced."""
    notes.mkdir(exist_ok=True)
    command = ("sh", "-c", script.format(notes=notes))
    order = stage.start(*command, members=3, processes=2, replaceable=replaceable)
    stage.until_told(GangStarted)
    for rank in range(order.world_size):
        stage.until_file(notes / str(rank))
    return order


def replace_member(
    stage: GangStage, order: StartGang, member: int = 1, node: str = "n3", life: int = 1
) -> ReplaceMember:
    """Order that a member starts on a node."""
    launches = tuple(
        replace(each, node=node) if each.node_rank == member else each for each in order.members
    )
    told = ReplaceMember(
        id=f"j/1/replace-{member}-{life}",
        job="j",
        attempt=1,
        member=member,
        life=life,
        gang=replace(order, members=launches),
    )
    stage.cluster.carry_out(told)
    return told


def lives(notes: Path, rank: int) -> list[list[str]]:
    """Pid, node and life of each process that a rank has been."""
    return [line.split() for line in (notes / str(rank)).read_text().splitlines()]


def kill_shim(stage: GangStage, member: int) -> None:
    record = read_json(str(stage.state_dir / f"runs/j/1/m{member}/shim.json"))
    os.kill(record["pid"], signal.SIGKILL)


def until_back(stage: GangStage, notes: Path, ranks: tuple[int, ...], times: int = 2) -> None:
    stage.until(lambda: all(len(lives(notes, rank)) == times for rank in ranks))


def test_a_member_that_is_killed_starts_on_a_spare_and_the_others_stay(
    stage: GangStage, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    order = begin(stage, notes)
    kill_shim(stage, 1)
    lost = stage.until_told(MemberLost)
    assert (lost.rank, lost.life, lost.member) == (2, 0, 1)
    assert stage.told(GangEnded) == []
    replace_member(stage, order)
    back = stage.until_told(MemberStarted)
    assert (back.member, back.life) == (1, 1)
    until_back(stage, notes, (2, 3))
    assert [each[1:] for each in lives(notes, 2)] == [["n1", "0"], ["n3", "1"]]
    assert all(len(lives(notes, rank)) == 1 for rank in (0, 1, 4, 5))
    (notes / "over").touch()
    assert stage.until_ended() == 0


def test_a_member_that_still_runs_is_stopped_first_also_one_that_ignores_sigterm(
    stage: GangStage, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    order = begin(stage, notes, "trap '' TERM; " + NOTES + WAITS)
    (old, *_), *_ = lives(notes, 2)
    replace_member(stage, order)
    stage.until_told(MemberStarted)
    until_back(stage, notes, (2, 3))
    assert not Path(f"/proc/{old}").exists()
    assert stage.told(MemberLost) == []
    (notes / "over").touch()
    assert stage.until_ended() == 0


def test_a_rank_that_fails_does_not_stop_the_others_until_it_is_decided(
    stage: GangStage, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    fails = '[ "$RANK" = 3 ] && [ "$GANTREE_LIFE" = 0 ] && exit 7; '
    order = begin(stage, notes, NOTES + ALL_BEGAN + fails + WAITS)
    stage.until(lambda: {2, 3} <= stage.exit_codes().keys())
    assert [each.life for each in stage.told(RankExited)] == [0, 0]
    assert stage.cluster.inventory().status("j", 1) == "partial"
    replace_member(stage, order, node="n1")
    stage.until_told(MemberStarted)
    until_back(stage, notes, (2, 3))
    (notes / "over").touch()
    assert stage.until_ended() == 0


@pytest.mark.parametrize("rank", [0, 5])
def test_the_first_member_and_any_of_a_gang_that_cannot_ends_all(
    stage: GangStage, tmp_path: Path, rank: int
) -> None:
    notes = tmp_path / "notes"
    fails = f'[ "$RANK" = {rank} ] && exit 7; '
    begin(stage, notes, NOTES + ALL_BEGAN + fails + WAITS, replaceable=rank == 0)
    assert stage.until_ended() == 7


def test_an_order_to_stop_ends_a_gang_of_which_a_member_is_missing(
    stage: GangStage, tmp_path: Path
) -> None:
    begin(stage, tmp_path / "notes")
    kill_shim(stage, 1)
    stage.until_told(MemberLost)
    stage.stop()
    assert stage.until_ended() != 0
    assert left_over(tmp_path) == []


def test_the_same_order_again_starts_nothing_and_a_later_life_does(
    stage: GangStage, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    order = begin(stage, notes)
    told = replace_member(stage, order)
    stage.until_told(MemberStarted)
    until_back(stage, notes, (2, 3))
    stage.cluster.carry_out(told)
    stage.cluster.carry_out(order)
    for _ in range(10):
        stage.cluster.poll()
    assert len(lives(notes, 2)) == 2
    replace_member(stage, told.gang, node="n1", life=2)
    stage.until_told(MemberStarted, 2)
    until_back(stage, notes, (2, 3), 3)
    assert lives(notes, 3)[-1][1:] == ["n1", "2"]


def test_a_daemon_that_dies_before_the_new_member_starts_is_made_up_for(
    stage: GangStage, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    order = begin(stage, notes, "trap '' TERM; " + NOTES + WAITS)
    replace_member(stage, order)  # the old one takes its grace; this daemon never polls again
    stage.events.clear()
    stage.open().adopt()
    stage.until_told(MemberStarted)
    until_back(stage, notes, (2, 3))
    assert [each[1:] for each in lives(notes, 2)] == [["n1", "0"], ["n3", "1"]]
    record = json.loads((stage.state_dir / "runs/j/1/gang.json").read_text())
    assert record["lives"] == {"1": 1}
    (notes / "over").touch()
    assert stage.until_ended() == 0


def test_the_ranks_of_a_replaced_member_are_where_it_is(stage: GangStage, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    order = begin(stage, notes)
    replace_member(stage, order)
    stage.until_told(MemberStarted)
    ranks = json.loads((stage.state_dir / "runs/j/1/ranks.json").read_text())
    assert [member["node"] for member in ranks["members"]] == ["n0", "n3", "n2"]
    (notes / "over").touch()
    assert stage.until_ended() == 0


def test_a_new_member_that_cannot_start_ends_all(stage: GangStage, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    order = begin(stage, notes)
    gone = replace(
        order, members=tuple(replace(each, run=("/no/such/thing",)) for each in order.members)
    )
    replace_member(stage, gone)
    failed = stage.until_told(GangStartFailed)
    assert "/no/such/thing" in failed.reason
    assert stage.until_ended() != 0


def test_a_replacement_does_not_start_before_the_old_one_is_gone(
    stage: GangStage, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    order = begin(stage, notes, "trap '' TERM; " + NOTES + WAITS)
    old = [pid for pid, *_ in (*lives(notes, 2), *lives(notes, 3))]
    replace_member(stage, order, node="n1")
    seen = []

    def is_back() -> bool:
        if (stage.state_dir / "runs/j/1/m1.1/shim.json").exists():
            seen.append([pid for pid in old if Path(f"/proc/{pid}").exists()])
        return bool(seen)

    stage.until(is_back)
    assert seen[0] == []
    (notes / "over").touch()
    assert stage.until_ended() == 0
