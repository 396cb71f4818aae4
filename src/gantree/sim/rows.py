"""Rows of jobs on disk, for traces that are larger than memory.

Rows come as jobs end; they are read in the order of the trace. Only where each lies in the file is kept.
"""

import pickle
from array import array
from collections.abc import Iterator, Sequence
from tempfile import TemporaryFile
from typing import overload

from gantree.sim.results import JobRow

NOWHERE = -1
"""The offset of a row that has not come yet."""


class SpilledRows(Sequence[JobRow]):
    """Rows by their position in the trace, in a temporary file that is gone with the object."""

    def __init__(self) -> None:
        self._file = TemporaryFile(prefix="gantree-")  # noqa: SIM115 - lives as long as the rows
        self._offsets = array("q")
        self._end = 0

    def put(self, position: int, row: JobRow) -> None:
        """Write a row; positions may come in any order, each once."""
        while len(self._offsets) <= position:
            self._offsets.append(NOWHERE)
        assert self._offsets[position] == NOWHERE, f"row {position} comes twice"
        data = pickle.dumps(row, protocol=pickle.HIGHEST_PROTOCOL)
        self._file.seek(self._end)
        self._file.write(data)
        self._offsets[position] = self._end
        self._end += len(data)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, position: int) -> JobRow: ...
    @overload
    def __getitem__(self, position: slice) -> list[JobRow]: ...
    def __getitem__(self, position: int | slice) -> JobRow | list[JobRow]:
        if isinstance(position, slice):
            return [self._read(offset) for offset in self._offsets[position]]
        return self._read(self._offsets[position])

    def __iter__(self) -> Iterator[JobRow]:
        for offset in self._offsets:
            yield self._read(offset)

    def _read(self, offset: int) -> JobRow:
        assert offset != NOWHERE, "a row has not come yet"
        self._file.seek(offset)
        row: JobRow = pickle.load(self._file)  # noqa: S301 - written by this process
        return row
