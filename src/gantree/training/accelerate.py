"""Hugging Face Accelerate: one call after every optimizer step reports progress and saves when gantree asks.

    from gantree.training import accelerate as gantree_accelerate

    start = gantree_accelerate.resume(accelerator)        # 0, or the step after the one that was saved
    for step in range(start, steps):
        ...
        gantree_accelerate.after_step(accelerator, step, loss=loss)

Accelerate has no callbacks, so this is a hook to call. It is handed the Accelerator and imports nothing.
"""

from typing import Any

from gantree import training
from gantree.training import folders


def after_step(
    accelerator: Any, step: int, *, loss: Any = None, samples_per_s: Any = None, lead: int = 1
) -> bool:
    """Report progress and save if the ranks agreed; returns whether a checkpoint was saved.

    Call it on every rank after every step. lead as for `should_checkpoint`.
    """
    training.progress(step, loss=loss, samples_per_s=samples_per_s)
    folder = training.checkpoint_path()
    if not training.should_checkpoint(step, lead) or folder is None:
        return False
    accelerator.save_state(str(folders.place_of(folder, step)))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        folders.complete(folder, step)
    training.saved(step)
    return True


def resume(accelerator: Any) -> int:
    """Load the newest whole checkpoint, if there is one; returns the step to go on with."""
    found = folders.newest(training.checkpoint_path())
    if found is None:
        return 0
    accelerator.load_state(str(found))
    return int(found.name.removeprefix("step-")) + 1
