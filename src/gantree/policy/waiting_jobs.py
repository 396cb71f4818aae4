"""The jobs that wait: each queue in order, and by equivalence class.

Jobs of one equivalence class get the same answer from the same state: they are of one queue, one signature (a number
for all that ask for the same), one priority, and may hold a place for the same time. When the first of a class is
refused, the others need not be tried.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, KeysView, Sequence
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


class WaitingJobs:
    """Waiting jobs, in the order of each queue and by equivalence class.

    A class exists while one of its jobs waits; the oldest is the one that has existed longest. Views of it change with
    it, and are not to be kept. changes grows whenever any queue changes.
    """

    def __init__(self) -> None:
        self._positions_of_class: dict[EquivalenceClass, list[Position]] = {}
        self._entries_in_queue: dict[int, list[QueueEntry]] = {}
        self._classes_of_signature: dict[int, dict[EquivalenceClass, None]] = {}
        self._classes_in_queue: dict[int, dict[EquivalenceClass, None]] = {}
        self._classes_of_signature_in: dict[int, dict[int, dict[EquivalenceClass, None]]] = {}
        self._changes_in_queue: dict[int, int] = {}
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

    def classes_in(self, queue: int) -> Collection[EquivalenceClass]:
        """The classes of a queue, the oldest first."""
        return self._classes_in_queue.get(queue, {}).keys()

    @property
    def signatures(self) -> Collection[int]:
        """The signatures of all waiting jobs."""
        return self._classes_of_signature.keys()

    def classes_of_signature(self, signature: int) -> Iterable[EquivalenceClass]:
        """The classes of a signature, the oldest first."""
        return self._classes_of_signature.get(signature, ())

    def signatures_in(self, queue: int) -> KeysView[int]:
        """The signatures of the jobs of a queue."""
        return self._classes_of_signature_in.get(queue, {}).keys()

    def classes_of_signature_in(self, queue: int, signature: int) -> Collection[EquivalenceClass]:
        """The classes of a queue with one signature, the oldest first."""
        return self._classes_of_signature_in.get(queue, {}).get(signature, {}).keys()

    def changes_in(self, queue: int) -> int:
        """The value of `changes` when a queue last changed."""
        return self._changes_in_queue.get(queue, 0)

    def touch(self, queue: int) -> None:
        """Note that something other than room has changed that a job of a queue waits for."""
        self.changes += 1
        self._changes_in_queue[queue] = self.changes

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
        queue, signature = equivalence_class.queue, equivalence_class.signature
        self.touch(queue)
        insort(self._positions_of_class.setdefault(equivalence_class, []), position)
        entries = self._entries_in_queue.setdefault(queue, [])
        insort(entries, QueueEntry(position, equivalence_class))
        self._classes_of_signature.setdefault(signature, {})[equivalence_class] = None
        self._classes_in_queue.setdefault(queue, {})[equivalence_class] = None
        of_signature = self._classes_of_signature_in.setdefault(queue, {})
        of_signature.setdefault(signature, {})[equivalence_class] = None

    def remove(self, equivalence_class: EquivalenceClass, position: Position) -> None:
        """A job that waits at this position waits no more."""
        queue = equivalence_class.queue
        self.touch(queue)
        _remove_from(self._positions_of_class, equivalence_class, position)
        _remove_from(self._entries_in_queue, queue, QueueEntry(position, equivalence_class))
        if equivalence_class not in self._positions_of_class:
            self._remove_class(equivalence_class)

    def _remove_class(self, equivalence_class: EquivalenceClass) -> None:
        queue, signature = equivalence_class.queue, equivalence_class.signature
        del self._classes_in_queue[queue][equivalence_class]
        for classes_of in (self._classes_of_signature_in[queue], self._classes_of_signature):
            del classes_of[signature][equivalence_class]
            if not classes_of[signature]:
                del classes_of[signature]


def _remove_from(lists: dict[Any, list[Any]], key: Any, entry: Any) -> None:
    """Remove an entry from a sorted list, and the list if it is empty then."""
    entries = lists[key]
    index = bisect_left(entries, entry)
    assert index < len(entries) and entries[index] == entry, f"{entry} does not wait"
    del entries[index]
    if not entries:
        del lists[key]
