"""The state of a job array in the ledger: one record for all its elements that wait and do not differ.

The first few of them, and each that somebody has changed, are split from it (as Slurm splits the tasks of an array):
they are jobs of their own (`core.ledger.state`), with the place in order of arrival that the array has for them. How
many are split at a time is decided in `core.lifecycle.arrays`. Only `core.ledger.apply` writes here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gantree.core.ledger.state import JobState
from gantree.model.arrays import (
    Spans,
    element_name,
    element_of,
    index_at,
    merged,
    offset_of,
    size_of,
    spans_of,
)
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, Phase

LIVE = (Phase.RUNNING, Phase.STARTING, Phase.SAVING, Phase.STOPPING)
WORST_FIRST = (Phase.FAILED, Phase.TIMED_OUT, Phase.CANCELLED, Phase.SUCCEEDED)


@dataclass(slots=True)
class ArrayState:
    """An array. Elements are numbered by offset, from 0 in the order written; times are seconds of `observed_at`.

    queue is its node of the queue tree. next_offset: all before it are split; early are offsets behind it that are
    split, too. alive are the split elements that have not ended, undecided those of them that wait, and for which
    nothing was decided or changed since. known counts the split elements that are in the ledger, ended all elements by
    outcome. cut: the unsplit ones have ended, with an outcome (cut_as), a moment and a reason. waits_since: since
    when the unsplit elements wait without having been held. ended_at: when the last element ended.
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
    alive: dict[str, None] = field(default_factory=dict)
    known: int = 0
    ended: dict[Phase, int] = field(default_factory=dict)
    cut: bool = False
    cut_as: Phase | None = None
    cut_at: float | None = None
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

    def counts(self, jobs: Mapping[str, JobState]) -> dict[str, int]:
        """The number of elements in each phase, in the order of a job's life; jobs: those that are known."""
        counts = {phase.value: 0 for phase in Phase}
        counts[Phase.PENDING.value] = self.unsplit
        for job in self.alive:
            counts[jobs[job].phase.value] += 1
        return counts | {phase.value: count for phase, count in self.ended.items()}

    def phase(self, counts: Mapping[str, int]) -> Phase:
        """The phase of the array as a whole: the furthest of any element that has not ended, else the worst end."""
        order = (*LIVE, Phase.PENDING) if not self.is_over else WORST_FIRST
        return next(phase for phase in order if counts[phase.value])

    def job(self, offset: int) -> str:
        """The id of the element at an offset."""
        return element_name(self.array, index_at(self.spec.array, offset))

    def offset(self, index: int) -> int | None:
        """The offset of an element that was never split, by its index; None if there is no such element."""
        offset = offset_of(self.spec.array, index)
        if offset is None or offset < self.next_offset or offset in self.early:
            return None
        return offset

    def unsplit_element(self, offset: int, priority: int) -> JobState:
        """The state that an element has which was never split: like all of them it waits, or has ended with them."""
        spec = element_of(self.spec, index_at(self.spec.array, offset))
        state = JobState(
            self.job(offset), spec, priority, self.seq + offset, -1, self.submitted_at, self.queue
        )
        state.array, state.held = self.array, self.held
        if self.cut_as is not None:
            state.phase, state.reason, state.ended_at = self.cut_as, self.reason, self.cut_at
        return state

    def unsplit_offsets(self) -> Iterator[int]:
        """The offsets of the unsplit elements."""
        return iter(()) if self.cut else self._never_split()

    def _never_split(self) -> Iterator[int]:
        every = range(self.next_offset, self.size)
        return (each for each in every if each not in self.early)

    def spans_with(self, split: Iterable[int]) -> Spans:
        """The indices of the elements that were never split, and of those that were at these offsets."""
        if not self.early and len(self.spec.array) == 1:
            first, last = self.spec.array[0]
            never = ((first + self.next_offset, last),) if self.next_offset < self.size else ()
            return merged(spans_of(first + offset for offset in sorted(split)), never)
        offsets = sorted({*split, *self._never_split()})
        return spans_of(index_at(self.spec.array, offset) for offset in offsets)

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
