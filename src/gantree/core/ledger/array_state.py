"""The state of a job array in the ledger: one record for all its elements that wait and do not differ.

The first few of them, and each that somebody has changed, are split from it (as Slurm splits the tasks of an array):
they are jobs of their own (`core.ledger.state`), with the place in order of arrival that the array has for them. How
many are split at a time is decided in `core.lifecycle.arrays`. Only `core.ledger.apply` writes here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gantree.model.arrays import Spans, element_name, index_at, offset_of, size_of, spans_of
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, Phase


@dataclass(slots=True)
class ArrayState:
    """An array. Elements are numbered by offset, from 0 in the order written; times are seconds of `observed_at`.

    queue is its node of the queue tree. next_offset: all before it are split; early are offsets behind it that are
    split, too. undecided are split elements that wait, and for which nothing was decided or changed since. known counts
    the split elements that are in the ledger, ended those of each outcome, unsplit ones included. cut: the unsplit ones
    have ended, with an outcome (cut_as) and a reason. waits_since: from when on the waiting of unsplit elements is not
    in the accounts yet. ended_at: when the last element ended.
    """

    array: str
    spec: Job
    seq: int
    submitted_at: float
    queue: int = 0
    held: bool = False
    next_offset: int = 0
    early: set[int] = field(default_factory=set)
    undecided: dict[str, None] = field(default_factory=dict)
    known: int = 0
    ended: dict[Phase, int] = field(default_factory=dict)
    cut: bool = False
    cut_as: Phase | None = None
    reason: str = ""
    waits_since: float = 0.0
    ended_at: float | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return size_of(self.spec.array)

    @property
    def unsplit(self) -> int:
        """The number of elements that wait and have no record of their own."""
        return 0 if self.cut else self.size - self.next_offset - len(self.early)

    @property
    def is_over(self) -> bool:
        """Whether all elements have ended."""
        return sum(self.ended.values()) == self.size

    @property
    def has_succeeded(self) -> bool:
        """Whether all elements have succeeded."""
        return self.ended.get(Phase.SUCCEEDED, 0) == self.size

    @property
    def in_vain(self) -> int:
        """The number of elements that ended without success."""
        return sum(self.ended.get(phase, 0) for phase in ENDED if phase is not Phase.SUCCEEDED)

    @property
    def may_split(self) -> bool:
        """Whether there are elements to be considered for a start."""
        return not self.held and self.unsplit > 0

    def job(self, offset: int) -> str:
        """The id of the element at an offset."""
        return element_name(self.array, index_at(self.spec.array, offset))

    def offset(self, index: int) -> int | None:
        """The offset of the unsplit element with an index; None if there is none."""
        offset = offset_of(self.spec.array, index)
        if self.cut or offset is None or offset < self.next_offset or offset in self.early:
            return None
        return offset

    def split_jobs(self) -> Iterator[str]:
        """The ids of the split elements, in order of arrival."""
        for offset in (*range(self.next_offset), *sorted(self.early)):
            yield self.job(offset)

    def unsplit_offsets(self) -> Iterator[int]:
        """The offsets of the unsplit elements."""
        if not self.cut:
            every = range(self.next_offset, self.size)
            yield from (each for each in every if each not in self.early)

    def unsplit_spans(self) -> Spans:
        """The indices of the unsplit elements."""
        array = self.spec.array
        if not self.early and not self.cut and len(array) == 1:
            first, last = array[0]
            return ((first + self.next_offset, last),) if self.unsplit else ()
        return spans_of(index_at(array, offset) for offset in self.unsplit_offsets())

    def split(self, offset: int) -> None:
        """An element has a record of its own from now on."""
        self.early.add(offset)
        while self.next_offset in self.early:
            self.early.remove(self.next_offset)
            self.next_offset += 1

    def count_end(self, outcome: Phase, elements: int, at: float) -> None:
        """So many elements have ended."""
        self.ended[outcome] = self.ended.get(outcome, 0) + elements
        self.ended_at = at if self.is_over else None
