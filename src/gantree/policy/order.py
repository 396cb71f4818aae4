"""Who goes first: what jobs are ordered by, and the lines that waiting jobs stand in.

The order is a list of keys (`Policy.order`); the first that differs decides, and arrival settles what is left. "share"
is no number of a job but of its queue at a moment, so it is not in a key: `policy.walk` puts it in its place.

    priority           its number, larger first; a day of waiting counts `age_per_day` more
    share              the queue (and user) that had least of what it is owed (`policy.share`)
    attained           GPU-seconds that it was served, fewest first; in levels, if the policy says so (Tiresias)
    remaining          seconds of its run that are left, by its own guess, else its limit; unknown goes last (SRTF)
    remaining_service  the same times its GPUs (SRSF)
    stretch            the moment until which it may be kept waiting, soonest first: its submission, and `stretch` times
                       as long as the whole cluster would need for the work that is left of it. So short jobs go first,
                       but nobody is passed for ever: with a large stretch it is SRSF, with none arrival. Where nobody
                       knows the run time, a day (an assumption, the same for all, so that these go by arrival)
    smallest           GPUs, fewest first
    arrival            first come, first served; a job that was stopped keeps its place

Jobs of one line get the same answer from the same state: alike in queue, in signature (a number for all that ask
alike), priority, and how long they may hold a place. When the first of a line is refused, the others need not be
asked.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, KeysView, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from gantree.model.values import quick
from gantree.policy.rules import Policy

DAY_S = 86_400.0
SHARE = "share"
PATIENCE_S = DAY_S
"""How long a job of unknown run time may be kept waiting, in the order "stretch"; an assumption."""


class Position(NamedTuple):
    """A job's place in the order: smaller goes first. key has a number for each key of the order but "share"."""

    key: tuple[float, ...]
    seq: int
    job: str


class Line(NamedTuple):
    """What the jobs of one line have in common.

    queue is a node of the queue tree. span_s is how long they hold a place at most, inf where nobody knows; enforced
    says whether that is a limit or a guess.
    """

    queue: int
    signature: int
    priority: int
    preemptible: bool = True
    span_s: float = inf
    enforced: bool = False


@quick
@dataclass(frozen=True, slots=True)
class Merits:
    """What the order reads of a job: seconds, GPUs and GPU-seconds. expected_s is its whole run; None: unknown."""

    priority: int
    seq: int
    submitted_at: float
    gpus: float
    attained_gpu_s: float = 0.0
    done_s: float = 0.0
    expected_s: float | None = None


class Order:
    """The order of a policy. before_share is how many numbers of a key come before "share"; None without it.

    cluster_gpus are the GPUs of the cluster that it orders for.
    """

    def __init__(self, policy: Policy) -> None:
        self._keys = tuple(key for key in policy.order if key != SHARE)
        self._age_per_s = policy.age_per_day / DAY_S
        self._levels = tuple(sorted(policy.attained_levels))
        self._stretch = policy.stretch
        self.cluster_gpus = 1.0
        shared = SHARE in policy.order
        self.before_share = policy.order.index(SHARE) if shared else None

    def key(self, merits: Merits) -> tuple[float, ...]:
        """The numbers by which a job is compared, smaller first."""
        return tuple(self._number(key, merits) for key in self._keys)

    def _number(self, key: str, merits: Merits) -> float:
        numbers: dict[str, float] = {"smallest": merits.gpus, "arrival": merits.seq}
        match key:
            case "priority":
                # Everybody ages alike, so the order depends on the moment of submission alone.
                return self._age_per_s * merits.submitted_at - merits.priority
            case "attained":
                return self._attained(merits.attained_gpu_s)
            case "remaining":
                return self._remaining_s(merits)
            case "remaining_service":
                left_s = self._remaining_s(merits)
                return inf if left_s == inf else left_s * merits.gpus
            case "stretch":
                return merits.submitted_at + self._patience_s(merits)
        return numbers[key]

    def _patience_s(self, merits: Merits) -> float:
        left_s = self._remaining_s(merits)
        if left_s == inf:
            return PATIENCE_S
        return self._stretch * left_s * max(1.0, merits.gpus) / self.cluster_gpus

    def _attained(self, gpu_s: float) -> float:
        return bisect_right(self._levels, gpu_s) if self._levels else gpu_s

    def _remaining_s(self, merits: Merits) -> float:
        if merits.expected_s is None:
            return inf
        return max(0.0, merits.expected_s - merits.done_s)


class Standing(NamedTuple):
    """A job in the queue: its place in the order, and the line of those who are alike."""

    position: Position
    line: Line


@dataclass(frozen=True, slots=True)
class KeptLines:
    """Job ids: all that wait, line by line, the oldest line first; then one of each queue and of each signature."""

    waiting: tuple[str, ...] = ()
    one_of_queue: tuple[str, ...] = ()
    one_of_signature: tuple[str, ...] = ()


class Lines:
    """Waiting jobs: for each queue all of them in order, and one line for all that are alike.

    kinds grows whenever a signature comes or goes; changes whenever any queue does.
    """

    def __init__(self) -> None:
        self._positions_of_line: dict[Line, list[Position]] = {}
        self._standing_in_queue: dict[int, list[Standing]] = {}
        self._lines_of_signature: dict[int, dict[Line, None]] = {}
        self._lines_in_queue: dict[int, dict[Line, None]] = {}
        self._alike_in_queue: dict[int, dict[int, dict[Line, None]]] = {}
        self._changes_in_queue: dict[int, int] = {}
        self.kinds = self.changes = 0

    def __len__(self) -> int:
        return sum(len(standing) for standing in self._standing_in_queue.values())

    def __iter__(self) -> Iterator[Line]:
        """The lines in which anybody stands, oldest line first."""
        return iter(self._positions_of_line)

    def __contains__(self, line: Line) -> bool:
        return line in self._positions_of_line

    def __getitem__(self, line: Line) -> Sequence[Position]:
        """The positions of a line, in order; empty where nobody stands."""
        return self._positions_of_line.get(line, ())

    @property
    def queues(self) -> Iterable[int]:
        """The queues in which anybody waits."""
        return self._standing_in_queue.keys()

    def in_queue(self, queue: int) -> Sequence[Standing]:
        """Everybody who waits in a queue, in order. Not to be kept: it changes."""
        return self._standing_in_queue.get(queue, ())

    def lines_in(self, queue: int) -> Collection[Line]:
        """The lines of a queue in which anybody stands, oldest line first. Not to be kept: it changes."""
        return self._lines_in_queue.get(queue, {}).keys()

    def stands_before(self, line: Line, place: int) -> bool:
        """Whether the first of a line is among the first `place` of its queue."""
        standing = self._standing_in_queue.get(line.queue, ())
        if len(standing) <= place:
            return True
        first = self._positions_of_line[line][0]
        return first <= standing[place - 1].position

    @property
    def signatures(self) -> Collection[int]:
        """The signatures of those who wait."""
        return self._lines_of_signature.keys()

    def of_signature(self, signature: int) -> Iterable[Line]:
        """The lines of a signature in which anybody stands, oldest line first."""
        return self._lines_of_signature.get(signature, ())

    def signatures_in(self, queue: int) -> KeysView[int]:
        """The signatures of those who wait in a queue. Not to be kept: it changes."""
        return self._alike_in_queue.get(queue, {}).keys()

    def alike_in(self, queue: int, signature: int) -> Collection[Line]:
        """The lines of a queue with one signature, oldest line first. Not to be kept: it changes."""
        return self._alike_in_queue.get(queue, {}).get(signature, {}).keys()

    def changes_in(self, queue: int) -> int:
        """What `changes` was when a job last began or ended to wait in a queue, or `touch` said so."""
        return self._changes_in_queue.get(queue, 0)

    def touch(self, queue: int) -> None:
        """Something that a job of a queue waits for, other than room, has changed."""
        self.changes += 1
        self._changes_in_queue[queue] = self.changes

    def kept(self) -> "KeptLines":
        """Who waits, and the orders in which lines, queues and signatures are told, by jobs that stand for them."""
        firsts = {line: positions[0].job for line, positions in self._positions_of_line.items()}
        return KeptLines(
            tuple(each.job for line in self._positions_of_line.values() for each in line),
            tuple(standing[0].position.job for standing in self._standing_in_queue.values()),
            tuple(firsts[next(iter(lines))] for lines in self._lines_of_signature.values()),
        )

    def arrange(self, queues: Iterable[int], signatures: Iterable[int]) -> None:
        """Tell queues and signatures in these orders, in which all must be that are waited in."""
        self._standing_in_queue = {
            queue: self._standing_in_queue[queue] for queue in dict.fromkeys(queues)
        }
        self._lines_of_signature = {
            each: self._lines_of_signature[each] for each in dict.fromkeys(signatures)
        }

    def add(self, line: Line, position: Position) -> None:
        """Put a job in its line."""
        self.touch(line.queue)
        self.kinds += line.signature not in self._lines_of_signature
        insort(self._positions_of_line.setdefault(line, []), position)
        insort(self._standing_in_queue.setdefault(line.queue, []), Standing(position, line))
        self._lines_of_signature.setdefault(line.signature, {})[line] = None
        self._lines_in_queue.setdefault(line.queue, {})[line] = None
        alike = self._alike_in_queue.setdefault(line.queue, {})
        alike.setdefault(line.signature, {})[line] = None

    def remove(self, line: Line, position: Position) -> None:
        """Take a job out of its line; it must be there."""
        self.touch(line.queue)
        _take_out(self._positions_of_line, line, position)
        _take_out(self._standing_in_queue, line.queue, Standing(position, line))
        if line not in self._positions_of_line:
            alike = self._alike_in_queue[line.queue]
            del self._lines_in_queue[line.queue][line], alike[line.signature][line]
            if not alike[line.signature]:
                del alike[line.signature]
            del self._lines_of_signature[line.signature][line]
            if not self._lines_of_signature[line.signature]:
                del self._lines_of_signature[line.signature]
                self.kinds += 1


def _take_out(lists: dict[Any, list[Any]], key: Any, entry: Any) -> None:
    """Take an entry out of a sorted list, and an empty list out of the lists."""
    entries = lists[key]
    index = bisect_left(entries, entry)
    assert index < len(entries) and entries[index] == entry, f"{entry} does not wait"
    del entries[index]
    if not entries:
        del lists[key]
