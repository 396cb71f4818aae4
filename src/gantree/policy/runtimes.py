"""Run times learned from ended jobs: quantiles by queue, user and name, and the end times that they predict.

What is learned is never trusted blindly. It makes estimates, and only an enforced time limit makes a promise
(`Estimate.enforced`). It is always asked on condition of what is known: a gang that has run for three hours is compared
only with runs longer than that, so an estimate never lies in the past, and a gang that outlives all its like moves on
to a wider group. It never reaches beyond the limit. Where nothing like it has ever run longer, the user's own guess
counts; where that is missing or outlived too, a gang is taken to run as long again as it has run, and for ten minutes
at least. That last rule is an assumption: run times of such jobs are heavy-tailed (of a Pareto tail with exponent 1 the
median of what is left is as long as what has passed), and ten minutes is a round number that nobody measured.

Jobs are alike by the stem of their names (without the digits that end it, and what joins them to it), their user and
their queue; a group speaks where enough of its runs were longer, else the next wider one does. A group keeps its newest
runs only, so it follows what a team does now.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, inf
from typing import Literal

ENOUGH_RUNS = 8
"""A group speaks with so many runs that were longer. With 8, a 0.9 quantile is the longest of them. Assumed."""

MOST_RUNS = 256
"""Newest runs that a group keeps. Assumed: enough for a 0.99 quantile."""

MOST_GROUPS = 8192
"""Groups that are kept; the one that learned nothing for longest goes first. At most some 50 MB with all full."""

LEAST_LEFT_S = 600.0
"""Seconds that a gang of which nothing is known is taken to run on, at least. Assumed."""

_NUMBERS = re.compile(r"[\W\d_]+$")
"""What ends a name and is no letter: numbers, what joins them to it, brackets around them."""

Group = tuple[str, ...]
"""(queue, user, stem), (queue, user), (queue,) or (): the most specific first, the last holds everything."""


@lru_cache(maxsize=MOST_GROUPS)
def stem_of(name: str) -> str:
    """A job's name without the numbers that end it: "llama-7b-03" and "llama-7b[12]" are both "llama-7b".

    A name of numbers alone has the stem "".
    """
    return _NUMBERS.sub("", name)


@dataclass(slots=True)
class _Runs:
    """The newest runs of a group in seconds: as they came, and rising."""

    newest: deque[float] = field(default_factory=deque)
    rising: list[float] = field(default_factory=list)

    def add(self, run_s: float) -> None:
        """Add a run; the oldest goes where there are too many."""
        if len(self.newest) == MOST_RUNS:
            del self.rising[bisect_left(self.rising, self.newest.popleft())]
        self.newest.append(run_s)
        insort(self.rising, run_s)


class Runtimes:
    """Run times of jobs that ended. Grows by `learn` alone, and says the same again after the same calls."""

    def __init__(self) -> None:
        """Nothing learned."""
        self._runs_of_group: dict[Group, _Runs] = {}

    def learn(self, queue: str, user: str, name: str, run_s: float) -> None:
        """Learn of a run from its start to its end, in seconds.

        For runs that ended by themselves: one that was stopped says only that it would have been longer.
        AssertionError for a negative time.
        """
        assert 0 <= run_s < inf, f"{name} ran for {run_s} s"
        for group in _groups(queue, user, name):
            runs = self._runs_of_group.pop(group, None) or _Runs()
            runs.add(run_s)
            self._runs_of_group[group] = runs
        while len(self._runs_of_group) > MOST_GROUPS:
            del self._runs_of_group[next(iter(self._runs_of_group))]

    def kept(self) -> tuple[tuple[Group, tuple[float, ...]], ...]:
        """Return each group with its runs as they came, the one that learned nothing for longest first."""
        return tuple((group, tuple(runs.newest)) for group, runs in self._runs_of_group.items())

    def go_on_from(self, kept: Iterable[tuple[Group, tuple[float, ...]]]) -> None:
        """Know what was kept, and nothing else."""
        self._runs_of_group = {
            group: _Runs(deque(newest), sorted(newest)) for group, newest in kept
        }

    def quantile(
        self, queue: str, user: str, name: str, q: float, ran_s: float = 0.0
    ) -> float | None:
        """The q-quantile, by nearest rank, of the whole run time of jobs like this that ran longer than ran_s.

        Of the most specific group with ENOUGH_RUNS of them, else of all jobs that ran longer, however few; None where
        there are none. More than ran_s always. AssertionError unless 0 < q <= 1.
        """
        assert 0 < q <= 1, f"quantile {q}"
        for group in _groups(queue, user, name):
            runs = self._runs_of_group.get(group)
            if runs is None:
                continue
            shorter = bisect_right(runs.rising, ran_s)
            longer = len(runs.rising) - shorter
            if longer >= ENOUGH_RUNS or (longer and not group):
                return runs.rising[shorter + ceil(q * longer) - 1]
        return None


def _groups(queue: str, user: str, name: str) -> tuple[Group, ...]:
    return (queue, user, stem_of(name)), (queue, user), (queue,), ()


EndKind = Literal["limit", "learned", "said", "assumed"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a gang ends, in seconds as `Event.observed_at` counts, and what says so.

    "limit": its time limit, by which it is gone, for it is enforced; "learned": runs of jobs like it; "said": the
    user's own guess; "assumed": as long again as it has run.
    """

    ends_at: float
    kind: EndKind

    @property
    def enforced(self) -> bool:
        """Whether it is gone by then, whatever it does: such an end makes promises, another only estimates."""
        return self.kind == "limit"


def latest_end(started_at: float, limit_s: float | None, grace_s: float) -> Estimate | None:
    """When a gang is gone at the latest: its time limit and the grace before SIGKILL; None without a limit."""
    return None if limit_s is None else Estimate(started_at + limit_s + grace_s, "limit")


def estimated_end(
    started_at: float,
    now: float,
    limit_s: float | None,
    grace_s: float,
    learned_s: float | None,
    said_s: float | None = None,
) -> Estimate:
    """When a gang probably ends: what is learned, else what its user said, else as long again; its limit if sooner.

    learned_s is `Runtimes.quantile` on condition of what it has run, said_s the user's guess of the whole run. Later
    than now, unless the limit has passed.
    """
    ran_s = max(0.0, now - started_at)
    if learned_s is not None and learned_s > ran_s:
        probably = Estimate(started_at + learned_s, "learned")
    elif said_s is not None and said_s > ran_s:
        probably = Estimate(started_at + said_s, "said")
    else:
        probably = Estimate(now + max(ran_s, LEAST_LEFT_S), "assumed")
    latest = latest_end(started_at, limit_s, grace_s)
    return probably if latest is None or probably.ends_at < latest.ends_at else latest
