"""What facts add to the history: the jobs that they end."""

from gantree.accounting.change import NO_CHANGE, HistoryChange
from gantree.accounting.ended_jobs import EndedJob
from gantree.control.history.ended_jobs import ended_job
from gantree.core.ledger.ledger import Ledger
from gantree.model.facts import Fact, JobEnded


class HistoryRecorder:
    """Follows the facts of one ledger. After a turn that failed another one begins anew."""

    def __init__(self) -> None:
        self._ended: list[tuple[int, EndedJob]] = []

    def note(self, index: int, fact: Fact, ledger: Ledger) -> None:
        """Note a fact, with its index among those of the change; the ledger has applied it, and perhaps later ones."""
        if type(fact) is JobEnded:
            self._ended.append((index, ended_job(ledger.jobs[fact.job])))

    def taken(self) -> HistoryChange:
        """What was noted since the last change."""
        if not self._ended:
            return NO_CHANGE
        ended, self._ended = tuple(self._ended), []
        return HistoryChange(ended)
