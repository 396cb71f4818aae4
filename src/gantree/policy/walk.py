"""A walk over pending jobs in policy order; with fair share, shares decide between queues.

Of two children of a queue the one goes first whose first job has the better keys before "share"; among equals, the one
with the smaller share; among equals, the one whose first job is earlier. Within a queue jobs go by position. Placements
during the walk change shares, but only on the path from the root to their queue. So each queue keeps a heap of its
children, and after every visited job only its path is sorted again.

Most jobs of a long queue need not be visited: `choose` selects them, one by one as the walk goes on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from gantree.policy.order import Position
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry, WaitingJobs

ShareOfQueue = Callable[[int], float]
IsClosed = Callable[[int], bool]
IsCandidate = Callable[[EquivalenceClass, Position], bool]

ROOT = 0

Entry = tuple[tuple[float, ...], float, Position, int, int]
"""(best keys before "share", share, first position, whether it stands for the queue's own jobs, queue) of a child."""


Choose = Callable[[int], Iterable[QueueEntry]]
"""The jobs to visit in a queue, in order; it is read as the walk goes on."""


class Walk:
    """One walk: it iterates over (equivalence class, position), in order.

    is_candidate is called before each job; where it returns False, the job and all later ones of its class are skipped.
    The job that was yielded last may be removed from its class before the walk goes on. share(queue) is called as the
    walk goes on; without it all jobs are compared by position. queues: of these only. choose: the jobs to visit in a
    queue; by default all. is_closed: whether no other job of a queue is visited; called after each of its jobs.
    """

    def __init__(
        self,
        waiting: WaitingJobs,
        is_candidate: IsCandidate,
        parent_of_queue: Sequence[int] = (),
        share: ShareOfQueue | None = None,
        before_share: int = 0,
        *,
        queues: Iterable[int] | None = None,
        choose: Choose | None = None,
        is_closed: IsClosed | None = None,
    ) -> None:
        self._waiting, self._is_candidate, self._parent = waiting, is_candidate, parent_of_queue
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
            if self._is_candidate(head.equivalence_class, head.position):
                yield head.equivalence_class, head.position
            else:
                closed.add(head.equivalence_class)


class _Row:
    """The chosen jobs of one queue; head is the next one to visit, None at the end."""

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
        self.advance()

    def advance(self) -> None:
        """Move to the next job."""
        last, self.head = self.head, None
        if last is not None and self._is_closed is not None and self._is_closed(self.queue):
            return
        for each in self._rest:
            if each.equivalence_class not in self._closed:
                self.head = each
                return


def _by_position(rows: dict[int, _Row]) -> Iterator[_Row]:
    """All queues by the position of their first jobs."""
    heads = [
        (row.head.position, number, row) for number, row in enumerate(rows.values()) if row.head
    ]
    heapify(heads)
    while heads:
        _, number, row = heappop(heads)
        yield row
        row.advance()
        if row.head is not None:
            heappush(heads, (row.head.position, number, row))


class _Fair:
    """The walk by shares: a heap of children for each queue above others, with an entry for its own jobs."""

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
        """Put every queue with jobs into the heap of its parent; children have larger numbers than their parents."""
        found = dict.fromkeys(self._rows)
        for queue in self._rows:
            above = queue
            while above != ROOT:
                above = self._parent[above]
                found.setdefault(above)
        for queue in sorted(found, reverse=True):
            self._put(queue)
        self._is_full = True  # from now on an only child stays one

    def _put(self, queue: int) -> None:
        """Put a queue's own jobs into its heap, and the queue, if it has any job, into the heap of its parent."""
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
            row.advance()
            for queue in reversed(path):
                self._put(queue)

    def _descend(self) -> list[int]:
        """Take the first child from the root down to the queue whose own job is next. Returns the path."""
        path, queue = [ROOT], ROOT
        while True:
            *_, own, child = heappop(self._children[queue])
            if own:
                self._own_is_in.discard(child)
                return path
            queue = child
            path.append(queue)
