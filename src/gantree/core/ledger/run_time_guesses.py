"""Estimated run time of a job: its time limit, else what its user expects, else the run times of similar jobs."""

from math import ceil, inf, log2

from gantree.core.ledger.state import JobState
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.policy.runtimes import Runtimes

STEPS_OF_A_DOUBLING = 2
"""Guesses are rounded up to so many steps a doubling, so that jobs with similar guesses share an equivalence class."""


class RunTimeGuesses:
    """Guesses under one policy. runtimes are the run times that were learned."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.runtimes = Runtimes()

    def span_of(self, state: JobState) -> tuple[float, bool]:
        """How long a job would hold a place, and whether that is enforced: its limit with the grace, else a guess.

        What it has done already counts for nothing: an attempt may begin anew.
        """
        spec = state.spec
        if spec.service is not None:
            return inf, False
        if spec.time_limit_s is not None and not self.may_suspend(spec):
            return spec.time_limit_s + self._policy.grace_s, True
        guess_s = self.guess_s(state)
        return (inf if guess_s is None else _rounded_up(guess_s)), False

    def may_suspend(self, spec: Job) -> bool:
        """Whether a job may be suspended for others: then its limit does not say how long it holds its place."""
        rules = self._policy.time_sharing
        return rules is not None and rules.may_suspend(spec)

    def guess_s(self, state: JobState, ran_s: float = 0.0) -> float | None:
        """How long the whole run is, by its user, else by what ran before; None where nothing is known.

        Of a replica of a service nothing is: it runs until its service ends it.
        """
        spec, quantile = state.spec, self._policy.backfill.quantile
        if spec.service is not None:
            return None
        if spec.expected_s is not None and spec.expected_s >= ran_s:
            return spec.expected_s
        return self.runtimes.quantile(spec.queue, spec.user, spec.name, quantile, ran_s)

    def learn(self, state: JobState) -> None:
        """Learn from a job that has ended well."""
        if state.phase is Phase.SUCCEEDED and state.done_s > 0.0:
            self.runtimes.learn(state.spec.queue, state.spec.user, state.spec.name, state.done_s)


def _rounded_up(span_s: float) -> float:
    if span_s <= 1.0:
        return 1.0
    return float(2.0 ** (ceil(log2(span_s) * STEPS_OF_A_DOUBLING) / STEPS_OF_A_DOUBLING))
