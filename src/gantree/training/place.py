"""Where this process stands: who is near it, and which start of the gang this is. Read from environment and one file.

The executor writes `ranks.json` into the run directory, a record for each member: its ranks, its domain of each tier,
and the NVLink domain of each of its processes. A launcher inside a member (torchrun) may start several processes for
each one that gantree started; then WORLD_SIZE is a multiple of GANTREE_WORLD_SIZE, and each rank of the map stands
for as many ranks in a row.
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
    """One start of a gang. id differs between any two starts; restarts counts those before this one.

    previous_world_size is that of the start before, None at the first: where it differs from world_size the gang was
    resized, and shards of that many ranks are to be read. resized says so.
    """

    id: str
    restarts: int
    world_size: int
    previous_world_size: int | None
    master_addr: str
    master_port: int

    @property
    def resized(self) -> bool:
        """The start before had another size."""
        return self.previous_world_size not in (None, self.world_size)


def number(environment: Mapping[str, str], name: str, default: int) -> int:
    """A variable that holds a whole number; the default where it does not."""
    try:
        return int(environment[name])
    except (KeyError, ValueError):
        return default


def rendezvous_in(environment: Mapping[str, str]) -> Rendezvous:
    """The start that this environment was made for."""
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
    """Ranks by tier that share the domain of the rank of this environment."""
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
    """Processes that run for each one that gantree started: 1 unless a launcher inside the member started more."""
    started = number(environment, "GANTREE_WORLD_SIZE", 0)
    world_size = number(environment, "WORLD_SIZE", 1)
    whole = started > 0 and world_size >= started and world_size % started == 0
    return world_size // started if whole else 1


def _members(environment: Mapping[str, str]) -> list[Record]:
    """The rank map; empty outside gantree, and where the run directory cannot be reached."""
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
    """The ranks of this node as torchrun and its like number them."""
    first = rank - number(environment, "LOCAL_RANK", 0)
    return tuple(range(first, first + number(environment, "LOCAL_WORLD_SIZE", 1)))
