"""Follows the clocks of the GPUs that gangs hold, from what DCGM exporters tell, and knows whom they name.

The judgement is `telemetry.slow_clocks`; here are the windows of each gang, in memory alone, and who is whose peer.
Names are observations: they are in no journal, and no decision depends on them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.launch import start_order
from gantree.model.events import Event
from gantree.model.orders import MemberLaunch, StartGang
from gantree.model.placements import Placement
from gantree.telemetry.dcgm.health import SignsOfGpu
from gantree.telemetry.slow_clocks import (
    AT_LEAST,
    PEERS,
    WINDOW,
    FloatArray,
    clock_marks,
    loaded_clock,
    slowed_by,
)
from gantree.telemetry.stragglers import CLOCK, stage_of
from gantree.topology.fabric.fabric import Fabric

SCRAPE_S = 15.0
Json = dict[str, Any]
Gang = tuple[str, int]
"""A job and its attempt."""
Readings = Mapping[str, SignsOfGpu]


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """A GPU of a gang: of which rank, or of the first rank of a member whose processes have several."""

    rank: int
    role: str
    node: str
    gpu: int
    stage: int


@dataclass(slots=True)
class _Window:
    """The GPUs of a placement and their newest clocks[scrape, gpu]; since when each is named, in seconds."""

    placement: Placement
    gpus: tuple[HeldGpu, ...]
    clocks: FloatArray
    named_since: dict[HeldGpu, float] = field(default_factory=dict)


class ClockWatch:
    """The windows of all gangs, as they were when the last scrape was judged."""

    def __init__(self, *, is_exact: bool = True) -> None:
        """is_exact: a gang holds the GPUs of its placement; with device plugins their indices are only counts."""
        self.is_exact = is_exact
        self._windows: dict[Gang, _Window] = {}
        self._rows: dict[Gang, list[Json]] = {}

    def rows(self, job: str, attempt: int) -> list[Json]:
        """The GPUs of an attempt that are named now, as rows of stragglers; from any thread."""
        return self._rows.get((job, attempt), [])

    def judge(self, told: Readings, fabric: Fabric, now: float) -> None:
        """Take a scrape at now, in seconds, on any thread. What did not answer is not under load."""
        rows = {}
        for gang, window in self._windows.items():
            window.clocks = np.vstack((window.clocks[1:], _clocks(window, told)))
            rows[gang] = list(_rows(window, told, now))
        self._rows = {gang: found for gang, found in rows.items() if found}

    def events(self, judged: None, ledger: Ledger, now: float, epoch: int) -> tuple[Event, ...]:
        """No event follows; from the next scrape on each gang that has more than PEERS GPUs now is judged."""
        windows = {}
        for state in ledger.holding.values():
            if state.placement is not None and state.present.gpus > PEERS:
                gang = (state.job, state.attempt)
                known = self._windows.get(gang)
                is_same = known is not None and known.placement is state.placement
                windows[gang] = known if known and is_same else self._window(state, ledger)
        self._windows = windows
        return ()

    def _window(self, state: JobState, ledger: Ledger) -> _Window:
        order, placement = start_order(state), state.placement
        assert placement is not None, "it holds GPUs"
        gpus = tuple(each for each in held_gpus(order) if self._is_known(each, order, ledger))
        return _Window(placement, gpus, np.full((WINDOW, len(gpus)), np.nan))

    def _is_known(self, held: HeldGpu, order: StartGang, ledger: Ledger) -> bool:
        """Whether it is the gang's GPU that has this index: with device plugins only if it has all of the node."""
        if self.is_exact:
            return True
        fabric = ledger.fabric
        index = None if fabric is None else fabric.index_of_node.get(held.node)
        if fabric is None or index is None:
            return False
        of_gang = sum(len(each.gpus) for each in order.members if each.node == held.node)
        return of_gang == int(fabric.gpus_of_node[index])


def held_gpus(order: StartGang) -> list[HeldGpu]:
    """The whole GPUs of a gang in rank order; those of shares and MIG instances are left out: others use them, too."""
    members = [each for each in order.members if not each.mig and not each.share]
    world = sum(len(each.gpus) for each in members)
    found: list[HeldGpu] = []
    for member in members:
        for place, gpu in enumerate(member.gpus):
            stage = stage_of(len(found), world, order.parallelism)
            rank = _rank(member, place)
            found.append(HeldGpu(rank, member.role, member.node, gpu, stage))
    return found


def _rank(member: MemberLaunch, place: int) -> int:
    ranks = member.rank_of_process
    return ranks[place] if len(ranks) == len(member.gpus) else ranks[0]


def _clocks(window: _Window, told: Readings) -> FloatArray:
    return np.array(
        [loaded_clock(told.get(each.node, {}).get(each.gpu, {})) for each in window.gpus]
    )


def _rows(window: _Window, told: Readings, now: float) -> Iterator[Json]:
    """Who is named after this scrape."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for position, each in enumerate(window.gpus):
        groups[each.role, each.stage].append(position)
    before, window.named_since = window.named_since, {}
    for group in groups.values():
        marks = clock_marks(window.clocks[:, group])
        for number, position in enumerate(group):
            held = window.gpus[position]
            if marks.stays[number] and (held in before or marks.starts[number]):
                since = window.named_since[held] = before.get(held, now)
                cause = slowed_by(told.get(held.node, {}).get(held.gpu, {}))
                ratio = float(marks.ratio[number])
                yield _row(held, ratio, marks.compared - 1, now, now - since, cause)


def _row(held: HeldGpu, ratio: float, peers: int, now: float, lasts_s: float, cause: str) -> Json:
    minutes = int((AT_LEAST * SCRAPE_S + lasts_s) / 60)
    where = f"rank {held.rank} on {held.node} GPU {held.gpu}"
    slowed = f", which is slowed by {cause}" if cause else ""
    return {
        "rank": held.rank,
        "role": held.role,
        "node": held.node,
        "gpus": [held.gpu],
        "sign": CLOCK,
        "ratio": round(ratio, 3),
        "steps": 0,
        "peers": peers,
        "suspect": f"GPU {held.gpu}",
        "at": now,
        "sentence": f"{where} has {ratio:.2f}x the SM clock of its {peers} peers under load, for at least {minutes}"
        f" minutes: suspected GPU {held.gpu}{slowed}",
    }
