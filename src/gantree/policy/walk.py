"""A walk over waiting jobs in the order of the policy: the fair one, where shares decide between queues.

Between two children of a queue goes first the one whose best job has the better keys before "share"; among equals the
one with the smaller share; among equals the one whose next job goes first. Inside a queue jobs go by position. What is
placed while the walk goes on changes shares, but only on the path of the queue it was placed in; so each queue keeps
a heap of its children, and after every job that was looked at only its path is put in order again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from gantree.policy.order import Line, Lines, Position

Share = Callable[[int], float]
Ask = Callable[[Line, Position], bool]

ROOT = 0

Head = tuple[Position, int, Line]
Entry = tuple[tuple[float, ...], float, Position, int, int]
"""(best keys before "share", share, best position, whether it stands for the queue's own jobs, node) of a child."""


def walk(
    lines: Lines,
    among: Iterable[Line],
    ask: Ask,
    parent_of_queue: Sequence[int] = (),
    share: Share | None = None,
    before_share: int = 0,
) -> Iterator[tuple[Line, Position]]:
    """Yield (line, position) in order over some lines; a line ends where `ask`, asked before each position, says no.

    The job that was yielded last may be removed from its line before the walk goes on. share(queue) is asked as the
    walk goes; without it all jobs are compared by position alone.
    """
    heads = [(lines[line][0], number, line) for number, line in enumerate(among) if lines[line]]
    if share is None:
        heapify(heads)
        yield from _in_line(lines, heads, ask)
        return
    yield from _Fair(lines, heads, ask, parent_of_queue, share, before_share).walk()


def _in_line(lines: Lines, heads: list[Head], ask: Ask) -> Iterator[tuple[Line, Position]]:
    """By position alone: a heap of the heads of all lines."""
    rest_of_line: dict[Line, Iterator[Position]] = {}
    while heads:
        yield from _next_of(lines, heads, ask, rest_of_line)


def _next_of(
    lines: Lines, heads: list[Head], ask: Ask, rest_of_line: dict[Line, Iterator[Position]]
) -> Iterator[tuple[Line, Position]]:
    """The first head, if it is to be asked; then its line's next stands in the heap."""
    position, number, line = heappop(heads)
    if not ask(line, position):
        return
    if line not in rest_of_line:  # copied only now: most lines are never opened
        rest_of_line[line] = iter(tuple(lines[line][1:]))
    yield line, position
    following = next(rest_of_line[line], None)
    if following is not None:
        heappush(heads, (following, number, line))


class _Fair:
    """The walk by shares: a heap of heads for each queue with jobs, a heap of children for each queue above."""

    def __init__(
        self,
        lines: Lines,
        heads: Iterable[Head],
        ask: Ask,
        parent_of_queue: Sequence[int],
        share: Share,
        before_share: int,
    ) -> None:
        self._lines, self._ask, self._share = lines, ask, share
        self._before = before_share
        self._parent = parent_of_queue
        self._heads: dict[int, list[Head]] = {}
        self._children: dict[int, list[Entry]] = {}
        self._own_is_in: set[int] = set()
        self._rest_of_line: dict[Line, Iterator[Position]] = {}
        for head in heads:
            self._heads.setdefault(head[2].queue, []).append(head)
        for queue in sorted(self._heads, reverse=True):
            heapify(self._heads[queue])
        self._fill()

    def _fill(self) -> None:
        """Put every queue with jobs below its parent; children have larger numbers than their parents."""
        found = dict.fromkeys(self._heads)
        for queue in self._heads:
            above = queue
            while above != ROOT:
                above = self._parent[above]
                found.setdefault(above)
        for queue in sorted(found, reverse=True):
            self._put(queue)

    def _put(self, queue: int) -> None:
        """Put a queue's own jobs beside its children, and the queue, if it has anything, beside its siblings."""
        heap = self._children.setdefault(queue, [])
        if self._heads.get(queue) and queue not in self._own_is_in:
            self._own_is_in.add(queue)
            first = self._heads[queue][0][0]
            heappush(heap, (first.key[: self._before], 0.0, first, 1, queue))
        if heap and queue != ROOT:
            keys, _, first, _, _ = heap[0]
            entry = (keys, self._share(queue), first, 0, queue)
            heappush(self._children.setdefault(self._parent[queue], []), entry)

    def walk(self) -> Iterator[tuple[Line, Position]]:
        while self._children.get(ROOT):
            path = self._descend()
            yield from _next_of(self._lines, self._heads[path[-1]], self._ask, self._rest_of_line)
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
