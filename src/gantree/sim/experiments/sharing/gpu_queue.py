"""Replicas of inference that share one GPU, request by request.

A replica serves one request at a time, first come first served. The work of a request is the time that it takes alone
on the whole GPU; it then keeps a share of the GPU busy, its width, because its kernels are too small for all of it.

    MPS          requests of all replicas run side by side: k of them need k times the width, and where that is more
                 than the GPU all are slowed alike (processor sharing)
    MIG          a replica has a part of the GPU for itself, and is slowed where its part is narrower than a request
    time-slices  one replica at a time has the whole GPU, for a slice; then the next one that has a request

Memory bandwidth and caches, which MPS and time-slices share too, are not in the model. Times are in any one unit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from random import Random

Stream = Sequence[tuple[float, float]]
"""Requests of a replica as (time of arrival, work), in the order of arrival."""

WARM_UP = 20
"""One part in so many of the requests, the first ones, is left out of the statistics: the GPU begins empty."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Time-slices: the length of one, and what a switch costs as a share of it."""

    length: float
    switch_share: float


def poisson(load: float, requests: int, cv: float, random: Random) -> list[tuple[float, float]]:
    """Return requests that come independently. Their mean work is 1, load is the rate; work is Gamma with that cv."""
    at, found = 0.0, []
    shape = 1 / cv**2 if cv else inf
    for _ in range(requests):
        at += random.expovariate(load)
        found.append((at, random.gammavariate(shape, 1 / shape) if cv else 1.0))
    return found


def partition_rate(part: float, width: float) -> float:
    """Return how fast a request works on a part of the GPU; alone on the whole GPU it is 1."""
    return min(1.0, part / width)


def shared_rate(busy: int, width: float) -> float:
    """Return how fast each of so many requests works that run side by side."""
    return min(1.0, 1 / (busy * width))


def on_partition(stream: Stream, rate: float) -> list[float]:
    """Return the response times of a replica that works at one rate whatever others do (Lindley's recursion)."""
    free_at, found = 0.0, []
    for at, work in stream:
        free_at = max(free_at, at) + work / rate
        found.append(free_at - at)
    return found


def side_by_side(
    streams: Sequence[Stream], width: float, *, saturated: int = 0
) -> list[list[float]]:
    """Return the response times of each replica under MPS, beside so many replicas that always have a request.

    All busy replicas work at one rate, so progress is one number: a request that begins when it is p ends at p + work.
    """
    queues = [_Queue(stream) for stream in streams]
    found: list[list[float]] = [[] for _ in streams]
    ends: list[tuple[float, int]] = []
    arrivals = sorted(((at, replica) for replica, stream in enumerate(streams) for at, _ in stream))
    now, progress = 0.0, 0.0
    for at, replica in [*arrivals, (inf, -1)]:
        while ends:
            rate = shared_rate(len(ends) + saturated, width)
            end_at = now + (ends[0][0] - progress) / rate
            if end_at > at:
                progress += (at - now) * rate
                break
            now, (progress, ended) = end_at, heappop(ends)
            found[ended].append(now - queues[ended].leave())
            if queues[ended].waiting:
                heappush(ends, (progress + queues[ended].work, ended))
        now = at
        if replica >= 0 and queues[replica].join() == 1:
            heappush(ends, (progress + queues[replica].work, replica))
    return found


class _Queue:
    """The requests of one replica that have come and not left; the first of them is being served."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._first, self.waiting = stream, 0, 0

    @property
    def work(self) -> float:
        """Work of the first."""
        return self._stream[self._first][1]

    def join(self) -> int:
        """Take in the next one; returns how many there are now."""
        self.waiting += 1
        return self.waiting

    def leave(self) -> float:
        """Let the first one go; returns when it had come."""
        self.waiting -= 1
        self._first += 1
        return self._stream[self._first - 1][0]


def in_slices(
    streams: Sequence[Stream], slices: Slices, *, saturated: int = 0
) -> list[list[float]]:
    """Return the response times of each replica in time-slices, beside so many that always have a request."""
    turns = _Turns(streams, saturated)
    now, last = 0.0, -1
    while not turns.over:
        replica = turns.next_after(last, now)
        if replica is None:
            now = turns.next_arrival()
            continue
        if last not in (replica, -1):
            now += slices.length * slices.switch_share
        now = turns.run(replica, now, slices.length)
        last = replica
    return turns.found


class _Turns:
    """Round robin over replicas that have a request; the last ones always have one."""

    def __init__(self, streams: Sequence[Stream], saturated: int) -> None:
        self._streams = streams
        self._first = [0] * len(streams)
        self._left = [stream[0][1] if stream else 0.0 for stream in streams]
        self._at = [stream[0][0] if stream else inf for stream in streams]
        self._at += [0.0] * saturated
        self.found: list[list[float]] = [[] for _ in streams]

    @property
    def over(self) -> bool:
        """Whether all requests are served."""
        return self.next_arrival() == inf

    def next_arrival(self) -> float:
        """When the first request came or comes that is not served."""
        return min(self._at[: len(self._streams)])

    def next_after(self, last: int, now: float) -> int | None:
        """The replica whose turn it is, None if none has a request."""
        count = len(self._at)
        for step in range(1, count + 1):
            replica = (last + step) % count
            if self._at[replica] <= now:
                return replica
        return None

    def run(self, replica: int, now: float, slice_: float) -> float:
        """Let a replica work for a slice, until its request is served, or while it is alone; returns the time."""
        if replica >= len(self._streams):
            return now + slice_
        others_at = min((at for other, at in enumerate(self._at) if other != replica), default=inf)
        works_for = min(self._left[replica], max(slice_, others_at - now))
        self._left[replica] -= works_for
        now += works_for
        if self._left[replica] <= slice_ * 1e-9:
            self._serve_next(replica, now)
        return now

    def _serve_next(self, replica: int, now: float) -> None:
        self.found[replica].append(now - self._at[replica])
        self._first[replica] += 1
        stream, first = self._streams[replica], self._first[replica]
        self._at[replica], self._left[replica] = stream[first] if first < len(stream) else (inf, 0)


def percentile(times: Sequence[float], percent: float) -> float:
    """Return a percentile by nearest rank, without the first requests."""
    kept = sorted(_warm(times))
    rank = -int(-percent * len(kept) // 100)
    return kept[max(1, rank) - 1]


def mean_of(times: Sequence[float]) -> float:
    """Return the mean, without the first requests."""
    kept = list(_warm(times))
    return sum(kept) / len(kept)


def _warm(times: Sequence[float]) -> Iterator[float]:
    return iter(times[len(times) // WARM_UP :])
