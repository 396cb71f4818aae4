"""The answer to why a job is where it is."""

from dataclasses import dataclass

from gantree.core.reservations.start_estimates import Start
from gantree.model.phases import Phase
from gantree.model.verdicts import Refused


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of one job in words and numbers. ahead names the first jobs before it in the queue.

    in_the_way are the jobs that would have to end for it to start, each with the reason why it may not be preempted.
    """

    job: str
    phase: Phase
    sentence: str
    refused: Refused | None = None
    ahead: tuple[str, ...] = ()
    ahead_count: int = 0
    start: Start | None = None
    in_the_way: tuple[tuple[str, str], ...] = ()
