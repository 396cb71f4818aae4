"""For whom nobody makes room, as far as they were told: for which lines and jobs that stands, and until when.

Mostly a no stands for all of a line that come after the one who got it, until more room might be made for anybody. One
that is not firm is another matter: where others would have the room instead (`core.preemption.lasting`), any fact may
change that, and so may time. It is true of one job, at the moment at which it was said; but for whoever begins to run
where it was placed already, nothing has changed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gantree.core.ledger.decision_builder import Draft
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.free_capacity import NoRoom
from gantree.core.queue.eligibility import eligible
from gantree.model.facts import GangRunning
from gantree.model.phases import Phase
from gantree.policy.order import Line, Position, Standing

Moment = tuple[float, int]
"""A time in seconds, and how many facts there were by then, but for gangs that began to run where they were placed."""


class Answer(NamedTuple):
    """Nobody makes room for those of a line from a position on, or for one job.

    retry_at is a time in seconds at which that may change, None where there is none; moment is when it was said.
    """

    position: Position
    retry_at: float | None
    is_firm: bool
    moment: Moment

    def stands(self, moment: Moment) -> bool:
        """Whether it is still true, as long as no more room might be made for anybody."""
        if not self.is_firm:
            return self.moment == moment
        return self.retry_at is None or self.retry_at > moment[0]


class NoRoomYet:
    """What was said, by line, or by job where it is true of that job alone."""

    def __init__(self) -> None:
        self._said: dict[Line | str, Answer] = {}
        self._followed = self._begun = 0

    def follow(self, draft: Draft) -> None:
        """Count the gangs that began to run since the last walk: at that moment they are what they were.

        Where it matters at once that one runs, the ledger says so (`holders_version`).
        """
        new = draft.ledger.applied - self._followed
        self._begun += sum(isinstance(fact, GangRunning) for fact in draft.facts[-new:] if new)
        self._followed = draft.ledger.applied

    def moment(self, ledger: Ledger, now: float) -> Moment:
        """The present moment."""
        return now, ledger.applied - self._begun

    def forget(self) -> None:
        """More room might be made for somebody."""
        self._said.clear()

    def say(
        self, ledger: Ledger, standing: Standing, refusals: Sequence[NoRoom], now: float
    ) -> None:
        """Nobody makes room for a job in any of its ways, nor for those behind it in its line."""
        moments = (each.later for each in refusals if each.later is not None)
        firm = all(each.firm for each in refusals)
        self._said.pop(standing.position.job, None)  # whatever it was told before
        self._said[_asked_as(ledger, standing, firm=firm)] = Answer(
            standing.position, min(moments, default=None), firm, self.moment(ledger, now)
        )

    def stands(self, ledger: Ledger, standing: Standing, now: float) -> bool:
        """Whether a job, or one before it in its line, was told so, and that is still true."""
        moment = self.moment(ledger, now)
        return any(answer.stands(moment) for answer in self._to(ledger, standing))

    def has_said(self, ledger: Ledger, standing: Standing) -> bool:
        """Whether it was told so, be it still true or not: then it is to be asked, and told when to ask again."""
        return any(self._to(ledger, standing))

    def moments_of(self, ledger: Ledger, standing: Standing) -> Iterable[float]:
        """When a job is to be asked again."""
        for answer in self._to(ledger, standing):
            if answer.retry_at is not None:
                yield answer.retry_at

    def moments(self, ledger: Ledger) -> Iterable[tuple[Line | str, float]]:
        """Who of those who still wait, and then for nothing else, is to be asked again, and when."""
        for asked, answer in self._said.items():
            at, waiting = answer.retry_at, _still_wait(ledger, asked, answer)
            if at is not None and any(eligible(ledger, state, at) for state in waiting):
                yield asked, at

    @property
    def is_firm(self) -> bool:
        """Whether all that was said stands until more room might be made."""
        return all(answer.is_firm for answer in self._said.values())

    def settled(self, ledger: Ledger, now: float) -> Moment | None:
        """The present moment, if all that was said is true of it; None where something has happened since."""
        moment = self.moment(ledger, now)
        outdated = any(not each.is_firm and each.moment != moment for each in self._said.values())
        return None if outdated else moment

    def _to(self, ledger: Ledger, standing: Standing) -> Iterable[Answer]:
        """What a job was told, or one before it in its line."""
        for firm in (True, False):
            answer = self._said.get(_asked_as(ledger, standing, firm=firm))
            if answer is None or answer.is_firm is not firm:
                continue
            if answer.position <= standing.position:
                yield answer


def _asked_as(ledger: Ledger, standing: Standing, *, firm: bool) -> Line | str:
    """Under what an answer is kept: a job's line, but for what is true of that job alone.

    That is what is not firm, and what is said to one that was told a start, which has to be kept to.
    """
    job = standing.position.job
    return standing.line if firm and job not in ledger.bookings else job


def _still_wait(ledger: Ledger, asked: Line | str, answer: Answer) -> Iterator[JobState]:
    """Those of whom an answer is true who still wait: what is firm was said to a job as it was told a start."""
    if not isinstance(asked, str):
        if asked in ledger.lines:
            yield from (ledger.jobs[each.job] for each in ledger.lines[asked])
    elif asked in ledger.jobs and (not answer.is_firm or asked in ledger.bookings):
        state = ledger.jobs[asked]
        if state.phase is Phase.PENDING:
            yield state
