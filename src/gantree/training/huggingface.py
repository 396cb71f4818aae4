"""Hugging Face Trainer: progress after every step, and a checkpoint of the Trainer's own when gantree asks for one.

    from gantree.training import huggingface as gantree_huggingface

    trainer = Trainer(model, args)
    gantree_huggingface.attach(trainer)
    trainer.train(resume_from_checkpoint=gantree_huggingface.newest(args.output_dir))

The Trainer writes to its `output_dir`, as ever. Own times (`ddp`) are measured where it wraps the model in DDP without
a communication hook. It does not hand the wrapped model to callbacks, so a callback alone (`callback`) measures none.

transformers is imported when a function is called.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from gantree import training
from gantree.training import ddp


class Saving:
    """The methods of the callback. Every rank runs them at the same place."""

    def __init__(self, lead: int = 1, trainer: Any = None) -> None:
        self._lead = lead
        self._trainer = trainer
        self._asked: int | None = None
        self._loss: float | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure own times from here on; the model is wrapped."""
        if self._trainer is not None:
            ddp.watch_wrapped(self._trainer.model_wrapped)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """After each optimizer step: let the Trainer save if the ranks agreed on it."""
        training.progress(state.global_step, loss=self._loss)
        if training.should_checkpoint(state.global_step, self._lead):
            self._asked = state.global_step
            control.should_save = True
        return control

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Remember the loss, which the Trainer logs every `logging_steps`, for the next progress report."""
        self._loss = (logs or {}).get("loss", self._loss)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The Trainer wrote a checkpoint: record it if it is that of the agreed step."""
        if self._asked == state.global_step:
            training.saved(state.global_step)


def attach(trainer: Any, lead: int = 1) -> None:
    """Add the callback to a Trainer, and measure own times of its model; lead as for `should_checkpoint`."""
    trainer.add_callback(_callback(lead, trainer))


def callback(lead: int = 1) -> Any:
    """A TrainerCallback; lead as for `should_checkpoint`. Raises ImportError where transformers is not installed."""
    return _callback(lead, None)


def _callback(lead: int, trainer: Any) -> Any:
    base = import_module("transformers").TrainerCallback
    return type("GantreeCallback", (Saving, base), {})(lead, trainer)


def newest(output_dir: str) -> str | None:
    """The Trainer's newest checkpoint, for `resume_from_checkpoint`; None where there is none."""
    if not Path(output_dir).is_dir():
        return None
    found: str | None = import_module("transformers.trainer_utils").get_last_checkpoint(output_dir)
    return found
