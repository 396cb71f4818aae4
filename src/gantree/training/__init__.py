"""What a training script imports to save checkpoints together, and nothing else. Standard library only.

    from gantree import training

    for step in range(start, steps):
        train(step)                                # with a collective over all ranks in it, as training has
        if training.should_checkpoint(step):       # every rank, every step
            save_my_shard(training.checkpoint_path())
            training.saved(step)                   # every rank, once its part is durable

Without gantree around it the same script runs on: should_checkpoint is False, saved does nothing, rank is 0.
How the ranks agree without waiting for each other is told in `agreement`.
"""

import os
from pathlib import Path

from gantree.training.agreement import Agreement, agreement_of

__all__ = [
    "checkpoint_path",
    "local_rank",
    "rank",
    "saved",
    "should_checkpoint",
    "world_size",
]

_agreements: dict[str, Agreement | None] = {}


def _agreement() -> Agreement | None:
    """This process's part in the protocol; None outside gantree. Made at the first use, then kept."""
    run_dir = os.environ.get("GANTREE_RUN_DIR", "")
    if run_dir not in _agreements:
        _agreements[run_dir] = agreement_of(os.environ)
    return _agreements[run_dir]


def should_checkpoint(step: int, lead: int = 1) -> bool:
    """True on every rank for the same step: save now, then call `saved(step)`.

    Call it once in every step on every rank, always at the same place. lead: how many steps a rank can be
    ahead of rank 0; 1 where every step has a collective, k where there is one only every k steps.
    """
    agreement = _agreement()
    return agreement is not None and agreement.should_checkpoint(step, lead)


def saved(step: int) -> None:
    """This rank's part of the checkpoint of this step is durable. Every rank says so, whoever wrote the file.

    Raises OSError where the run directory cannot be written.
    """
    agreement = _agreement()
    if agreement is not None:
        agreement.saved(step)


def checkpoint_path() -> Path | None:
    """Where the job declared that its checkpoints live; None if it did not."""
    text = os.environ.get("GANTREE_CHECKPOINT_PATH")
    return Path(text) if text else None


def rank() -> int:
    """This process's number over the whole gang."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Processes in the whole gang."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """This process's number in its member: which of the member's GPUs is its own."""
    return int(os.environ.get("LOCAL_RANK", "0"))
