"""The place of this process: ranks near it, and its rendezvous, read from the environment and the rank map.

The executor writes `ranks.json` into the run directory, a record for each member: its ranks, its domain of each tier,
and the NVLink domain of each of its processes. A launcher inside a member (torchrun) may start several processes for
each one that gantree started; then WORLD_SIZE is a multiple of GANTREE_WORLD_SIZE, and each rank of the map stands
for that many consecutive ranks.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NVLINK = "nvlink"
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The rendezvous of one attempt. id is unique to the attempt; restarts counts the attempts before it.

    previous_world_size is that of the attempt before, None for the first. If it differs from world_size, the gang was
    resized, and a sharded checkpoint has the shards of previous_world_size ranks.
    """

    id: str
    restarts: int
    world_size: int
    previous_world_size: int | None
    master_addr: str
    master_port: int

    @property
    def resized(self) -> bool:
        """Whether the attempt before had another world size."""
        return self.previous_world_size not in (None, self.world_size)


def number(environment: Mapping[str, str], name: str, default: int) -> int:
    """Return a variable as an integer; the default if it is none."""
    try:
        return int(environment[name])
    except (KeyError, ValueError):
        return default


def rendezvous_in(environment: Mapping[str, str]) -> Rendezvous:
    """Return the rendezvous of an environment."""
    previous = number(environment, "GANTREE_PREVIOUS_WORLD_SIZE", 0)
    return Rendezvous(
        id=environment.get("GANTREE_RENDEZVOUS_ID")
        or environment.get("TORCHELASTIC_RUN_ID", "none"),
        restarts=number(environment, "GANTREE_RESTARTS", 0),
        world_size=number(environment, "WORLD_SIZE", 1),
        previous_world_size=previous * _each_stands_for(environment) if previous > 0 else None,
        master_addr=environment.get("MASTER_ADDR", "127.0.0.1"),
        master_port=number(environment, "MASTER_PORT", 29500),
    )


def neighbours_in(environment: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """Return, by tier, the ranks in the same domain as the rank of an environment."""
    rank, times = number(environment, "RANK", 0), _each_stands_for(environment)
    members = _members(environment)
    own = next((each for each in members if rank // times in each["ranks"]), None)
    if own is None:
        return {"node": _by_launcher(environment, rank)}
    near = {
        tier: _times([r for each in members if each["domains"].get(tier) == name for r in each["ranks"]], times)
        for tier, name in own["domains"].items()
    }  # fmt: skip
    if NVLINK in near:
        return near
    domain = own[NVLINK][own["ranks"].index(rank // times)]
    alike = [r for each in members for r, name in _nvlink_of_rank(each) if name == domain]
    return {**near, NVLINK: _times(alike, times)}


def _each_stands_for(environment: Mapping[str, str]) -> int:
    """Return how many processes run for each one that gantree started: 1 unless a launcher started more."""
    started = number(environment, "GANTREE_WORLD_SIZE", 0)
    world_size = number(environment, "WORLD_SIZE", 1)
    whole = started > 0 and world_size >= started and world_size % started == 0
    return world_size // started if whole else 1


def _members(environment: Mapping[str, str]) -> list[Record]:
    """Return the rank map; empty outside gantree and where the run directory is not readable."""
    run_dir = environment.get("GANTREE_RUN_DIR")
    if not run_dir:
        return []
    try:
        members: list[Record] = json.loads((Path(run_dir) / "ranks.json").read_text("utf-8"))[
            "members"
        ]
    except (OSError, ValueError, LookupError):
        return []
    return members


def _nvlink_of_rank(member: Record) -> Iterator[tuple[int, str]]:
    return zip(member["ranks"], member[NVLINK], strict=True)


def _times(ranks: list[int], times: int) -> tuple[int, ...]:
    return tuple(sorted(rank * times + extra for rank in ranks for extra in range(times)))


def _by_launcher(environment: Mapping[str, str], rank: int) -> tuple[int, ...]:
    """Return the ranks of this node by LOCAL_RANK and LOCAL_WORLD_SIZE, as torchrun sets them."""
    first = rank - number(environment, "LOCAL_RANK", 0)
    return tuple(range(first, first + number(environment, "LOCAL_WORLD_SIZE", 1)))
