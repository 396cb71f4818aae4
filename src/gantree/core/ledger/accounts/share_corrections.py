"""Corrections of fair shares: GPU time that was held, and counts otherwise as the policy weighs it (`UseWeights`).

Idle time is known once counters have reported it, lost work when an attempt has ended. What was lost to a failure of
the job itself counts as held.
"""

from gantree.core.ledger.accounts.accounts import Accounts
from gantree.core.ledger.state import JobState
from gantree.model.phases import StopCause

LOST_TO_OTHERS = frozenset(
    {StopCause.PREEMPTED, StopCause.MOVED, StopCause.DRAINED, StopCause.MEMBER_LOST}
)
"""Causes of a stop that is not of the job's own making."""


def correct_for_idle(
    accounts: Accounts, state: JobState, idle_gpu_s: float, held_at: float, at: float
) -> None:
    """Count idle GPU-seconds of a job, held around a moment, by their weight."""
    _correct(accounts, state, idle_gpu_s * (accounts.policy.share_by.idle - 1.0), held_at, at)


def correct_for_lost(
    accounts: Accounts, state: JobState, lost_s: float, idle_gpu_s: float, at: float
) -> None:
    """Count the last lost_s seconds of an attempt that others ended by the weight of lost work.

    idle_gpu_s of them were counted as idle.
    """
    if state.stop_cause not in LOST_TO_OTHERS:
        return
    weights = accounts.policy.share_by
    lost_gpu_s = lost_s * sum(gpus for _, gpus in state.metered.gpus_of_model)
    idle_gpu_s = min(idle_gpu_s, lost_gpu_s)
    counted_gpu_s = lost_gpu_s + idle_gpu_s * (weights.idle - 1.0)
    _correct(
        accounts, state, weights.lost_to_others * lost_gpu_s - counted_gpu_s, at - lost_s / 2, at
    )


def _correct(accounts: Accounts, state: JobState, gpu_s: float, held_at: float, at: float) -> None:
    of_model = dict(state.metered.gpus_of_model)
    gpus = sum(of_model.values())
    if gpus and gpu_s:
        accounts.shares.correct(state.queue, of_model, gpu_s / gpus, held_at, at)
