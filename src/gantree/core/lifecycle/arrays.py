"""Job arrays: which elements are split from their array, and what a request or an end does to those that are not.

A pass considers jobs one by one, so of each array only the first elements are split, `WINDOW` at a time; the others
cost a decision nothing. All unsplit elements rank behind the split ones that wait undecided, so none is overtaken:
where the last of these is decided within a pass, the pass stops there, and goes on when more are split.
"""

from itertools import islice

from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.model.arrays import element_of, index_at
from gantree.model.facts import ArrayEnded, JobAccepted
from gantree.model.phases import Phase
from gantree.policy.boosts import boost_of
from gantree.policy.rules import Policy

WINDOW = 64
"""Elements of one array that wait undecided and split, at most; more where the policy has a larger depth."""


def window_of(policy: Policy) -> int:
    """How many elements are split at a time. All heads of a queue may be of one array, and half a window stays."""
    return max(WINDOW, 2 * policy.backfill.depth)


def split_elements(builder: DecisionBuilder) -> None:
    """Fill up the windows that are half empty."""
    window = window_of(builder.ledger.policy)
    for array in list(builder.ledger.unsplit.values()):
        missing = window - len(array.undecided)
        if array.may_split and 2 * missing > window:
            for offset in list(islice(array.unsplit_offsets(), missing)):
                split_element(builder, array, offset)


def split_element(builder: DecisionBuilder, array: ArrayState, offset: int) -> str:
    """Split one element from an array; return its id."""
    policy, spec = builder.ledger.policy, element_of(array.spec, index_at(array.spec.array, offset))
    job = array.job(offset)
    builder.record(
        JobAccepted(
            at=builder.now,
            job=job,
            spec=spec,
            priority=policy.priority_of(spec.priority) + boost_of(policy, spec, builder.now),
            seq=array.seq + offset,
            array=array.array,
        )
    )
    return job


def end_unsplit(builder: DecisionBuilder, array: ArrayState, outcome: Phase, reason: str) -> None:
    """End all elements that are not split, if there are any."""
    if array.unsplit:
        builder.record(
            ArrayEnded(at=builder.now, array=array.array, outcome=outcome, reason=reason)
        )
