"""Reads the own times of steps that the ranks of an attempt report through `gantree.training`: a file for each rank.

The folder is the job's own: a file that is no valid record counts as missing, and only its first bytes are read. Where
each rank is comes from the rank map, which is the daemon's.
"""

from typing import Any

from gantree.executors.local.checkpoints import record_in
from gantree.executors.local.run_directory import RunDirectory
from gantree.executors.local.shim.shim import read_json
from gantree.executors.progress import RankSteps, StepReports
from gantree.executors.report_records import finite, own_s_of_step

LONGEST = 1 << 14
"""Bytes that are read of a file; the helper writes at most two thirds of that."""
MOST_LAUNCHED = 64
"""Processes that a launcher in a member may start for each one of gantree's."""

Json = dict[str, Any]


def step_reports_in(run: RunDirectory) -> StepReports | None:
    """What the ranks of an attempt report; None where rank 0 reports nothing. Raises OSError for a damaged rank map."""
    first = record_in(run.progress / "steps-0.json", LONGEST)
    at = finite(first.get("at"))
    rank_map = None if at is None else read_json(str(run.ranks))
    if at is None or rank_map is None:
        return None
    members: list[Json] = rank_map["members"]
    started = sum(len(each["ranks"]) for each in members)
    times = _launched(first, started)
    found = [
        _rank_steps(run, member, process, times)
        for member in members
        for process in range(len(member["ranks"]) * times)
    ]
    ranks = tuple(sorted((each for each in found if each), key=lambda each: each.rank))
    parallelism = tuple(
        (str(axis), int(number)) for axis, number in rank_map.get("parallelism", ())
    )
    return StepReports(at, started * times, ranks, parallelism)


def _launched(first: Json, started: int) -> int:
    """How many processes run for each one that gantree started, as rank 0 says."""
    world_size = first.get("world_size")
    if not isinstance(world_size, int) or world_size % started:
        return 1
    return min(max(1, world_size // started), MOST_LAUNCHED)


def _rank_steps(run: RunDirectory, member: Json, process: int, times: int) -> RankSteps | None:
    """The report of one process of a member; None where there is none."""
    rank = member["ranks"][process // times] * times + process % times
    record = record_in(run.progress / f"steps-{rank}.json", LONGEST)
    own_s = own_s_of_step(record.get("steps"))
    if not own_s:
        return None
    gpus, processes = tuple(member["gpus"]), len(member["ranks"]) * times
    own = gpus[process : process + 1] if len(gpus) == processes else gpus
    return RankSteps(rank, member["role"], member["node"], own, own_s)
