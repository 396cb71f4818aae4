"""Pending jobs: each queue in order, and by equivalence class.

Jobs of one equivalence class get the same answer from the same state: they are of one queue, one signature (a number
for all that ask for the same), one priority, and may hold a place for the same time. When the first of a class is
refused, the others need not be tried.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from gantree.policy.order import Position


class EquivalenceClass(NamedTuple):
    """What the jobs of one class have in common.

    queue is a node of the queue tree. span_s is how long they hold a place at most, inf where nobody knows; enforced
    says whether that is a limit or a guess.
    """

    queue: int
    signature: int
    priority: int
    preemptible: bool = True
    span_s: float = inf
    enforced: bool = False


class QueueEntry(NamedTuple):
    """A waiting job: its position in the order of its queue, and its equivalence class."""

    position: Position
    equivalence_class: EquivalenceClass


@dataclass(frozen=True, slots=True)
class WaitingJobsSnapshot:
    """Job ids: all that wait, class by class, the oldest class first; then one of each queue and of each signature."""

    waiting: tuple[str, ...] = ()
    one_of_queue: tuple[str, ...] = ()
    one_of_signature: tuple[str, ...] = ()


class Columns:
    """What an array test reads of the jobs that wait in one queue, in their order: a number for each job."""

    __slots__ = ("enforced", "preemptible", "priority", "signature", "span_s")

    def __init__(self) -> None:
        self.signature = array("q")
        self.priority = array("q")
        self.span_s = array("d")
        self.enforced = array("b")
        self.preemptible = array("b")

    def insert(self, at: int, equivalence_class: EquivalenceClass) -> None:
        """A job of a class waits at this place from now on."""
        self.signature.insert(at, equivalence_class.signature)
        self.priority.insert(at, equivalence_class.priority)
        self.span_s.insert(at, equivalence_class.span_s)
        self.enforced.insert(at, equivalence_class.enforced)
        self.preemptible.insert(at, equivalence_class.preemptible)

    def remove(self, at: int) -> None:
        """The job at this place waits no more."""
        del self.signature[at], self.priority[at], self.span_s[at]
        del self.enforced[at], self.preemptible[at]


class WaitingJobs:
    """Waiting jobs, in the order of each queue and by equivalence class.

    A class exists while one of its jobs waits; the oldest is the one that has existed longest. Views of it change with
    it, and are not to be kept. changes grows whenever a job comes or goes.
    """

    def __init__(self) -> None:
        self._positions_of_class: dict[EquivalenceClass, list[Position]] = {}
        self._entries_in_queue: dict[int, list[QueueEntry]] = {}
        self._classes_of_signature: dict[int, dict[EquivalenceClass, None]] = {}
        self._columns_of_queue: dict[int, Columns] = {}
        self.changes = 0

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._entries_in_queue.values())

    def __iter__(self) -> Iterator[EquivalenceClass]:
        """The classes, the oldest first."""
        return iter(self._positions_of_class)

    def __contains__(self, equivalence_class: EquivalenceClass) -> bool:
        return equivalence_class in self._positions_of_class

    def __getitem__(self, equivalence_class: EquivalenceClass) -> Sequence[Position]:
        """The positions of the jobs of a class, in order; empty where none waits."""
        return self._positions_of_class.get(equivalence_class, ())

    @property
    def queues(self) -> Iterable[int]:
        """The queues in which a job waits."""
        return self._entries_in_queue.keys()

    def in_queue(self, queue: int) -> Sequence[QueueEntry]:
        """The jobs of a queue, in order."""
        return self._entries_in_queue.get(queue, ())

    def columns_of(self, queue: int) -> Columns:
        """Numbers of the jobs of a queue in which any waits, in the same order."""
        return self._columns_of_queue[queue]

    def index_of(self, entry: QueueEntry) -> int:
        """The index of a job among those of its queue; where it would be, if it does not wait."""
        return bisect_left(self.in_queue(entry.equivalence_class.queue), entry)

    @property
    def signatures(self) -> Collection[int]:
        """The signatures of all waiting jobs."""
        return self._classes_of_signature.keys()

    def classes_of_signature(self, signature: int) -> Iterable[EquivalenceClass]:
        """The classes of a signature, the oldest first."""
        return self._classes_of_signature.get(signature, ())

    def snapshot(self) -> WaitingJobsSnapshot:
        """All that is needed to make this again; queues and signatures are told by one of their jobs."""
        classes = self._positions_of_class
        first_of = {each: positions[0].job for each, positions in classes.items()}
        return WaitingJobsSnapshot(
            tuple(position.job for positions in classes.values() for position in positions),
            tuple(entries[0].position.job for entries in self._entries_in_queue.values()),
            tuple(first_of[next(iter(alike))] for alike in self._classes_of_signature.values()),
        )

    def restore_order(self, queues: Iterable[int], signatures: Iterable[int]) -> None:
        """Bring queues and signatures into these orders, which must name all of them."""
        self._entries_in_queue = {
            queue: self._entries_in_queue[queue] for queue in dict.fromkeys(queues)
        }
        self._classes_of_signature = {
            each: self._classes_of_signature[each] for each in dict.fromkeys(signatures)
        }

    def add(self, equivalence_class: EquivalenceClass, position: Position) -> None:
        """A job of this class waits at this position."""
        queue = equivalence_class.queue
        self.changes += 1
        insort(self._positions_of_class.setdefault(equivalence_class, []), position)
        entries, entry = (
            self._entries_in_queue.setdefault(queue, []),
            QueueEntry(position, equivalence_class),
        )
        index = bisect_left(entries, entry)
        entries.insert(index, entry)
        self._columns_of_queue.setdefault(queue, Columns()).insert(index, equivalence_class)
        of_signature = self._classes_of_signature.setdefault(equivalence_class.signature, {})
        of_signature[equivalence_class] = None

    def remove(self, equivalence_class: EquivalenceClass, position: Position) -> None:
        """A job that waits at this position waits no more."""
        queue, signature = equivalence_class.queue, equivalence_class.signature
        self.changes += 1
        _remove_from(self._positions_of_class, equivalence_class, position)
        index = _remove_from(self._entries_in_queue, queue, QueueEntry(position, equivalence_class))
        self._columns_of_queue[queue].remove(index)
        if queue not in self._entries_in_queue:
            del self._columns_of_queue[queue]
        if equivalence_class not in self._positions_of_class:
            del self._classes_of_signature[signature][equivalence_class]
            if not self._classes_of_signature[signature]:
                del self._classes_of_signature[signature]


def _remove_from(lists: dict[Any, list[Any]], key: Any, entry: Any) -> int:
    """Remove an entry from a sorted list, and the list if it is empty then; return its index."""
    entries = lists[key]
    index = bisect_left(entries, entry)
    assert index < len(entries) and entries[index] == entry, f"{entry} does not wait"
    del entries[index]
    if not entries:
        del lists[key]
    return index
