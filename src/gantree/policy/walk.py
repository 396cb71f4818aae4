"""A walk over pending jobs in the order of the policy; with fair share, shares decide between queues.

Between two children of a queue goes first the one whose best job has the better keys before "share"; among equals the
one with the smaller share; among equals the one whose next job goes first. Inside a queue jobs go by position. What is
placed while the walk goes on changes shares, but only on the path of the queue it was placed in; so each queue keeps a
heap of its children, and after every job that was looked at only its path is put in order again.

Most jobs of a long queue need not be looked at: `choose` says which, job by job as the walk goes on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from gantree.policy.order import Position
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry, WaitingJobs

ShareOfQueue = Callable[[int], float]
IsClosed = Callable[[int], bool]
Ask = Callable[[EquivalenceClass, Position], bool]

ROOT = 0

Entry = tuple[tuple[float, ...], float, Position, int, int]
"""(best keys before "share", share, best position, whether it stands for the queue's own jobs, node) of a child."""


Choose = Callable[[int], Iterable[QueueEntry]]
"""Whom to visit in a queue, in order; it is read as the walk goes on."""


class Walk:
    """One walk: iterating it gives (line, position) in order; a line ends where `ask`, asked before each, says no.

    The job that was given last may be removed from its eq_class before the walk goes on. share(queue) is asked as the
    walk goes; without it all jobs are compared by position alone. queues: of these alone. choose: whom of each; all, if
    omitted. is_closed: whether nobody else of a queue is visited; asked after each of its jobs.
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
        choose: Choose | None = None,
        is_closed: IsClosed | None = None,
    ) -> None:
        self._waiting, self._ask, self._parent = waiting, ask, parent_of_queue
        self._share, self._before = share, before_share
        self._queues = tuple(waiting.queues if queues is None else queues)
        self._choose, self._is_closed = choose or self._all_of, is_closed

    def _all_of(self, queue: int) -> Iterable[QueueEntry]:
        return tuple(self._waiting.in_queue(queue))

    def __iter__(self) -> Iterator[tuple[EquivalenceClass, Position]]:
        closed = set[EquivalenceClass]()
        rows = {}
        for queue in self._queues:
            row = _Row(queue, closed, self._choose(queue), self._is_closed)
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
    """The chosen jobs of one queue, one after the other; head is the next to visit, None at the end."""

    def __init__(
        self,
        queue: int,
        closed: set[EquivalenceClass],
        chosen: Iterable[QueueEntry],
        is_closed: IsClosed | None,
    ) -> None:
        self.queue, self._closed = queue, closed
        self._rest, self._is_closed = iter(chosen), is_closed
        self.head: QueueEntry | None = None
        self.go_on()

    def go_on(self) -> None:
        """Go to the next."""
        last, self.head = self.head, None
        if last is not None and self._is_closed is not None and self._is_closed(self.queue):
            return
        for each in self._rest:
            if each.equivalence_class not in self._closed:
                self.head = each
                return


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
