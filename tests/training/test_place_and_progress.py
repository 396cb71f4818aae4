"""Where a script stands, which start of the gang it is in, and how it says how far it is: with and without gantree."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree import training
from gantree.training import folders, huggingface
from gantree.training.place import neighbours_in, rendezvous_in
from gantree.training.reporting import Reporter, files_in

SRC = Path(training.__file__).parents[2]


def member(ranks: list[int], node: str, leaf: str, nvlink: list[str]) -> dict[str, object]:
    return {"ranks": ranks, "domains": {"leaf": leaf, "node": node}, "nvlink": nvlink}


def environment(folder: Path, rank: int, world_size: int = 6, started: int = 6) -> dict[str, str]:
    members = [
        member([0, 1], "n0", "l0", ["n0#0", "n0#0"]),
        member([2, 4], "n1", "l0", ["n1#0", "n1#1"]),
        member([3, 5], "n2", "l1", ["n2#0", "n2#1"]),
    ]
    (folder / "ranks.json").write_text(json.dumps({"tiers": ["leaf", "node"], "members": members}))
    return {
        "GANTREE_RUN_DIR": str(folder),
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "GANTREE_WORLD_SIZE": str(started),
    }


def test_neighbours_come_from_the_rank_map(tmp_path: Path) -> None:
    assert neighbours_in(environment(tmp_path, 4)) == {
        "leaf": (0, 1, 2, 4),
        "node": (2, 4),
        "nvlink": (4,),
    }
    assert neighbours_in(environment(tmp_path, 1))["nvlink"] == (0, 1)


def test_each_rank_of_the_map_stands_for_as_many_as_a_launcher_started(tmp_path: Path) -> None:
    near = neighbours_in(environment(tmp_path, 9, world_size=12))
    assert near["node"] == (4, 5, 8, 9)
    assert near["nvlink"] == (8, 9)


def test_outside_gantree_there_are_sensible_answers() -> None:
    assert neighbours_in({}) == {"node": (0,)}
    assert neighbours_in({"RANK": "5", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}) == {
        "node": (4, 5, 6, 7)
    }
    assert neighbours_in({"GANTREE_RUN_DIR": "/nonexistent", "RANK": "x"}) == {"node": (0,)}
    alone = rendezvous_in({})
    assert (alone.restarts, alone.world_size, alone.resized) == (0, 1, False)
    program = (
        "from gantree import training as t; t.progress(1, loss=2.0); t.saved(1);"
        "print(t.rank(), t.world_size(), t.local_rank(), t.should_checkpoint(1), t.neighbours(), t.checkpoint_path())"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "0 1 0 False {'node': (0,)} None"
    assert done.stderr == ""


def test_a_gang_that_comes_back_smaller_knows_how_large_it_was() -> None:
    told = rendezvous_in(
        {
            "GANTREE_RENDEZVOUS_ID": "j-3",
            "GANTREE_RESTARTS": "2",
            "GANTREE_PREVIOUS_WORLD_SIZE": "4",
            "WORLD_SIZE": "4",
            "GANTREE_WORLD_SIZE": "2",
            "MASTER_PORT": "20001",
        }
    )
    assert (told.id, told.restarts, told.previous_world_size, told.resized) == ("j-3", 2, 8, True)


@given(st.lists(st.tuples(st.floats(0.01, 3), st.integers(1, 5)), min_size=1, max_size=40))
def test_progress_is_written_at_most_once_a_second_and_the_last_word_at_the_end(
    words: list[tuple[float, int]],
) -> None:
    now, step, written = 0.0, 0, []

    class Kept(Reporter):
        def _write(
            self,
            step: int,
            loss: float | None,
            samples_per_s: float | None,
            *,
            is_last: bool = False,
        ) -> None:
            self._unwritten = None
            written.append((now, step))

    reporter = Kept(lambda record: None, None, lambda: now, lambda: now)
    for seconds, steps in words:
        now, step = now + seconds, step + steps
        reporter.report(step, None, None)
    assert all(b[0] - a[0] >= 1 for a, b in pairwise(written))
    reporter.finish()
    assert written[-1][1] == step


def test_the_time_of_a_step_is_the_median_so_a_pause_does_not_show(tmp_path: Path) -> None:
    now = 0.0
    reporter = Reporter(*files_in(tmp_path), lambda: now, lambda: 7.0)
    for step in range(0, 40, 2):
        now += 100.0 if step == 20 else 3.0
        reporter.report(step, float("nan"), 8)
    told = json.loads((tmp_path / "rank-0.json").read_text())
    assert (told["step"], told["step_s"], told["samples_per_s"], told["at"]) == (38, 1.5, 8.0, 7.0)


def test_a_full_disk_loses_a_word_and_stops_nothing(tmp_path: Path) -> None:
    Reporter(*files_in(tmp_path / "gone")).report(1, 0.5, None)


class Tensor:
    """Something that waits for a device when it is read."""

    def __init__(self) -> None:
        self.read = 0

    def __float__(self) -> float:
        self.read += 1
        return 0.5


def test_a_tensor_is_read_only_when_it_is_written_down(tmp_path: Path) -> None:
    reporter, loss = Reporter(*files_in(tmp_path), lambda: 0.0), Tensor()
    for step in range(5):
        reporter.report(step, loss, None)
    assert loss.read == 1


def test_only_whole_checkpoints_are_found_and_two_are_kept(tmp_path: Path) -> None:
    assert folders.newest(tmp_path / "none") is None
    for step in (2, 10, 9, 11):
        folders.place_of(tmp_path, step).mkdir()
    for step in (2, 9, 10):
        folders.complete(tmp_path, step)
    assert folders.newest(tmp_path) == tmp_path / "step-10"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "step-10",
        "step-11",
        "step-9",
    ]


@pytest.mark.parametrize("name", ["rank", "world_size", "local_rank"])
def test_a_variable_that_is_no_number_counts_as_not_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name.upper(), "many")
    assert getattr(training, name)() == (1 if name == "world_size" else 0)


def test_a_checkpoint_of_a_run_that_went_back_is_kept_and_is_the_newest(tmp_path: Path) -> None:
    for step in (8000, 9000, 5100):
        folders.place_of(tmp_path, step).write_text("weights")
        folders.complete(tmp_path, step)
    assert folders.newest(tmp_path) == tmp_path / "step-5100"
    assert sorted(path.name for path in tmp_path.glob("step-*[0-9]")) == ["step-5100", "step-9000"]


def test_the_loss_that_the_hugging_face_trainer_logs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 100, 2))
    reporter = Reporter(*files_in(tmp_path), lambda: float(next(now)))
    monkeypatch.setattr(training, "_reporter", lambda: reporter)
    saving = huggingface.Saving()
    for step in range(1, 12):
        state = SimpleNamespace(global_step=step)
        saving.on_step_end(None, state, None)
        if step % 5 == 0:
            saving.on_log(None, state, None, logs={"loss": 0.5})
    assert json.loads((tmp_path / "rank-0.json").read_text())["loss"] == 0.5
