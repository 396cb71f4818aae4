"""The input of queries: a ledger that does not change, its journal, and the time.

A question is a function that takes a `ReadView` first and gives plain values. Where it runs, on the controller's thread
or in the reader's process, it cannot tell, and it changes nothing that others see. No question is in this module, but
for what every one needs: which job is meant.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gantree.control.requests.job_ids import job_of
from gantree.control.requests.submissions import submitted_event_id
from gantree.core.cycle.moves import Defragmentation, defragmentation_plan
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.scheduler import Scheduler
from gantree.journal.contract import Journal
from gantree.model.errors import Conflict, NotFound, Unreachable
from gantree.model.events import JobSubmitted
from gantree.model.phases import ENDED, Phase
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.policy.rules import Policy


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """When something was asked: after the fact seq, at now seconds by the clock of whoever leads."""

    seq: int
    now: float


@dataclass(frozen=True, slots=True)
class ReadView:
    """One moment of a journal. fold makes a scheduler of the facts up to here under another policy."""

    ledger: Ledger
    journal: Journal
    at: ReadPoint
    fold: Callable[[Policy], Scheduler]

    @property
    def now(self) -> float:
        """The moment in seconds."""
        return self.at.now

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.ledger.policy

    def resolve(self, word: str) -> str:
        """The id of the job that a user means by an id or a name.

        Raises NotFound, Conflict for one that was set aside, and Unreachable for one that no turn has come to yet.
        """
        job = job_of(self.ledger, word)
        if job is not None:
            return job
        for poisoned in self.journal.all_set_aside():
            if isinstance(poisoned.event, JobSubmitted) and poisoned.event.job == word:
                raise Conflict(f"{word} was set aside, it broke the scheduler: {poisoned.error}")
        if self.is_history(word):
            raise NotFound(
                f"{word} ended long ago and is history: its facts are in `gantree journal export`"
            )
        if self.journal.seen([submitted_event_id(word)]):
            raise Unreachable(f"{word} was taken, and is not decided about yet: ask again")
        if word in self.ledger.services:
            raise NotFound(
                f"there is no job {word}: it is a service, whose replicas are jobs; see `gantree services {word}`"
            )
        raise NotFound(f"there is no job {word}")

    def is_history(self, job: str) -> bool:
        """Whether this was the id of a job that has ended and was forgotten."""
        ledger = self.ledger
        is_any_history = ledger.forgotten or ledger.forgotten_rejected
        if not is_any_history or job in ledger.rejected or ledger.spec_of(job) is not None:
            return False
        place = self.journal.place_of(submitted_event_id(job))
        return place is not None and place <= self.journal.cursor()

    def not_ended(self, word: str) -> JobState:
        """The job that a word means. Raises NotFound, and Conflict where it was rejected, has ended or is an array."""
        job = self.resolve(word)
        state = self.ledger.find(job)
        if state is None and job in self.ledger.arrays:
            raise Conflict(
                f"{job} is an array: name one of its jobs, such as {self.ledger.arrays[job].job(0)}"
            )
        if state is None:
            raise Conflict(f"{job} was rejected")
        if state.phase in ENDED:
            raise Conflict(f"{job} has ended: {state.phase}")
        return state

    def array(self, word: str) -> ArrayState | None:
        """The array that a word means; None where it means a job. Raises NotFound, and Conflict where it has ended."""
        array = self.ledger.arrays.get(self.resolve(word))
        if array is not None and array.is_over:
            raise Conflict(f"{array.array} has ended")
        return array

    def waiting(self, word: str) -> JobState:
        """The waiting job that a word means. Raises NotFound, and Conflict for one that does not wait."""
        state = self.not_ended(word)
        if state.phase is not Phase.PENDING:
            raise Conflict(f"{state.job} is {state.phase}: moves are made for jobs that wait")
        return state

    def moves_for(self, word: str) -> tuple[Defragmentation | None, str]:
        """The moves that would let a waiting job start now; where there are none, None and a sentence that says why.

        Raises NotFound, and Conflict for a job that does not wait.
        """
        state = self.waiting(word)
        if self.policy.defragment == "off":
            return None, "The policy says `defragment: off`."
        plan = defragmentation_plan(
            self.ledger, state.job, self.now, placement_preferences_of(self.policy)
        )
        reason = f"No moves let {state.job} start now and cost less than they gain."
        return plan, "" if plan else reason
