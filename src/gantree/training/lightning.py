"""PyTorch Lightning: progress and own times of the steps, and a checkpoint when gantree asks for one.

    from gantree.training import lightning as gantree_lightning

    trainer = Trainer(callbacks=[gantree_lightning.callback()])
    trainer.fit(model, data, ckpt_path=gantree_lightning.newest())

Own times (`ddp`) are measured where the strategy is DDP without a communication hook of its own.

Lightning is imported when `callback` is called; either of its packages will do.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gantree import training
from gantree.training import ddp, folders


class Saving:
    """The methods of the callback. Every rank runs them at the same place."""

    def __init__(self, lead: int = 1) -> None:
        self._lead = lead
        self._asked = -1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Remember the step from which training resumes: it is complete. From here on own times are measured."""
        self._asked = int(trainer.global_step)
        ddp.watch_wrapped(trainer.model)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Act once per optimizer step; batches that only accumulate gradients are skipped."""
        step = int(trainer.global_step)
        if step == self._asked:
            return
        self._asked = step
        training.progress(step, loss=_loss(outputs))
        if training.should_checkpoint(step, self._lead):
            _save(trainer, step)


def callback(lead: int = 1) -> Any:
    """A Lightning callback; lead as for `should_checkpoint`. Raises ImportError where Lightning is not installed."""
    base = _package().Callback
    return type("GantreeCallback", (Saving, base), {})(lead)


def newest() -> str | None:
    """Return the newest complete checkpoint, for `ckpt_path`; None if there is none."""
    found = folders.newest(training.checkpoint_path())
    return None if found is None else str(found)


def _save(trainer: Any, step: int) -> None:
    folder = training.checkpoint_path()
    if folder is None:
        return
    trainer.save_checkpoint(folders.place_of(folder, step))
    trainer.strategy.barrier("gantree-checkpoint")
    if trainer.is_global_zero:
        folders.complete(folder, step)
    training.saved(step)


def _loss(outputs: Any) -> Any:
    """Return the loss in the output of a training step: a tensor, or a mapping with one."""
    return outputs.get("loss") if isinstance(outputs, Mapping) else outputs


def _package() -> Any:
    try:
        return import_module("lightning.pytorch")
    except ImportError:
        return import_module("pytorch_lightning")
