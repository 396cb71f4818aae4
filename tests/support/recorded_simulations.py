"""Simulations of which each decision is a turn in a journal: a past whose every cause is known."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gantree.accounting.change import HistoryChange
from gantree.accounting.usage import CountedTo
from gantree.control.history.recorder import HistoryRecorder
from gantree.core.scheduler import Decision, Scheduler, settled
from gantree.formats.traces import TraceJob
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import Cluster
from gantree.model.events import Event, PolicySubmitted
from gantree.model.jobs import Job
from gantree.policy.rules import Policy
from gantree.sim.cluster import Overheads
from gantree.sim.run import Simulation


class RecordedSimulation(Simulation):
    """A simulation that commits what it decides. Its jobs have the ids that a simulation gives them (`t` first)."""

    def __init__(
        self,
        state_dir: Path,
        cluster: Cluster,
        jobs: Sequence[tuple[TraceJob, Job]],
        policy: Policy,
        overheads: Overheads,
        requests: Iterable[Event] = (),
        policy_text: str = "",
        journal: SqlJournal | None = None,
    ) -> None:
        """policy_text is what policy was read from: adopted first of all, where given.

        journal is where it is recorded; None: one in state_dir.
        """
        self.journal: SqlJournal = SqliteJournal(state_dir) if journal is None else journal
        epoch = self.journal.lead("test", 60.0)
        assert epoch is not None
        self._epoch = epoch
        self._policy_text = policy_text
        self._recorder: HistoryRecorder | None = None
        specs = {row.job_id: spec for row, spec in jobs}
        rows = [row for row, _ in jobs]
        super().__init__(cluster, rows, policy, overheads, lambda row: specs[row.job_id])
        for event in requests:
            self.foretell(event)

    def _handle(self, events: Sequence[Event]) -> Decision:
        """Decide as a turn does, to the end of the moment, and commit."""
        if self._policy_text:
            text, self._policy_text = self._policy_text, ""
            self._handle(
                [
                    PolicySubmitted(
                        id="policy", observed_at=self.now, text=text, source="policy.yaml"
                    )
                ]
            )
        decision = settled(self.scheduler, events, events[-1].observed_at)
        self.journal.append_inbox(events, self._epoch)
        cursor = self.journal.cursor() + len(events)
        change = self._history_of(decision)
        self.journal.commit_turn(cursor, decision.facts, decision.orders, self._epoch, change)
        self._wake_at = decision.wake_at
        for order in decision.orders:
            self.cluster.carry_out(order)
        self.record.note(decision.facts, self.scheduler.ledger, self.now)
        return decision

    def _history_of(self, decision: Decision) -> HistoryChange:
        """What a turn would add to the history."""
        if self._recorder is None:
            empty = Scheduler(self.scheduler.policy).ledger
            self._recorder = HistoryRecorder(empty, self.now, CountedTo())
        for index, fact in enumerate(decision.facts):
            self._recorder.note(index, fact, self.scheduler.ledger)
        self._recorder.settle(self.scheduler.ledger)
        return self._recorder.taken()

    def run_on(self, until: float = float("inf")) -> None:
        """Step until nothing happens any more, or a moment."""
        while self.now < until and self.step():
            pass
