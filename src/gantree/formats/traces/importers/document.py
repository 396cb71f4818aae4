"""A format of traces that is no table: how it is recognised and read."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gantree.formats.traces.table import Row


@dataclass(frozen=True, slots=True)
class DocumentFormat:
    """knows says whether a path is of this format; read gives its jobs and counts what is left out, by reason.

    own_clock is that of `table.TableFormat`. read raises BadFields for all that is wrong.
    """

    name: str
    title: str
    knows: Callable[[Path], bool]
    read: Callable[[Path, Counter[str]], Iterator[Row]]
    own_clock: bool = False

    def rows_of(self, path: Path) -> Callable[[Counter[str]], Iterator[Row]]:
        """What reads one path."""
        return partial(self.read, path)
