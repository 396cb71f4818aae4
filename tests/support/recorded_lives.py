"""Random lives of which each decision is a turn in a journal, for whoever reads the journal beside them."""

from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.control.snapshots import Snapshots
from gantree.core.scheduler import Decision
from gantree.journal.contract import Journal
from gantree.model.events import Event
from support.random_lives import POLICIES, Lives


class Recorded(Lives):
    """Random lives of which each decision is a turn in a journal."""

    def __init__(self, journal: Journal, policy: str, seed: int) -> None:
        """policy is a name of `POLICIES`. The journal is led by these lives from now on."""
        epoch = journal.lead("test", 60.0)
        assert epoch is not None
        self.journal, self.epoch = journal, epoch
        super().__init__(seed, POLICIES[policy])

    def decided(self, events: list[Event], decision: Decision) -> None:
        """Record it."""
        self.journal.append_inbox(events, self.epoch)
        cursor = self.journal.cursor() + len(events)
        self.journal.commit_turn(cursor, decision.facts, decision.orders, self.epoch)

    def read_view(self) -> ReadView:
        """What the controller of these lives would answer from."""
        ledger = self.scheduler.ledger
        taking = Snapshots(self.journal, self.epoch)
        return ReadView(ledger, self.journal, ReadPoint(ledger.applied, self.now), taking.fold)
