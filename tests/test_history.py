"""`benchmarks/history.py` appends measured figures to a table and finds them again."""

import csv
import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "history.py"
HEAD = "date,commit,machine,figure,value,unit,load,command,note\n"


@pytest.fixture(scope="module")
def main() -> Any:
    """The command: a function of its arguments."""
    return runpy.run_path(str(SCRIPT))["main"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A history without rows."""
    path = tmp_path / "history.csv"
    path.write_text(HEAD, encoding="utf-8")
    return path


def test_one_figure_and_all_numbers_of_a_json_object_are_appended(
    main: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {"gpus": 64, "ended_median_ms": 9.5, "leaf": {"fastest_ms": 3}, "name": "x"}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(measured)))

    main(["add", "bench.tas", "1-2", "--unit", "s", "--load", "none", "--history", str(table)])
    main(["append", "bench.queue", "--load", "0", "--history", str(table)])

    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["figure"], row["value"], row["unit"], row["load"]) for row in rows] == [
        ("bench.tas", "1-2", "s", "none"),
        ("bench.queue.gpus", "64", "", "0"),
        ("bench.queue.ended_median", "9.5", "ms", "0"),
        ("bench.queue.leaf.fastest", "3", "ms", "0"),
    ]
    assert all(row["date"] and row["machine"] for row in rows)


def test_show_prints_a_figure_and_those_below_it(
    main: Any, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for figure in ("bench.queue.a", "bench.queued", "bench.queue"):
        main(["add", figure, "7", "--load", "0", "--history", str(table)])

    main(["show", "bench.queue", "--history", str(table)])
    shown = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[-3:] for line in shown] == [["bench.queue.a", "7", "0"], ["bench.queue", "7", "0"]]

    main(["show", "--history", str(table)])
    assert len(capsys.readouterr().out.splitlines()) == 4
