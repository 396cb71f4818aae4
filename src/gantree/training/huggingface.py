"""Hugging Face Trainer: progress after every step, and a checkpoint of the Trainer's own when gantree asks for one.

    from gantree.training import huggingface as gantree_huggingface

    trainer = Trainer(model, args, callbacks=[gantree_huggingface.callback()])
    trainer.train(resume_from_checkpoint=gantree_huggingface.newest(args.output_dir))

The Trainer writes to its `output_dir`, as ever. transformers is imported when `callback` or `newest` is called.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from gantree import training


class Saving:
    """The methods of the callback. Every rank runs them at the same place."""

    def __init__(self, lead: int = 1) -> None:
        self._lead = lead
        self._asked: int | None = None
        self._loss: float | None = None

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


def callback(lead: int = 1) -> Any:
    """A TrainerCallback; lead as for `should_checkpoint`. Raises ImportError where transformers is not installed."""
    base = import_module("transformers").TrainerCallback
    return type("GantreeCallback", (Saving, base), {})(lead)


def newest(output_dir: str) -> str | None:
    """The Trainer's newest checkpoint, for `resume_from_checkpoint`; None where there is none."""
    if not Path(output_dir).is_dir():
        return None
    found: str | None = import_module("transformers.trainer_utils").get_last_checkpoint(output_dir)
    return found
