"""Checks of every matrix of GPUs: columns in order, each row once, X on the diagonal.

Finding the matrix in a text is `matrix_text`.
"""

from collections.abc import Callable

from gantree.model.errors import Problem
from gantree.topology.discovery.machines.nvidia.matrix_text import Grid
from gantree.topology.hardware.catalog import SELF


def column_problems(grid: Grid, source: str) -> list[Problem]:
    """Columns that are twice, and GPUs that are not counted from 0."""
    line = grid.header_line
    wanted = [f"GPU{i}" for i in range(len(grid.gpus))]
    if sorted(set(grid.devices)) != sorted(grid.devices):
        return [Problem(source, line, "header", "a column twice", "each column once")]
    if list(grid.gpus) != wanted:
        allowed = f"{wanted[0]} to {wanted[-1]} in order"
        return [Problem(source, line, "header", ", ".join(grid.gpus), allowed)]
    return []


def row_problems(
    grid: Grid, source: str, is_allowed: Callable[[str], bool], allowed: str
) -> list[Problem]:
    """Rows of no column, rows that are there twice, cells that are not allowed, rows with too few cells."""
    problems = []
    first_line: dict[str, int] = {}
    for row in grid.rows:
        name = f"row {row.device}"
        if row.device not in grid.devices:
            found = "a row without a column"
            problems.append(Problem(source, row.line, name, found, "rows of columns"))
        elif row.device in first_line:
            there = f"a second one (the first is in line {first_line[row.device]})"
            problems.append(Problem(source, row.line, name, there, "each row once"))
        first_line.setdefault(row.device, row.line)
        bad = next((i for i, word in enumerate(row.cells) if not is_allowed(word)), None)
        if bad is not None and not (row.cut and bad == len(row.cells) - 1):
            where = f"{name}, column {grid.devices[bad]}"
            problems.append(Problem(source, row.line, where, repr(row.cells[bad][:40]), allowed))
    return problems


def diagonal_problem(source: str, line: int, row: str, column: str, cell: str) -> Problem | None:
    """X where a device does not meet itself, or something else where it does."""
    if (row == column) == (cell == SELF):
        return None
    allowed = f"{SELF} on the diagonal, and nowhere else"
    return Problem(source, line, f"row {row}, column {column}", repr(cell), allowed)


def missing_rows(grid: Grid) -> list[str]:
    """Warn of columns without a row."""
    given = {row.device for row in grid.rows}
    missing = [name for name in grid.devices if name not in given]
    return [f"no row for {', '.join(missing)}"] if missing else []
