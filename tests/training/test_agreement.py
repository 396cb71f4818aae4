"""The ranks agree on a step: under any interleaving that a collective in every step allows."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree import training
from gantree.training.agreement import Agreement, agreement_of
from support.examples import examples


@dataclass
class Lockstep:
    """Ranks that train in lockstep: each step is "enter the collective", "leave it", "ask".

    Nobody leaves a collective that rank 0 has not entered, or rank 0 one that somebody has not entered. A
    collective comes every `lead` steps.
    """

    folder: Path
    world_size: int
    lead: int = 1
    time_s: float = 0.0
    every_s: float | None = None
    entered: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    saved: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entered = [0] * self.world_size
        self.asked = [0] * self.world_size
        self.saved = [[] for _ in range(self.world_size)]
        self._agreements = [
            Agreement(self.folder, rank, self.every_s, lambda: self.time_s)
            for rank in range(self.world_size)
        ]

    def request(self, request: str) -> None:
        temporary = self.folder / ".request"
        temporary.write_text(json.dumps({"request": request, "deadline_at": 0.0}))
        temporary.replace(self.folder / "request.json")

    def move(self, rank: int) -> None:
        """One rank does its next thing, if it can."""
        if self.entered[rank] == self.asked[rank]:
            self.entered[rank] += 1
        elif self._may_leave(rank):
            self.asked[rank] += 1
            if self._agreements[rank].should_checkpoint(self.asked[rank], self.lead):
                self.saved[rank].append(self.asked[rank])
                self._agreements[rank].saved(self.asked[rank])

    def _may_leave(self, rank: int) -> bool:
        step = self.entered[rank]
        if step % self.lead:
            return True
        others = self.entered if rank == 0 else [self.entered[0]]
        return min(others) >= step

    def level(self) -> None:
        """Let everybody come to the end of the same step."""
        step = max(self.entered)
        while min(self.asked) < step:
            for rank in range(self.world_size):
                if self.asked[rank] < step:
                    self.move(rank)

    def rank_files(self) -> Iterator[dict[str, object]]:
        for rank in range(self.world_size):
            yield json.loads((self.folder / f"rank-{rank}.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    return tmp_path / "checkpoint"


IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where flushing to disk costs nothing."""
MOVES = st.lists(st.sampled_from([0, 0, 1, 1, 2, 2, "request", "tick"]), min_size=60, max_size=150)


@settings(max_examples=examples(60), deadline=None)
@given(moves=MOVES, lead=st.sampled_from([1, 1, 2, 3]), every_s=st.sampled_from([None, 2.0]))
def test_all_ranks_save_the_same_steps_and_every_last_request_is_answered(
    moves: list[int | str], lead: int, every_s: float | None
) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        ranks = Lockstep(Path(folder), 3, lead, every_s=every_s)
        request = None
        for number, move in enumerate(moves):
            if move == "request":
                request = f"r{number}"
                ranks.request(request)
            elif move == "tick":
                ranks.time_s += 1.0
            else:
                ranks.move(int(move))
        for _ in range(2 * lead + 1):
            ranks.level()
            for rank in range(3):
                ranks.move(rank)
        ranks.level()
        assert len({tuple(saved) for saved in ranks.saved}) == 1, ranks.saved
        if request is not None:
            assert {record["request"] for record in ranks.rank_files()} == {request}


def test_rank_0_forgets_agreements_that_all_have_passed(folder: Path) -> None:
    ranks = Lockstep(folder, 2)
    for number in range(20):
        ranks.request(f"r{number}")
        for rank in (0, 1, 0, 1):
            ranks.move(rank)
        ranks.level()
    assert len(list(folder.glob("agreed-*.json"))) <= 3


def test_a_request_is_agreed_on_once(folder: Path) -> None:
    rank = Agreement(folder, 0, None)
    (folder / "request.json").write_text('{"request": "r1", "deadline_at": 0}')
    answers = [rank.should_checkpoint(step, 1) for step in range(1, 6)]
    assert answers == [False, True, False, False, False]


def test_periodic_checkpoints_come_by_the_clock_of_rank_0(folder: Path) -> None:
    now = [0.0]
    rank = Agreement(folder, 0, 10.0, lambda: now[0])
    due = []
    for step in range(1, 40):
        now[0] = float(step)
        if rank.should_checkpoint(step, 1):
            due.append(step)
    assert due == [11, 21, 31]


def test_an_earlier_step_in_the_same_process_does_not_end_the_agreeing(folder: Path) -> None:
    rank = Agreement(folder, 0, None)
    for request, steps in (("r1", range(1000, 1003)), ("r2", range(10, 13))):
        (folder / "new").write_text(json.dumps({"request": request}))
        (folder / "new").replace(folder / "request.json")
        assert [rank.should_checkpoint(step, 1) for step in steps] == [False, True, False]


def test_without_gantree_nothing_is_asked_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("GANTREE_")] + [
        "RANK",
        "WORLD_SIZE",
    ]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert training.should_checkpoint(1) is False
    training.saved(1)
    assert (training.rank(), training.world_size(), training.local_rank()) == (0, 1, 0)
    assert training.checkpoint_path() is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_directory_out_of_reach_means_no_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agreement_of({"GANTREE_RUN_DIR": str(tmp_path / "gone")}) is None
    assert "cannot be reached" in capsys.readouterr().err


def test_importing_it_pulls_in_the_standard_library_only() -> None:
    script = (
        "import sys; import gantree.training;"
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'pydantic', 'yaml', 'torch')"
        " or m.startswith('gantree.') and not m.startswith('gantree.training')])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
