"""A refusal as JSON values: the same object from `gantree place`, from the daemon and from `gantree why`."""

from typing import Any

from gantree.model.verdicts import Refused


def refusal_json(refused: Refused) -> dict[str, Any]:
    """A refusal as JSON values; a patch is an object of dotted fields to values."""
    short, near = refused.short_by, refused.nearest
    return {
        "gate": refused.gate.value,
        "never": refused.never,
        "sentence": refused.sentence,
        "short_by": short and {"resource": short.resource, "amount": short.amount},
        "nearest": near and {"domain": near[0], "room": near[1]},
        "wakes_on": list(refused.wakes_on),
        "would_fit_if": [
            {"patch": dict(relaxation.patch), "comm_ratio": relaxation.comm_ratio}
            for relaxation in refused.would_fit_if
        ],
    }
