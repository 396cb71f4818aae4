"""Refusals as JSON values, the same from `gantree place`, the daemon and `gantree why`."""

from typing import Any

from gantree.model.jobs import Apart, Slices, Spread
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
        field: _box(value) if field == "topology.box" else _value(value) for field, value in patch
    }


def _box(value: object) -> str | None:
    """A box as a job file has it: 4x4x16, or any."""
    return "x".join(map(str, value)) or "any" if isinstance(value, tuple) else None


def _value(value: object) -> Any:
    """A value of a patch as a job file has it."""
    if isinstance(value, tuple):
        return [_value(each) for each in value]
    if isinstance(value, Slices):
        tier = "preferred" if value.preferred else "required"
        role = {} if value.role is None else {"role": value.role}
        return {"members": value.members, tier: value.required, **role}
    if isinstance(value, Spread):
        at_most = {} if value.at_most is None else {"at_most": value.at_most}
        return {"tier": value.tier, **at_most}
    if isinstance(value, Apart):
        return {"tier": value.tier, "jobs": list(value.jobs)}
    return value
