"""Ranks that are slower than their peers, in the rows of jobs and in the answer to why. It reads files of the ranks.

A gang is judged anew at most every FRESH_S, and only while somebody looks; one that reports no own times costs a file
that is not there.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from gantree.executors.progress import RankSteps, StepReports
from gantree.telemetry.stragglers import SLOW, WINDOW, Straggler, stage_of, stragglers
from gantree.text.words import ranges

FRESH_S = 2.0
MOST_KEPT = 1000
"""Gangs whose answers are kept."""

Json = dict[str, Any]
ReadReports = Callable[[str, int], StepReports | None]


class KnowsSteps(Protocol):
    """A source of own times: an executor, or another reader of its files."""

    def step_reports(self, job: str, attempt: int) -> StepReports | None:
        """Return the own times that an attempt reports, or None. Raises OSError."""
        ...


class KnowsClocks(Protocol):
    """A source of GPUs that are named by their clocks."""

    def rows(self, job: str, attempt: int) -> list[Json]:
        """Return the GPUs of an attempt that are named now, as rows of stragglers."""
        ...


class StragglerJudge:
    """Who is named in a gang, from the reports of its ranks. Safe from any thread."""

    def __init__(
        self, steady: Callable[[], float] = time.monotonic, clocks: KnowsClocks | None = None
    ) -> None:
        """clocks names GPUs by their clocks; None: nobody reads those here."""
        self._steady, self._clocks = steady, clocks
        self._known: dict[tuple[str, int], tuple[float, _Judged]] = {}

    def rows(self, source: KnowsSteps, job: str, attempt: int) -> list[Json]:
        """Return the ranks of an attempt that are named now, as rows; a damaged run directory names nobody."""
        rows = self._judge(source, job, attempt).rows
        by_clock = () if self._clocks is None else self._clocks.rows(job, attempt)
        return [*rows, *by_clock] if by_clock else rows

    def own_s(self, source: KnowsSteps, job: str, attempt: int) -> dict[int, float]:
        """Return the own times of those ranks, in seconds: the median of the newest steps, by rank."""
        return self._judge(source, job, attempt).own_s_of_rank

    def _judge(self, source: KnowsSteps, job: str, attempt: int) -> "_Judged":
        now, key = self._steady(), (job, attempt)
        judged = self._known.get(key)
        if judged is None or now - judged[0] >= FRESH_S:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            judged = self._known[key] = (now, _judged(source, job, attempt))
        return judged[1]


@dataclass(frozen=True, slots=True)
class _Judged:
    """The rows of who is named, and their own times by rank."""

    rows: list[Json]
    own_s_of_rank: dict[int, float]


def _judged(source: KnowsSteps, job: str, attempt: int) -> _Judged:
    try:
        reports = source.step_reports(job, attempt)
    except OSError:
        reports = None
    if reports is None:
        return _Judged([], {})
    rows = straggler_rows(reports)
    named = {row["rank"] for row in rows}
    newest = {
        each.rank: list(each.own_s_of_step.values())[-WINDOW:]
        for each in reports.ranks
        if each.rank in named
    }
    return _Judged(rows, {rank: median(own_s) for rank, own_s in newest.items()})


def straggler_rows(reports: StepReports) -> list[Json]:
    """Return who is named by these reports, by rank."""
    ranks = reports.ranks
    own_s_of_step = [each.own_s_of_step for each in ranks]
    named = stragglers(own_s_of_step, [each.rank for each in ranks], peer_groups(reports))
    place_of_rank = {each.rank: each for each in ranks}
    hosts = _slow_hosts(ranks, named)
    return [_row(each, place_of_rank[each.rank], hosts, reports.at) for each in named]


def peer_groups(reports: StepReports) -> list[list[int]]:
    """Return positions in the reports of ranks that do the same work: those of one role and pipeline stage."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for position, each in enumerate(reports.ranks):
        stage = stage_of(each.rank, reports.world_size, reports.parallelism)
        groups[each.role, stage].append(position)
    return list(groups.values())


def _slow_hosts(ranks: Iterable[RankSteps], named: Iterable[Straggler]) -> frozenset[str]:
    """Nodes with several ranks, all of which are slow."""
    slow = {each.rank for each in named if each.sign == SLOW}
    of_node: dict[str, list[int]] = defaultdict(list)
    for each in ranks:
        of_node[each.node].append(each.rank)
    return frozenset(
        node for node, those in of_node.items() if len(those) > 1 and slow.issuperset(those)
    )


def _row(named: Straggler, place: RankSteps, hosts: frozenset[str], at: float) -> Json:
    row = {
        "rank": named.rank,
        "role": place.role,
        "node": place.node,
        "gpus": list(place.gpus),
        "sign": named.sign,
        "ratio": round(named.ratio, 3),
        "steps": named.steps,
        "peers": named.peers,
        "suspect": _suspect(place, hosts),
        "at": at,
    }
    return {**row, "sentence": _sentence(row)}


def _suspect(place: RankSteps, hosts: frozenset[str]) -> str:
    """What all of the slow ranks have in common, as far as ranks tell: it is no diagnosis."""
    if not place.gpus or place.node in hosts:
        return f"host {place.node}"
    return f"{_gpus(place.gpus)} or host {place.node}"


def _gpus(gpus: Sequence[int]) -> str:
    if not gpus:
        return ""
    return f"GPU{'s' if len(gpus) > 1 else ''} {ranges(gpus)}"


def _sentence(row: Json) -> str:
    """One sentence for people."""
    gpus = _gpus(row["gpus"])
    peers = "its peer" if row["peers"] == 1 else f"its {row['peers']} peers"
    if row["sign"] == SLOW:
        what = f"takes {row['ratio']:.2f}x the time of {peers} before each collective"
    else:
        what = f"varies {row['ratio']:.1f}x as much as {peers} before each collective"
    steps = f"for at least {row['steps']} step{'' if row['steps'] == 1 else 's'}"
    where = f"{row['node']} {gpus}".rstrip()
    return f"rank {row['rank']} on {where} {what}, {steps}: suspected {row['suspect']}"
