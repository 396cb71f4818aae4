"""Reads what a rank of a pod reports by a request, and what its pod says of the gang's parallelism. Pure.

Either comes from users, who may write anything: a report that makes no sense is refused as a whole.
"""

import json
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gantree.executors.progress import Progress
from gantree.executors.report_records import own_s_of_step, progress_of
from gantree.model.errors import BadInput
from gantree.model.jobs import AXES

MOST_WORLD_SIZE = 1_000_000
MOST_RANKS_OF_POD = 64
_WAYS = re.compile(rf"({'|'.join(AXES)})=([1-9][0-9]{{0,5}})", re.ASCII)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RankReport:
    """The report of a rank. taken_at is by the steady clock, at in seconds since 1970; both are the daemon's.

    steps are numbers of steps and own_s the own times of these, in seconds, oldest first.
    """

    rank: int
    taken_at: float
    at: float
    world_size: int
    local_rank: int
    local_world_size: int
    steps: Sequence[int]
    own_s: Sequence[float]
    progress: Progress | None

    def own_s_of_step(self) -> dict[int, float]:
        """The own times by number of the step, in seconds."""
        return dict(zip(self.steps, self.own_s, strict=True))


def rank_report_in(body: bytes, taken_at: float, at: float) -> RankReport:
    """The report in the body of a request, taken now. What the pod's clock says is not used. Raises BadInput."""
    record = record_in(body)
    rank = count_in(record, "rank", 0, MOST_WORLD_SIZE)
    steps, told = record.get("steps", {}), record.get("progress")
    own = own_s_of_step(steps.get("steps")) if isinstance(steps, dict) else {}
    if not own and "steps" in record:
        raise BadInput("steps: expected own times of steps, as gantree.training reports them")
    return RankReport(
        rank,
        taken_at,
        at,
        count_in(steps, "world_size", rank + 1, MOST_WORLD_SIZE) if own else 0,
        count_in(record, "local_rank", 0, MOST_RANKS_OF_POD - 1),
        count_in(record, "local_world_size", 1, MOST_RANKS_OF_POD),
        _numbers(own),
        array("d", own.values()),
        progress_of({**told, "at": at}) if isinstance(told, dict) else None,
    )


def record_in(body: bytes) -> Json:
    try:
        record = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput("the report is no JSON") from error
    if not isinstance(record, dict):
        raise BadInput("the report is no JSON object")
    return record


def count_in(record: Json, name: str, least: int, most: int) -> int:
    """A whole number of a record. Raises BadInput."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadInput(f"{name}: expected a whole number from {least} to {most}")
    return value


def _numbers(own: Mapping[int, float]) -> Sequence[int]:
    """The numbers of steps, small in memory."""
    numbers = list(own)
    if numbers and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return range(numbers[0], numbers[0] + len(numbers))
    return array("q", numbers)


def parallelism_of(text: str) -> tuple[tuple[str, int], ...]:
    """The (axis, ways) that an annotation says; nothing where it is not in that form."""
    ways = [_WAYS.fullmatch(each.strip()) for each in text.split(",")]
    found = tuple((each[1], int(each[2])) for each in ways if each)
    return found if len(found) == len(ways) else ()
