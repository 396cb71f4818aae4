"""A walk over waiting jobs in the order of the policy: the fair one, where shares decide between queues.

Between two children of a queue goes first the one whose best job has the better keys before "share"; among equals the
one with the smaller share; among equals the one whose next job goes first. Inside a queue jobs go by position. What is
placed while the walk goes on changes shares, but only on the path of the queue it was placed in; so each queue keeps a
heap of its children, and after every job that was looked at only its path is put in order again.

Most jobs of a long queue need not be looked at: `admits` says which might get another answer, some by themselves, the
others
by their line. It is asked for a queue when the walk begins, and again of each job when that would be next in its queue,
so that what is placed meanwhile counts; a line in which nobody is to be looked at any more is left out as one.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from gantree.policy.order import Line, Lines, Position, Standing

Share = Callable[[int], float]
IsClosed = Callable[[int], bool]
Ask = Callable[[Line, Position], bool]

ROOT = 0

Entry = tuple[tuple[float, ...], float, Position, int, int]
"""(best keys before "share", share, best position, whether it stands for the queue's own jobs, node) of a child."""


class Walk:
    """One walk: iterating it gives (line, position) in order; a line ends where `ask`, asked before each, says no.

    The job that was given last may be removed from its line before the walk goes on. share(queue) is asked as the
    walk goes; without it all jobs are compared by position alone. queues: of these alone. is_closed: whether nobody
    else of a queue is looked at; asked after each of its jobs.
    """

    def __init__(
        self,
        lines: Lines,
        ask: Ask,
        parent_of_queue: Sequence[int] = (),
        share: Share | None = None,
        before_share: int = 0,
        *,
        queues: Iterable[int] | None = None,
        admits: "Admits | None" = None,
        is_closed: IsClosed | None = None,
    ) -> None:
        self._lines, self._ask, self._parent = lines, ask, parent_of_queue
        self._share, self._before = share, before_share
        self._queues = tuple(lines.queues if queues is None else queues)
        self._admits, self._is_closed = admits, is_closed
        self._rows: dict[int, _Row] = {}
        self._closed: set[Line] = set()
        self._at: _Row | None = None
        self._moved: dict[int, _Row] = {}

    def __iter__(self) -> Iterator[tuple[Line, Position]]:
        closed = self._closed = set[Line]()
        self._rows = {
            queue: _Row(queue, self._lines, closed, self._admits, self._is_closed)
            for queue in self._queues
        }
        rows = {queue: row for queue, row in self._rows.items() if row.head is not None}
        steps = (
            _by_position(rows)
            if self._share is None
            else _Fair(rows, self._parent, self._share, self._before).walk()
        )
        for row in steps:
            self._at = self._moved[row.queue] = row
            head = row.head
            assert head is not None, "a queue without jobs is next"
            if not row.head_stands:  # something was placed since
                continue
            if self._ask(head.line, head.position):
                yield head.line, head.position
            else:
                closed.add(head.line)

    def has_passed_any(self, of: Callable[[Line], bool] = lambda line: True) -> bool:
        """Whether anybody of such lines waits who goes before where the walk is in its queue, looked at or not."""
        return any(row.has_passed_any(of) for row in self._rows.values())

    def has_left_out_any(
        self, first_of: Callable[[Line], Position | None], *, lately: bool = False
    ) -> bool:
        """Whether anybody counts whom the walk has passed, or will not come to as his line has ended.

        first_of: the first of a line who counts, None where nobody does. lately: since this was asked last, when it was
        nobody; nobody counts who did not then.
        """
        rows = list((self._moved if lately else self._rows).values())
        assert self._at is not None, "the walk is nowhere yet"
        self._moved = {self._at.queue: self._at}  # it has not gone on yet
        return any(row.has_left_out_any(first_of) for row in rows)


class Looked(NamedTuple):
    """Whom a walk looks at in a queue: some by themselves, in order, and all of some lines."""

    alone: Sequence[Standing] = ()
    lines: Collection[Line] = ()


class Admits(Protocol):
    """Who is to be looked at. version changes whenever somebody may be who was not before, moment whenever any answer
    may be another one."""

    @property
    def version(self) -> int: ...

    @property
    def moment(self) -> int: ...

    def those_of(self, queue: int) -> Looked:
        """Those of a queue who are to be looked at as things are; some too many do no harm."""

    def is_open(self, line: Line) -> bool:
        """Whether somebody of a line of which all were to be looked at still is."""

    def still(self, standing: Standing) -> bool:
        """Whether one of these still is."""


class _Row:
    """The jobs of one queue, one after the other; head is the next that is to be looked at, None at the end.

    _heads holds of each line of which all are looked at the next position; _last is the last head before it was closed.
    """

    def __init__(
        self,
        queue: int,
        lines: Lines,
        closed: set[Line],
        admits: "Admits | None",
        is_closed: IsClosed | None,
    ) -> None:
        self.queue, self._lines, self._closed, self._admits = queue, lines, closed, admits
        self._is_closed = is_closed
        self.head: Standing | None = None
        self._last: Standing | None = None
        self._alone: Sequence[Standing] = ()
        self._at = 0
        self._heads: list[Standing] = []
        self._stood: Standing | None = None
        self._version = self._stood_at = 0
        self._read()
        self.go_on()

    @property
    def head_stands(self) -> bool:
        """Whether the head is still to be looked at."""
        return self.head is not None and self._stands(self.head)

    def has_passed_any(self, of: Callable[[Line], bool]) -> bool:
        """Whether anybody of such lines waits who goes before the head."""
        return any(
            self._is_passed(self._lines[line][0]) and of(line)
            for line in self._lines.lines_in(self.queue)
        )

    def _is_passed(self, position: Position) -> bool:
        if self._last is not None:
            return position <= self._last.position
        return self.head is None or position < self.head.position

    def has_left_out_any(self, first_of: Callable[[Line], Position | None]) -> bool:
        """Whether anybody who counts goes before the head, or stands in a line that has ended."""
        for line in self._lines.lines_in(self.queue):
            first = first_of(line)
            if first is not None and (
                self.head is None or first < self.head.position or line in self._closed
            ):
                return True
        return False

    def go_on(self) -> None:
        """Go to the next."""
        if self._admits is not None and self._version != self._admits.version:
            self._read()
        last, self.head = self.head, None
        if last is not None and self._is_closed is not None and self._is_closed(self.queue):
            self._last = last
            return
        while (each := self._next()) is not None:
            if each != last and self._stands(each):
                self.head = each
                break

    def _read(self) -> None:
        """Ask who is to be looked at, of those behind the head."""
        looked = Looked(tuple(self._lines.in_queue(self.queue)))
        if self._admits is not None:
            self._version = self._admits.version
            looked = self._admits.those_of(self.queue)
        self._alone = looked.alone
        self._at = 0 if self.head is None else bisect_right(self._alone, self.head)
        last = None if self.head is None else self.head.position
        self._heads = [head for line in looked.lines if (head := self._behind(line, last))]
        heapify(self._heads)

    def _next(self) -> Standing | None:
        """The next in order, be it by itself or of a line; one that is both comes twice in a row."""
        while self._heads and not self._is_open(self._heads[0].line):
            heappop(self._heads)
        alone = self._alone[self._at] if self._at < len(self._alone) else None
        if self._heads and (alone is None or self._heads[0] < alone):
            head = heappop(self._heads)
            behind = self._behind(head.line, head.position)
            if behind is not None:
                heappush(self._heads, behind)
            return head
        self._at += alone is not None
        return alone

    def _behind(self, line: Line, position: Position | None) -> Standing | None:
        """The first of a line, or the next behind a position."""
        positions = self._lines[line]
        place = 0 if position is None else bisect_right(positions, position)
        return Standing(positions[place], line) if place < len(positions) else None

    def _is_open(self, line: Line) -> bool:
        assert self._admits is not None, "only whom it names is looked at by lines"
        return line not in self._closed and self._admits.is_open(line)

    def _stands(self, standing: Standing) -> bool:
        if standing.line in self._closed:
            return False
        if self._admits is None:
            return True
        moment = self._admits.moment
        if self._stood is standing and self._stood_at == moment:
            return True
        stands = self._admits.still(standing)
        self._stood, self._stood_at = standing if stands else None, moment
        return stands


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
        share: Share,
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
