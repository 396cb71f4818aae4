"""Reads what a pod posts during the check before its start. Pure.

Whoever may read the pod can write anything here: what makes no sense is refused as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gantree.executors.kubernetes.pods.rank_report import count_in, record_in
from gantree.model.errors import BadInput

MOST_GPUS = 64
MOST_DONE = 1_000_000


@dataclass(frozen=True, slots=True)
class CheckPost:
    """What a pod says: the GPUs that PyTorch sees (None: there is no PyTorch), measurements done and all, its result.

    Each is None before it is known.
    """

    gpus: int | None
    done: tuple[int, int] | None
    result: Mapping[str, Any] | None


def check_post_in(body: bytes) -> CheckPost:
    """The post in the body of a request. Raises BadInput."""
    record = record_in(body)
    gpus = None if record.get("gpus") is None else count_in(record, "gpus", 0, MOST_GPUS)
    result = record.get("result")
    if result is not None and not isinstance(result, dict):
        raise BadInput("result: expected an object")
    return CheckPost(gpus, _done(record.get("done")), result)


def _done(told: object) -> tuple[int, int] | None:
    if told is None:
        return None
    if not isinstance(told, list) or len(told) != 2:
        raise BadInput("done: expected two whole numbers")
    parts = {"done": told[0], "total": told[1]}
    total = count_in(parts, "total", 0, MOST_DONE)
    return count_in(parts, "done", 0, total), total
