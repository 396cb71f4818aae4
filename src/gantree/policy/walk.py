"""A walk over waiting jobs in the order of the policy: the fair one, where shares decide between queues.

Between two children of a queue goes first the one whose best job has the better keys before "share"; among equals the
one with the smaller share; among equals the one whose next job goes first. Inside a queue jobs go by position. What is
placed while the walk goes on changes shares, but only on the path of the queue it was placed in; so each queue keeps a
heap of its children, and after every job that was looked at only its path is put in order again.

Most jobs of a long queue need not be looked at: `looked` says which, some by themselves, the others by their line. It
is asked once a queue, when the walk begins.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gantree.policy.order import Position
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry, WaitingJobs

ShareOfQueue = Callable[[int], float]
IsClosed = Callable[[int], bool]
Ask = Callable[[EquivalenceClass, Position], bool]

ROOT = 0

Entry = tuple[tuple[float, ...], float, Position, int, int]
"""(best keys before "share", share, best position, whether it stands for the queue's own jobs, node) of a child."""


class Looked(NamedTuple):
    """Whom a walk looks at in a queue: some by themselves, in order, and all of some lines."""

    alone: Sequence[QueueEntry] = ()
    classes: Collection[EquivalenceClass] = ()


Look = Callable[[int], Looked]
"""Whom to look at in a queue."""


class Walk:
    """One walk: iterating it gives (line, position) in order; a line ends where `ask`, asked before each, says no.

    The job that was given last may be removed from its line before the walk goes on. share(queue) is asked as the
    walk goes; without it all jobs are compared by position alone. queues: of these alone. looked: of whom in each; of
    all, if omitted. is_closed: whether nobody else of a queue is looked at; asked after each of its jobs.
    """

    def __init__(
        self,
        waiting: WaitingJobs,
        ask: Ask,
        parent_of_queue: Sequence[int] = (),
        share: ShareOfQueue | None = None,
        before_share: int = 0,
        *,
        queues: Iterable[int] | None = None,
        looked: Look | None = None,
        is_closed: IsClosed | None = None,
    ) -> None:
        self._waiting, self._ask, self._parent = waiting, ask, parent_of_queue
        self._share, self._before = share, before_share
        self._queues = tuple(waiting.queues if queues is None else queues)
        self._looked, self._is_closed = looked or self._all_of, is_closed

    def _all_of(self, queue: int) -> Looked:
        return Looked(tuple(self._waiting.in_queue(queue)))

    def __iter__(self) -> Iterator[tuple[EquivalenceClass, Position]]:
        closed = set[EquivalenceClass]()
        rows = {}
        for queue in self._queues:
            row = _Row(queue, self._waiting, closed, self._looked(queue), self._is_closed)
            if row.head is not None:
                rows[queue] = row
        steps = (
            _by_position(rows)
            if self._share is None
            else _Fair(rows, self._parent, self._share, self._before).walk()
        )
        for row in steps:
            head = row.head
            assert head is not None, "a queue without jobs is next"
            if head.equivalence_class in closed:
                continue
            if self._ask(head.equivalence_class, head.position):
                yield head.equivalence_class, head.position
            else:
                closed.add(head.equivalence_class)


class _Row:
    """The jobs of one queue, one after the other; head is the next that is to be looked at, None at the end.

    _heads holds of each line of which all are looked at the next position.
    """

    def __init__(
        self,
        queue: int,
        waiting: WaitingJobs,
        closed: set[EquivalenceClass],
        looked: Looked,
        is_closed: IsClosed | None,
    ) -> None:
        self.queue, self._waiting, self._closed = queue, waiting, closed
        self._is_closed = is_closed
        self.head: QueueEntry | None = None
        self._alone, self._at = looked.alone, 0
        self._heads = [QueueEntry(waiting[eq_class][0], eq_class) for eq_class in looked.classes]
        heapify(self._heads)
        self.go_on()

    def go_on(self) -> None:
        """Go to the next."""
        last, self.head = self.head, None
        if last is not None and self._is_closed is not None and self._is_closed(self.queue):
            return
        while (each := self._next()) is not None:
            if each != last and each.equivalence_class not in self._closed:
                self.head = each
                break

    def _next(self) -> QueueEntry | None:
        """The next in order, be it by itself or of a line; one that is both comes twice in a row."""
        while self._heads and self._heads[0].equivalence_class in self._closed:
            heappop(self._heads)
        alone = self._alone[self._at] if self._at < len(self._alone) else None
        if self._heads and (alone is None or self._heads[0] < alone):
            head = heappop(self._heads)
            behind = self._behind(head)
            if behind is not None:
                heappush(self._heads, behind)
            return head
        self._at += alone is not None
        return alone

    def _behind(self, entry: QueueEntry) -> QueueEntry | None:
        """The next of a line."""
        positions = self._waiting[entry.equivalence_class]
        place = bisect_right(positions, entry.position)
        return (
            QueueEntry(positions[place], entry.equivalence_class)
            if place < len(positions)
            else None
        )


def _by_position(rows: dict[int, _Row]) -> Iterator[_Row]:
    """By position alone: a heap of the heads of all queues."""
    heads = [
        (row.head.position, number, row) for number, row in enumerate(rows.values()) if row.head
    ]
    heapify(heads)
    while heads:
        _, number, row = heappop(heads)
        yield row
        row.go_on()
        if row.head is not None:
            heappush(heads, (row.head.position, number, row))


class _Fair:
    """The walk by shares: for each queue above others a heap of its children; own jobs stand beside them."""

    def __init__(
        self,
        rows: dict[int, _Row],
        parent_of_queue: Sequence[int],
        share: ShareOfQueue,
        before_share: int,
    ) -> None:
        self._rows, self._parent, self._share = rows, parent_of_queue, share
        self._before = before_share
        self._children: dict[int, list[Entry]] = {}
        self._own_is_in: set[int] = set()
        self._is_full = False
        self._fill()

    def _fill(self) -> None:
        """Put every queue with jobs below its parent; children have larger numbers than their parents."""
        found = dict.fromkeys(self._rows)
        for queue in self._rows:
            above = queue
            while above != ROOT:
                above = self._parent[above]
                found.setdefault(above)
        for queue in sorted(found, reverse=True):
            self._put(queue)
        self._is_full = True  # from now on who is alone stays alone

    def _put(self, queue: int) -> None:
        """Put a queue's own jobs beside its children, and the queue, if it has anything, beside its siblings."""
        heap = self._children.setdefault(queue, [])
        row = self._rows.get(queue)
        if row is not None and row.head is not None and queue not in self._own_is_in:
            self._own_is_in.add(queue)
            first = row.head.position
            heappush(heap, (first.key[: self._before], 0.0, first, 1, queue))
        if heap and queue != ROOT:
            keys, _, first, _, _ = heap[0]
            siblings = self._children.setdefault(self._parent[queue], [])
            share = self._share(queue) if siblings or not self._is_full else 0.0
            heappush(siblings, (keys, share, first, 0, queue))

    def walk(self) -> Iterator[_Row]:
        while self._children.get(ROOT):
            path = self._descend()
            row = self._rows[path[-1]]
            yield row
            row.go_on()
            for queue in reversed(path):
                self._put(queue)

    def _descend(self) -> list[int]:
        """Take the first child from the top down to the queue whose own job is next; returns the way."""
        path, queue = [ROOT], ROOT
        while True:
            *_, own, child = heappop(self._children[queue])
            if own:
                self._own_is_in.discard(child)
                return path
            queue = child
            path.append(queue)
