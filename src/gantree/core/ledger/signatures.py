"""Signatures: one number for all jobs with equal requests, so that one answer holds for all of them."""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field

from gantree.model.jobs import Job
from gantree.placement.choice.search import signature
from gantree.planning.rightsizing.ranking import chooses


@dataclass(slots=True)
class Signatures:
    """The numbers of what known jobs ask for. given: how many were ever given; none is given twice."""

    number_of: dict[Hashable, int] = field(default_factory=dict)
    given: int = 0

    def of(self, spec: Job) -> int:
        """The number that a job shares with those that get the same answer, but for their queues and limits."""
        number = self.number_of.setdefault(_key(spec), self.given)
        self.given = max(self.given, number + 1)
        return number

    def restore(self, given: int, jobs: Iterable[tuple[int, Job]]) -> None:
        """Give jobs the numbers that they had; where equal jobs had several, the lowest."""
        self.given = given
        for number, spec in sorted(jobs, key=lambda each: each[0]):
            self.number_of.setdefault(_key(spec), number)

    def forget_all_but(self, used: Collection[int]) -> None:
        """Forget what no known job asks for; the next job that does gets a new number."""
        self.number_of = {key: each for key, each in self.number_of.items() if each in used}

    def copy(self) -> "Signatures":
        """An equal one, to be changed on its own."""
        return Signatures(dict(self.number_of), self.given)


def _key(spec: Job) -> Hashable:
    """What is the same of all jobs that share a signature."""
    sizes = (spec.elastic, spec.parallelism, spec.trains, spec.traffic) if spec.elastic else ()
    models = _of_choice(spec) if chooses(spec) else ()
    return signature(spec), sizes, models


def _of_choice(spec: Job) -> Hashable:
    """What the ways of a job that chooses its model depend on beside shapes: their speed, time, money and memory.

    How long it runs matters only to what it may cost, and to the saves that a spot node leaves it.
    """
    terms = (spec.speeds, spec.choose, spec.budget_USD, spec.spot, spec.alternatives)
    work = (spec.trains, spec.traffic, spec.parallelism, spec.overlap)
    is_run_counted = spec.spot or spec.budget_USD is not None
    run = (spec.expected_s, spec.time_limit_s, spec.checkpoint) if is_run_counted else ()
    return terms, work, run
