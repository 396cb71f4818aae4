"""For training scripts: coordinated checkpoints, progress reports, and the rank's place. Standard library only.

    from gantree import training

    for step in range(start, steps):
        with training.step():                      # this rank's own work, up to the collective: names slow ranks
            loss, gradients = compute(step)
        reduce_over_all_ranks(gradients)           # the collective
        training.progress(step, loss=loss)         # every step; written down at most once a second
        if training.should_checkpoint(step):       # every rank, every step
            save_my_shard(training.checkpoint_path())
            training.saved(step)                   # every rank, once its part is durable

Outside gantree the same script runs unchanged: should_checkpoint returns False, saved and progress do nothing, rank is
0, and its only neighbour is itself. `agreement` describes the protocol. Modules for frameworks import these on first
use: `torchrun`, `ddp`, `lightning`, `huggingface`, `accelerate`.
"""

import os
from pathlib import Path
from typing import SupportsFloat

from gantree.training.agreement import Agreement, agreement_of
from gantree.training.own_time import OwnStep, StepTimes, step_times_of
from gantree.training.place import Rendezvous, neighbours_in, number, rendezvous_in
from gantree.training.reporting import Reporter, reporter_of

__all__ = [
    "Rendezvous",
    "checkpoint_path",
    "local_rank",
    "neighbours",
    "progress",
    "rank",
    "rendezvous",
    "saved",
    "should_checkpoint",
    "step",
    "step_times",
    "world_size",
]

_agreements: dict[str, Agreement | None] = {}
_reporters: dict[str, Reporter | None] = {}
_step_times: dict[str, StepTimes | None] = {}


def _agreement() -> Agreement | None:
    """Return the Agreement of this process, created on first use; None outside gantree."""
    run_dir = os.environ.get("GANTREE_RUN_DIR", "")
    if run_dir not in _agreements:
        _agreements[run_dir] = agreement_of(os.environ)
    return _agreements[run_dir]


def _reporter() -> Reporter | None:
    """Return the Reporter of this process, created on first use; None outside gantree and on ranks other than 0."""
    run_dir = os.environ.get("GANTREE_RUN_DIR", "")
    if run_dir not in _reporters:
        _reporters[run_dir] = reporter_of(os.environ)
    return _reporters[run_dir]


def should_checkpoint(step: int, lead: int = 1) -> bool:
    """Return True on every rank at the same step: save now, then call `saved(step)`.

    Call it once per step on every rank, always at the same place in the step. lead: how many steps a rank can be
    ahead of rank 0: 1 if every step has a collective, k if only every k-th step has one.
    """
    agreement = _agreement()
    return agreement is not None and agreement.should_checkpoint(step, lead)


def saved(step: int) -> None:
    """Record that this rank's part of the checkpoint of a step is durable. Call it on every rank.

    Raises OSError where the run directory cannot be written.
    """
    agreement = _agreement()
    if agreement is not None:
        agreement.saved(step)


def progress(
    step: int, loss: SupportsFloat | None = None, samples_per_s: SupportsFloat | None = None
) -> None:
    """Report the progress of the job. `gantree jobs` shows it, and the measured beside the predicted step time.

    Call it at any rate, on rank 0 or on all ranks: only rank 0 reports, at most once a second. loss may be a tensor; it
    is read (which synchronises its device) only when it is written. Write errors are ignored.
    """
    reporter = _reporter()
    if reporter is not None:
        reporter.report(step, loss, samples_per_s)


def step_times() -> StepTimes | None:
    """Return where this rank's own times go, created on first use; None outside gantree and for a single rank."""
    run_dir = os.environ.get("GANTREE_RUN_DIR", "")
    if run_dir not in _step_times:
        _step_times[run_dir] = step_times_of(os.environ)
    return _step_times[run_dir]


def step(number: int | None = None) -> OwnStep:
    """Return a context for this rank's own work of a step: enter it after a collective, leave it before the next.

    Use it on every rank. The daemon compares the ranks step by step and names one that is slower than its peers.
    number is the step's, the same on all ranks and rising; None: they are counted. The host's clock measures: where a
    GPU still works when the block is left, wait for it in the block, or let `gantree.training.ddp` measure.
    """
    return OwnStep(step_times(), number)


def checkpoint_path() -> Path | None:
    """Return `checkpoint.path` of the job; None if it has none."""
    text = os.environ.get("GANTREE_CHECKPOINT_PATH")
    return Path(text) if text else None


def rank() -> int:
    """Return the global rank of this process, from 0."""
    return number(os.environ, "RANK", 0)


def world_size() -> int:
    """Return the number of processes of the gang."""
    return number(os.environ, "WORLD_SIZE", 1)


def local_rank() -> int:
    """Return the rank of this process within its member, from 0: the index of its GPU."""
    return number(os.environ, "LOCAL_RANK", 0)


def neighbours() -> dict[str, tuple[int, ...]]:
    """Return, by tier, the ranks in the same domain as this one, which is included: {"leaf": (0, 1, 2, 3), ...}.

    Tiers are those of the cluster, and "nvlink". Outside gantree only "node", from the launcher's environment.
    """
    return neighbours_in(os.environ)


def rendezvous() -> Rendezvous:
    """Return the rendezvous of this attempt: a unique id, the number of restarts, and the previous world size."""
    return rendezvous_in(os.environ)
