"""A refusal as JSON values: the same object from `gantree place`, from the daemon and from `gantree why`."""

from typing import Any

from gantree.model.jobs import Slices
from gantree.model.verdicts import Patch, Refused


def refusal_json(refused: Refused) -> dict[str, Any]:
    """A refusal as JSON values; a patch is an object of dotted fields to their new values, as in a job file."""
    short, near = refused.short_by, refused.nearest
    return {
        "gate": refused.gate.value,
        "never": refused.never,
        "sentence": refused.sentence,
        "short_by": short and {"resource": short.resource, "amount": short.amount},
        "nearest": near and {"domain": near[0], "room": near[1]},
        "wakes_on": list(refused.wakes_on),
        "would_fit_if": [
            {"patch": _patch(relaxation.patch), "comm_ratio": relaxation.comm_ratio}
            for relaxation in refused.would_fit_if
        ],
    }


def _patch(patch: Patch) -> dict[str, Any]:
    return {
        field: [_slices(run) for run in value] if isinstance(value, tuple) else value
        for field, value in patch
    }


def _slices(run: Slices) -> dict[str, Any]:
    role = {} if run.role is None else {"role": run.role}
    return {"members": run.members, "required": run.required, **role}
