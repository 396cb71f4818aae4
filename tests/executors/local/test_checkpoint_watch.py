"""What the executor concludes from the files of the ranks, however they interleave with its looks."""

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.executors.local.checkpoints import CheckpointWatch, Saved
from gantree.executors.local.shim.shim import write_json
from gantree.model.orders import SaveCheckpoint
from support.examples import examples

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where flushing to disk costs nothing."""
WORLD_SIZE = 3


def watch(folder: Path) -> CheckpointWatch:
    return CheckpointWatch(folder, WORLD_SIZE, False, lambda: 0)


def say_saved(
    folder: Path, rank: int, step: int, request: str | None, request_step: int | None
) -> None:
    record = {"step": step, "request": request, "request_step": request_step}
    write_json(str(folder / f"rank-{rank}.json"), record)


PLANS = st.lists(st.booleans(), min_size=1, max_size=6)
"""Checkpoints in their order: whether each answers a request. Checkpoint number n is of step 10 (n + 1)."""
MOVES = st.lists(st.sampled_from([0, 1, 2, "look", "restart"]), max_size=60)


@settings(max_examples=examples(100), deadline=None)
@given(plan=PLANS, moves=MOVES)
def test_only_what_every_rank_has_saved_is_ever_reported(
    plan: list[bool], moves: list[int | str]
) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        folder = Path(name)
        progress = [0] * WORLD_SIZE
        watcher = watch(folder)
        for move in [*moves, "look"]:
            if move == "restart":
                watcher = watch(folder)
            elif move == "look":
                for saved in watcher.poll():
                    assert_complete(saved, plan, min(progress))
            elif progress[int(move)] < len(plan):
                step_of_answer = [10 * (n + 1) for n in range(progress[int(move)] + 1) if plan[n]]
                last = step_of_answer[-1] if step_of_answer else None
                request = None if last is None else f"r{last}"
                progress[int(move)] += 1
                say_saved(folder, int(move), 10 * progress[int(move)], request, last)
        complete = min(progress)
        if complete == max(progress) > 0:
            expected = Saved(10 * complete, f"r{10 * complete}" if plan[complete - 1] else None)
            assert expected in watcher.poll()


def assert_complete(saved: Saved, plan: list[bool], complete: int) -> None:
    assert saved.step <= 10 * complete
    if saved.request is not None:
        assert saved.request == f"r{saved.step}"
        assert plan[saved.step // 10 - 1]


def test_a_request_once_put_down_stays_as_it_is(tmp_path: Path) -> None:
    watcher = watch(tmp_path)
    for deadline_at in (1.0, 2.0):
        watcher.request(
            SaveCheckpoint(id="o", job="j", attempt=1, request="r", deadline_at=deadline_at)
        )
    assert json.loads((tmp_path / "request.json").read_text()) == {
        "request": "r",
        "deadline_at": 1.0,
    }


def test_an_answer_that_is_still_being_written_is_read_later(tmp_path: Path) -> None:
    watcher = CheckpointWatch(tmp_path, 1, True, lambda: 0)
    answer = tmp_path / "answer"
    answer.write_text("")
    assert watcher.poll() == ()
    answer.write_text("12\n")
    assert watcher.poll() == (Saved(12, None),)


def test_an_answer_that_every_rank_writes_is_one_answer(tmp_path: Path) -> None:
    watcher = CheckpointWatch(tmp_path, 2, True, lambda: 0)
    watcher.request(SaveCheckpoint(id="o", job="j", attempt=1, request="r1", deadline_at=1.0))
    for rank in (0, 1):
        (tmp_path / f"answer-{rank}").write_text("7\n")
        (tmp_path / f"answer-{rank}").rename(tmp_path / "answer")
        assert watcher.poll() == (Saved(7, "r1"),)
