"""Rows of these tables, one policy on one workload, and the judgement of ours against theirs."""

from collections.abc import Sequence
from dataclasses import dataclass

from gantree.sim.experiments.experiment import Judgement, Verdict


@dataclass(frozen=True, slots=True)
class Row:
    """One policy. Times are in seconds; published is whether the figures come from the published run itself."""

    policy: str
    ours: bool
    mean_jct_s: float
    p99_jct_s: float
    makespan_s: float
    preemptions: int | None


EQUAL = 1.001
"""Below a tenth of a percent figures count as equal: the order of what happens at one moment moves them as much."""


def against(claim: str, ours: Row, theirs: Row, why: str = "") -> Verdict:
    """Return whether ours has no larger mean and no larger 99th percentile of completion times than theirs.

    Both to 0.1 %. HOLDS for both, PARTLY for one, MISSED for none. why is told where it does not hold.
    """
    pairs = ((ours.mean_jct_s, theirs.mean_jct_s), (ours.p99_jct_s, theirs.p99_jct_s))
    no_worse = [mine <= other * EQUAL for mine, other in pairs]
    judgement = (
        Judgement.HOLDS
        if all(no_worse)
        else Judgement.PARTLY
        if any(no_worse)
        else Judgement.MISSED
    )
    mean, p99 = (_percent(100 * (mine / other - 1)) for mine, other in pairs)
    measured = f"mean {mean}, p99 {p99}"
    return Verdict(claim, measured, judgement, "" if judgement is Judgement.HOLDS else why)


def _percent(change: float) -> str:
    return f"{change:+.0f} %" if abs(change) >= 10 else f"{change:+.2g} %"


def named(rows: Sequence[Row], policy: str) -> Row:
    """Return the row of a policy, which there is."""
    return next(row for row in rows if row.policy == policy)
