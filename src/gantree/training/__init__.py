"""What a training script imports: checkpoints together, progress, and where it stands. Standard library only.

    from gantree import training

    for step in range(start, steps):
        loss = train(step)                         # with a collective over all ranks in it, as training has
        training.progress(step, loss=loss)         # every step; written down at most once a second
        if training.should_checkpoint(step):       # every rank, every step
            save_my_shard(training.checkpoint_path())
            training.saved(step)                   # every rank, once its part is durable

Without gantree around it the same script runs on: should_checkpoint is False, saved and progress do nothing, rank is
0, its neighbours are itself. How the ranks agree without waiting for each other is told in `agreement`. Frameworks
have modules of their own, which import them when they are used: `torchrun`, `lightning`, `huggingface`, `accelerate`.
"""

import os
from pathlib import Path
from typing import SupportsFloat

from gantree.training.agreement import Agreement, agreement_of
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
    "world_size",
]

_agreements: dict[str, Agreement | None] = {}
_reporters: dict[str, Reporter | None] = {}


def _agreement() -> Agreement | None:
    """This process's part in the protocol; None outside gantree. Made at the first use, then kept."""
    run_dir = os.environ.get("GANTREE_RUN_DIR", "")
    if run_dir not in _agreements:
        _agreements[run_dir] = agreement_of(os.environ)
    return _agreements[run_dir]


def _reporter() -> Reporter | None:
    """Where progress goes; None outside gantree and on ranks other than 0. Made at the first use, then kept."""
    run_dir = os.environ.get("GANTREE_RUN_DIR", "")
    if run_dir not in _reporters:
        _reporters[run_dir] = reporter_of(os.environ)
    return _reporters[run_dir]


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


def progress(
    step: int, loss: SupportsFloat | None = None, samples_per_s: SupportsFloat | None = None
) -> None:
    """Say how far the job is; `gantree jobs` shows it, with the time a step takes beside the predicted one.

    Call it as often as you like, on rank 0 or on all ranks: rank 0's word counts, and is written at most once a
    second. loss may be a tensor: it is read (and its device waited for) only then. A full disk loses the word, no more.
    """
    reporter = _reporter()
    if reporter is not None:
        reporter.report(step, loss, samples_per_s)


def checkpoint_path() -> Path | None:
    """Where the job declared that its checkpoints live; None if it did not."""
    text = os.environ.get("GANTREE_CHECKPOINT_PATH")
    return Path(text) if text else None


def rank() -> int:
    """This process's number over the whole gang."""
    return number(os.environ, "RANK", 0)


def world_size() -> int:
    """Processes in the whole gang."""
    return number(os.environ, "WORLD_SIZE", 1)


def local_rank() -> int:
    """This process's number in its member: which of the member's GPUs is its own."""
    return number(os.environ, "LOCAL_RANK", 0)


def neighbours() -> dict[str, tuple[int, ...]]:
    """Ranks that share this one's domain, itself among them, by tier: {"leaf": (0, 1, 2, 3), "node": (0, 1), ...}.

    The tiers are the cluster's, and "nvlink". Outside gantree "node" alone, as far as the launcher tells.
    """
    return neighbours_in(os.environ)


def rendezvous() -> Rendezvous:
    """This start of the gang: an id that no other start has, how many came before, and how large the last one was."""
    return rendezvous_in(os.environ)
