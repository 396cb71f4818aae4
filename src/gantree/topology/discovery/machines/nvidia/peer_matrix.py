"""`nvidia-smi topo -p2p`: which GPUs can access each other's memory. It names no links.

One print answers one question: r (reads), w (writes), n (over NVLink), a (atomics), p (over PCIe); which one, only
the command before it gives. GPUs are peers where reads and writes are OK. NVLink, PCIe and atomics that are OK show
that they are; where these are not, reads and writes may still be, over another path or without atomics, so nothing is
given. A file may hold several prints of one machine.

A status is one way. Of two that differ the worse one counts, and is warned of: a collective needs both ways.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from gantree.model.errors import BadInput, Problem
from gantree.text.words import plural
from gantree.topology.discovery.gpus import GpuTopology
from gantree.topology.discovery.machines.input_errors.refusal import refuse
from gantree.topology.discovery.machines.input_errors.wrong_format import PEER_STATUS
from gantree.topology.discovery.machines.nvidia.matrix_checks import (
    column_problems,
    diagonal_problem,
    missing_rows,
    row_problems,
)
from gantree.topology.discovery.machines.nvidia.matrix_text import Grid, read_peer_grids
from gantree.topology.hardware.catalog import SELF

OK, UNKNOWN = "OK", "U"
_ACCESS = frozenset("rw")
_OPTION = re.compile("[rwnap]+")
_ALLOWED = ", ".join([SELF, OK, *sorted(PEER_STATUS - {OK})])

Told = dict[tuple[int, int], bool | None]
"""(from, to) -> whether GPU `from` reaches the memory of GPU `to`; None where it is printed as unknown."""


def parse(text: str, source: str) -> GpuTopology:
    """Read a print, or several of one machine. `source` names the file in errors.

    BadInput: the text holds no such matrix, or matrices of different sizes. BadFields, with line numbers: cells that
    are no status, rows that do not match the columns. Links stay unknown; `peer` is True on the diagonal.
    """
    grids = read_peer_grids(text, source)
    problems = [problem for grid in grids for problem in _problems(grid, source)]
    refuse(problems)
    gpus = len(grids[0].gpus)
    other = next((grid for grid in grids if len(grid.gpus) != gpus), None)
    if other:
        sizes = f"a matrix of {plural(len(other.gpus), 'GPU')} after one of {gpus} in line {grids[0].header_line}"
        raise BadInput(f"{source}:{other.header_line}: {sizes}; give prints of one machine")
    given = [_usable(_told(grid), grid.p2p_option) for grid in grids]
    numbers = range(gpus)
    peer = tuple(tuple(_both_ways(given, a, b) for b in numbers) for a in numbers)
    return GpuTopology(
        links=tuple(tuple(SELF if a == b else None for b in numbers) for a in numbers),
        nic_links=((),) * gpus,
        numa=(None,) * gpus,
        peer=peer,
        inferred=tuple(_inferred(grids, given, gpus)),
        warnings=tuple(_warnings(grids, given, peer)),
    )


def _problems(grid: Grid, source: str) -> list[Problem]:
    problems = column_problems(grid, source) + row_problems(grid, source, _is_status, _ALLOWED)
    if grid.nics:
        found = ", ".join(grid.nics)[:60]
        problems.append(Problem(source, grid.header_line, "header", found, "GPUs only"))
    for row in grid.rows:
        if row.cut and row.cells and not _may_begin(row.cells[-1]):
            where = f"row {row.device}, column {grid.devices[len(row.cells) - 1]}"
            problems.append(Problem(source, row.line, where, repr(row.cells[-1][:40]), _ALLOWED))
    if problems:
        return problems
    cells = (
        (row.line, row.device, column, word)
        for row in grid.rows
        for column, word in zip(grid.devices, row.cells, strict=False)
        if _is_status(word)
    )
    return [problem for cell in cells if (problem := diagonal_problem(source, *cell))]


def _is_status(word: str) -> bool:
    """Return whether a word is a whole cell. No status is the beginning of another, so no fragment is taken for one."""
    return word == SELF or word in PEER_STATUS


def _may_begin(word: str) -> bool:
    """Return whether a word is a cell or the beginning of one."""
    return word == SELF or any(status.startswith(word) for status in PEER_STATUS)


def _told(grid: Grid) -> Told:
    number = {name: gpu for gpu, name in enumerate(grid.gpus)}
    cells = (
        (number[row.device], gpu, word)
        for row in grid.rows
        for gpu, word in enumerate(row.cells)
        if _is_status(word) and word != SELF
    )
    return {(a, b): None if word == UNKNOWN else word == OK for a, b, word in cells}


def _usable(given: Told, option: str | None) -> Told:
    """Return the result for reads and writes; a result without its option counts as theirs."""
    if option is None or not _OPTION.fullmatch(option) or set(option) <= _ACCESS:
        return given
    return {pair: True if fine else None for pair, fine in given.items()}


def _one_way(given: Iterable[Told], pair: tuple[int, int]) -> bool | None:
    """Join the matrices of reads and of writes."""
    answers = {matrix.get(pair) for matrix in given} - {None}
    return None if not answers else False not in answers


def _both_ways(given: Sequence[Told], a: int, b: int) -> bool | None:
    if a == b:
        return True
    answers = {_one_way(given, (a, b)), _one_way(given, (b, a))} - {None}
    return None if not answers else False not in answers


def _inferred(grids: Sequence[Grid], given: Sequence[Told], gpus: int) -> Iterator[str]:
    for grid in grids:
        if grid.p2p_option is None:
            yield (
                f"the matrix in line {grid.header_line} does not say what it was asked for; "
                "it counts as P2P reads and writes"
            )
        elif not set(grid.p2p_option) & _ACCESS:
            yield (
                f"the matrix in line {grid.header_line} is of `-p2p {grid.p2p_option}`: "
                "only its OK tells of reads and writes"
            )
    one_way = sum(
        (_one_way(given, (a, b)) is None) != (_one_way(given, (b, a)) is None)
        for a in range(gpus)
        for b in range(a)
    )
    if one_way:
        yield f"the status of {one_way} pairs is told one way only, and taken for both"


def _warnings(
    grids: Sequence[Grid], given: Sequence[Told], peer: Sequence[Sequence[bool | None]]
) -> Iterator[str]:
    for grid in grids:
        yield from missing_rows(grid)
        for row in grid.rows:
            if row.cut:
                cells = f"{len(row.cells)} of {plural(len(grid.devices), 'cell')}"
                yield f"line {row.line}: row {row.device} ends after {cells}"
    pairs = [(a, b) for a in range(len(peer)) for b in range(a + 1, len(peer))]
    differ = [
        (a, b)
        for a, b in pairs
        if {_one_way(given, (a, b)), _one_way(given, (b, a))} == {True, False}
    ]
    if differ:
        shown = ", ".join(f"GPU{a} and GPU{b}" for a, b in differ[:4])
        yield f"{len(differ)} pairs reach each other one way only ({shown}); they count as no peers"
    unknown = sum(peer[a][b] is None for a, b in pairs)
    if unknown:
        yield f"whether {unknown} pairs of GPUs reach each other's memory is not known"
    without = sum(peer[a][b] is False for a, b in pairs)
    if without:
        which = (
            "no GPUs reach" if without == len(pairs) else f"{without} pairs of GPUs do not reach"
        )
        yield f"{which} each other's memory (P2P): traffic between them goes through the host's"
