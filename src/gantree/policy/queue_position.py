"""The number of pending jobs before one, counted in the order of each queue instead of by a walk.

It says what `walk.Walk` comes to with nobody placed meanwhile, in steps for each queue instead of for each job. Whoever
goes before a job belongs to one of two kinds, by the keys that come before "share":

    better keys     all of them, in whichever queue
    the same keys   going up from the job's queue, of each branch that stands beside: all where its share is smaller,
                    none where it is larger; where shares are equal those who lead it, up to the first whose position
                    is behind. That one keeps all of its branch who come after it waiting, and so the position that a
                    branch is compared by is the last of all that leave it before the job does, the job's own among them
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from gantree.policy.order import Position
from gantree.policy.waiting_jobs import QueueEntry, WaitingJobs
from gantree.policy.walk import ROOT, ShareOfQueue

Keys = tuple[float, ...]
OWN_SHARE = 0.0
"""With it a queue's own jobs stand beside its children."""

_position_of: Callable[[QueueEntry], Position] = attrgetter("position")
_share_of: Callable[["_Branch"], float] = attrgetter("share")


def count_ahead(
    waiting: WaitingJobs,
    entry: QueueEntry,
    parent_of_queue: Sequence[int] = (),
    share: ShareOfQueue | None = None,
    before_share: int = 0,
) -> int:
    """How many a walk comes to before this one; the arguments are a walk's. Without share position alone counts."""
    position, queue = entry.position, entry.equivalence_class.queue
    if share is None:
        every = (waiting.in_queue(each) for each in waiting.queues)
        return sum(bisect_left(each, position, key=_position_of) for each in every)
    branches = _branches(waiting, parent_of_queue, share, position.key[:before_share])
    at, last = branches[queue].parts[0], position
    count = at.better + at.leading(position)
    while True:
        above = branches[queue]
        beside = [part for part in above.parts if part is not at]
        count += sum(part.better + _before(part, at.share, last) for part in beside)
        last = max([last, *(part.last for part in beside if part.last and part.share < at.share)])
        if queue == ROOT:
            return count
        at, queue = above, parent_of_queue[queue]


@dataclass(slots=True)
class _Branch:
    """A queue with all below it, or its own jobs alone.

    better: how many have better keys. alike: how many have the same; last is the last position of these. own are all
    jobs of an own branch, those with the same keys from first on.
    """

    share: float
    better: int = 0
    alike: int = 0
    last: Position | None = None
    own: Sequence[QueueEntry] = ()
    first: int = 0
    parts: list["_Branch"] = field(default_factory=list)

    def add(self, part: "_Branch") -> None:
        """One more is in it."""
        self.parts.append(part)
        self.better += part.better
        self.alike += part.alike
        if part.last is not None and (self.last is None or self.last < part.last):
            self.last = part.last

    def leading(self, position: Position) -> int:
        """How many of those with the same keys come before the first whose position is not before this one."""
        if not self.parts:
            end = self.first + self.alike
            found = bisect_left(self.own, position, self.first, end, key=_position_of)
            return found - self.first
        count = 0
        for _, parts in groupby(sorted(self.parts, key=_share_of), _share_of):
            equals = list(parts)
            leading = sum(part.leading(position) for part in equals)
            count += leading
            if leading < sum(part.alike for part in equals):
                break
        return count


def _before(part: _Branch, share: float, last: Position) -> int:
    """How many with the same keys leave a branch before one beside it, with this share, has been left up to a job."""
    if part.share == share:
        return part.leading(last)
    return part.alike if part.share < share else 0


def _branches(
    waiting: WaitingJobs, parent_of_queue: Sequence[int], share: ShareOfQueue, keys: Keys
) -> dict[int, _Branch]:
    """The branches of all queues with jobs, and above these. Of one with jobs of its own these are the first part."""
    found: dict[int, _Branch] = {}
    for queue in waiting.queues:
        above = queue
        while above not in found:
            found[above] = _Branch(OWN_SHARE if above == ROOT else share(above))
            above = ROOT if above == ROOT else parent_of_queue[above]
        found[queue].add(_own(waiting.in_queue(queue), keys))
    for queue in sorted(found, reverse=True):  # children have larger numbers than their parents
        if queue != ROOT:
            found[parent_of_queue[queue]].add(found[queue])
    return found


def _own(jobs: Sequence[QueueEntry], keys: Keys) -> _Branch:
    """The branch of a queue's own jobs, which are in order."""

    def keys_of(entry: QueueEntry) -> Keys:
        return entry.position.key[: len(keys)]

    first = bisect_left(jobs, keys, key=keys_of)
    end = bisect_right(jobs, keys, first, key=keys_of)
    last = jobs[end - 1].position if end > first else None
    return _Branch(OWN_SHARE, first, end - first, last, jobs, first)
