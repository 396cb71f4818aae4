"""Who stands behind a waiting job in the order, of the gangs that hold a place: by order nobody else is stopped for it.

Where a gang stands changes while it runs: what is left of it gets less, so it goes forward; what it was served gets
more, so it falls back. Counted here is the furthest back that it will stand from a moment on, until the next one at
which a gang falls back a level (`next_fall`); where each second counts, that it will ever stand. Whoever is not behind
a waiting job there is not until then, as long as the attempt lasts; so a gang is looked at again, as time goes by, only
for one that it still seems to stand behind.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import itemgetter
from typing import NamedTuple

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.preemption_rules import falls
from gantree.model.jobs import Job

Key = tuple[float, ...]
KEY_AND_SEQ = itemgetter(0, 1)
MANY = 1000
"""Gangs that are remembered before those that are gone are forgotten."""
FORWARD = frozenset({"remaining", "remaining_service", "stretch"})
"""Keys of the order by which a gang goes forward as it runs."""


class Behind(NamedTuple):
    """Who is behind a job: where they begin in the row of its queue, and in that of all who are not owed their place;
    and how often each row had been put in order by then."""

    queue: str
    mine: int
    mine_sorted: int
    others: int
    others_sorted: int


@dataclass(slots=True)
class _Seen:
    """Where a gang stood at the furthest when it was looked at, and what else that depends on."""

    attempt: int
    priority: int
    spec: Job
    key: Key
    at: float

    def is_of(self, state: JobState) -> bool:
        return (
            self.attempt == state.attempt
            and self.priority == state.priority
            and self.spec is state.spec
        )


@dataclass(slots=True)
class _Row:
    """Gangs by where they stand at the furthest, first to last; sorted counts how often they were put in order."""

    gangs: list[tuple[Key, int, JobState]] = field(default_factory=list)
    sorted: int = 0


NOBODY = _Row()


class Ranks:
    """Where the gangs that hold a place stand in the order; counted anew when others may be stopped."""

    def __init__(self) -> None:
        self._cluster_gpus = 0.0
        self._seen: dict[str, _Seen] = {}
        self._falls: dict[str, tuple[object, Sequence[float]]] = {}
        self._gangs_of_queue: Mapping[str, Sequence[JobState]] = {}
        self._not_owed: Callable[[], Sequence[JobState]] = tuple
        self._row_of_queue: dict[str, _Row] = {}
        self._others: _Row | None = None

    def count(
        self,
        ledger: Ledger,
        gangs_of_queue: Mapping[str, Sequence[JobState]],
        not_owed: Callable[[], Sequence[JobState]],
    ) -> None:
        """From now on these gangs may be stopped; not_owed says which of them for other queues than theirs."""
        if self._cluster_gpus != ledger.accounts.order.cluster_gpus:
            self._cluster_gpus = ledger.accounts.order.cluster_gpus
            self._seen.clear()
        if len(self._seen) > MANY + 2 * len(ledger.holding):
            self._seen = {job: one for job, one in self._seen.items() if job in ledger.holding}
        self._gangs_of_queue, self._not_owed = gangs_of_queue, not_owed
        self._row_of_queue, self._others = {}, None

    def forget(self) -> None:
        """Gangs have fallen back: look at all of them again."""
        self._seen.clear()

    def next_fall(self, ledger: Ledger, now: float) -> float:
        """The next moment at which a gang that runs falls back a level, in seconds; inf where none will."""
        levels = ledger.policy.attained_levels
        if not levels or not ledger.policy.falls_back:
            return inf
        before, self._falls = self._falls, {}
        for job, state in ledger.holding.items():
            key = (state.running_at, state.suspended, state.suspended_s)
            known = before.get(job)
            if known is None or known[0] != key or (known[1] and known[1][0] <= now):
                known = (key, falls(state, levels, now))
            self._falls[job] = known
        return min((moments[0] for _, moments in self._falls.values() if moments), default=inf)

    def behind(self, ledger: Ledger, head: JobState, now: float) -> Behind:
        """Who is behind a waiting job, in its queue by all of the order, in others by what comes before shares."""
        queue, key, others, first_of_others = head.spec.queue, head.position.key, NOBODY, 0
        mine = self._row_of_queue.get(queue)
        if mine is None:
            gangs = self._gangs_of_queue.get(queue, ())
            mine = self._row_of_queue[queue] = self._row(ledger, gangs, now)
        first = self._begins(ledger, mine, key, None, now)
        if ledger.policy.preemption.across:
            if self._others is None:
                self._others = self._row(ledger, self._not_owed(), now)
            others, shared = self._others, ledger.accounts.order.before_share
            first_of_others = self._begins(ledger, others, key, shared, now)
        return Behind(queue, first, mine.sorted, first_of_others, others.sorted)

    def those(self, behind: Behind) -> Iterator[JobState]:
        """The gangs that are behind a job; to be asked before anything is counted anew."""
        mine = self._row_of_queue.get(behind.queue)
        if mine is not None:
            yield from (state for _, _, state in mine.gangs[behind.mine :])
        if self._others is not None:
            for _, _, state in self._others.gangs[behind.others :]:
                if state.spec.queue != behind.queue:
                    yield state

    def _begins(self, ledger: Ledger, row: _Row, key: Key, compared: int | None, now: float) -> int:
        """Where those begin in a row who are behind a key, as far as it is compared."""
        mine = key[:compared]
        place = bisect_right(row.gangs, mine, key=lambda each: each[0][:compared])
        if self._look_again(ledger, row, place, now):
            place = bisect_right(row.gangs, mine, key=lambda each: each[0][:compared])
        return place

    def _look_again(self, ledger: Ledger, row: _Row, place: int, now: float) -> bool:
        """Look where those stand by now who are in a row from a place on; whether it is in another order then."""
        if FORWARD.isdisjoint(ledger.policy.order):
            return False
        moved = False
        for number in range(place, len(row.gangs)):
            key, seq, state = row.gangs[number]
            seen = self._seen[state.job]
            if seen.at < now:
                seen = self._seen[state.job] = _look(ledger, state, now)
            if seen.key != key:
                row.gangs[number], moved = (seen.key, seq, state), True
        if moved:
            row.gangs.sort(key=KEY_AND_SEQ)
            row.sorted += 1
        return moved

    def _row(self, ledger: Ledger, gangs: Iterable[JobState], now: float) -> _Row:
        found = []
        for state in gangs:
            seen = self._seen.get(state.job)
            if seen is None or not seen.is_of(state):
                seen = self._seen[state.job] = _look(ledger, state, now)
            found.append((seen.key, state.seq, state))
        found.sort(key=KEY_AND_SEQ)
        return _Row(found)


def _look(ledger: Ledger, state: JobState, now: float) -> _Seen:
    """Where a gang stands at the furthest from now on: before it falls back a level, or whatever it is served yet."""
    merits = state.merits(now)
    if not ledger.policy.attained_levels:
        merits = replace(merits, attained_gpu_s=inf)
    key = ledger.accounts.order.key(merits)
    return _Seen(state.attempt, state.priority, state.spec, key, now)
