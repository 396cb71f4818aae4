"""Prices beside published measurements: what was aimed at holds, and what misses is known to miss."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LOGS = ROOT.parent / "shared" / "data" / "topology" / "nccl-tests"


def _benchmark() -> ModuleType:
    """benchmarks/calibration.py, which is a program and in no package."""
    path = ROOT / "benchmarks" / "calibration.py"
    spec = importlib.util.spec_from_file_location("benchmark_calibration", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


BENCHMARK = _benchmark()
ROWS = list(BENCHMARK.rows())

MISSES = {
    ("p6-b200-4", "measured", 32 << 10),
    ("gb200-20-racks", "measured", 512 << 20),
    ("gb200-20-racks", "measured", 1 << 30),
    ("a3-mega-2", "held out", 8 << 10),
    ("a3-mega-2", "held out", 512 << 20),
    ("a100", "held out", 1 << 30),
}
"""Rows that are not as near as was aimed at. docs/cost.md gives the reasons; a row that joins them is a regression."""


def test_rows_are_as_near_as_was_aimed_at_but_for_those_that_are_known() -> None:
    missed = {(row.site, row.kind, row.size_bytes) for row in ROWS if not row.met}
    assert missed == MISSES


def test_every_miss_has_its_reason() -> None:
    assert [site for site, _, _ in MISSES if not BENCHMARK.SITES[site].why] == []


def test_every_row_has_a_source_and_a_size_that_is_priced() -> None:
    assert len(ROWS) >= 76
    assert all(row.source and row.price.seconds > 0 for row in ROWS)
    assert {row.site for row in ROWS} == set(BENCHMARK.SITES)


@pytest.mark.parametrize("number", range(4))
def test_what_must_come_first_does(number: int) -> None:
    what, holds = BENCHMARK.orderings()[number]
    assert holds, what


def test_the_table_in_the_docs_is_the_one_that_is_printed_now() -> None:
    """`python benchmarks/calibration.py --docs docs/cost.md` writes it anew."""
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert "\n".join(BENCHMARK.table(ROWS)) in page


@pytest.mark.skipif(not LOGS.is_dir(), reason="needs ../shared/data/topology")
def test_whole_logs_are_as_near_as_was_aimed_at_but_for_the_same_few() -> None:
    rows = [row for path in sorted(LOGS.glob("*.txt")) for row in BENCHMARK.rows_of_log(path)]
    missed = [row for row in rows if not row.met]
    assert len(rows) > 200
    assert {row.site for row in missed} <= {"a3-mega-2", "gb200-20-racks"}
    assert len(missed) <= 6
