"""A week of a small fleet as its journal has it: training that saves, serving that preempts it, notebooks that idle.

The journal is that of a daemon (each decision is a turn, with what it adds to the history) whose clock said what the
simulation's said. Counters tell every five minutes what the gangs did, as `GpuUseWatch` would.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gantree.formats import read_cluster, read_policy
from gantree.formats.traces import TraceJob
from gantree.model.events import GpuUseObserved
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.phases import Phase
from gantree.sim.cluster import Overheads
from gantree.sim.workload import job_of
from support.recorded_simulations import RecordedSimulation

DAY_S, HOUR_S = 86_400.0, 3600.0
TOLD_EVERY_S = 300.0
USEFUL = {"training": 0.93, "serving": 0.55, "notebooks": 0.08}
"""The part of the time of a queue's gangs in which their GPUs compute."""
CLUSTER = """
name: two-leaves
tiers: [leaf, node]
nodes:
  - {names: "n[0-3]", machine: dgx-h100, at: {leaf: l0}}
  - {names: "n[4-7]", machine: dgx-a100, at: {leaf: l1}}
"""
POLICY = """
preset: fair
queues:
  - {name: training, weight: 3, guarantee: {gpus: 32}, budget: {month: 60000 USD, at_limit: warn}}
  - {name: serving, weight: 1, guarantee: {gpus: 16}}
  - {name: notebooks, weight: 1}
"""


def trace(begin: float, days: float) -> list[TraceJob]:
    """Training every two hours or so, serving that grows in the day, notebooks that stay open."""
    end = begin + days * DAY_S
    rows = list(_training(begin, end))
    at, number = begin, 0
    while at < end:
        hour = (at - begin) % DAY_S / HOUR_S
        gpus = 8 if 8 <= hour < 20 else 2
        chat = TraceJob(f"chat-{number}", at, 2 * HOUR_S - 60, 1, gpus, queue="serving", user="sam")
        rows.append(replace(chat, priority="serving"))
        if number % 4 == 0:
            user = ("nia", "noa")[number % 8 // 4]
            notebook = TraceJob(f"notebook-{number}", at + 600, 7 * HOUR_S, 1, 2, queue="notebooks")
            rows.append(replace(notebook, user=user, priority="research"))
        at, number = at + 2 * HOUR_S, number + 1
    return sorted(rows, key=lambda row: row.submit_s)


def _training(begin: float, end: float) -> Iterator[TraceJob]:
    at, number = begin, 0
    while at < end:
        members, hours = (4, 9.0) if number % 3 == 0 else (1 + number % 2, 3.0 + number % 5)
        yield TraceJob(
            f"llama-{number}", at, hours * HOUR_S, members, 8, queue="training",
            user=("ann", "bob", "cho")[number % 3], priority="batch", checkpoint_s=1800.0,
        )  # fmt: skip
        at, number = at + 2.5 * HOUR_S, number + 1


class RecordedWeek(RecordedSimulation):
    """The week, from a moment on."""

    def __init__(self, state_dir: Path, begin: float, days: float = 7.0) -> None:
        """begin is in seconds since 1970. Nothing has happened yet; `live` lets it."""
        rows = trace(begin, days)
        super().__init__(
            state_dir, read_cluster(CLUSTER, "cluster.yaml"), [(row, job_of(row)) for row in rows],
            read_policy(POLICY, "policy.yaml"), Overheads(start_s=45, stop_s=10, save_s=20),
            policy_text=POLICY,
        )  # fmt: skip
        self.begin, self.end = begin, begin + days * DAY_S

    def live(self) -> None:
        """All of it: until its end, whatever still runs then."""
        told_at = self.begin
        while told_at < self.end:
            upcoming = self._next_moment()
            moments = [each for each in (upcoming, self._wake_at) if each is not None]
            if moments and min(moments) <= told_at + TOLD_EVERY_S:
                self.step()
                continue
            told_at += TOLD_EVERY_S
            self.now = max(self.now, told_at)
            self._tell(told_at)

    def _tell(self, until: float) -> None:
        """What counters told of the last five minutes."""
        gangs = tuple(self._used(until))
        if gangs:
            since = until - TOLD_EVERY_S
            told = GpuUseObserved(
                id=f"gpu-use/1/{until!r}", observed_at=until, since=since, until=until, gangs=gangs
            )
            self._handle([told])

    def _used(self, until: float) -> Iterator[MeasuredUse]:
        for state in self.scheduler.ledger.holding.values():
            if state.phase is Phase.RUNNING:
                gpus = sum(gpus for _, gpus in state.metered.gpus_of_model)
                gpu_s = gpus * min(TOLD_EVERY_S, state.ran_s(until))
                useful = USEFUL[state.spec.queue] * gpu_s
                yield MeasuredUse(state.job, state.attempt, useful, gpu_s - useful)
