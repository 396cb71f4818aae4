"""The program of one rank: `python -m gantree.telemetry.measuring.rank SPEC.json LOCAL_INDEX`, started by `ranks`.

All ranks make the same plan and go through it together, one set of ranks and one collective at a time; the others
wait (`timing` says how one is timed). Rank 0 appends what was found to a file, a JSON object a line. A rank ends itself
when its deadline has passed or its parent is gone, so nothing here can hang.

It imports torch, which is an optional dependency; nothing imports this module.
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gantree.telemetry.measuring.lifetime import end_with_parent
from gantree.telemetry.measuring.plan import Together, all_groups
from gantree.telemetry.measuring.timing import series


def main() -> None:
    """Take part as the rank that the arguments name."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    local = int(sys.argv[2])
    end_with_parent(spec["seconds"], os.getppid())
    device = (
        torch.device("cuda", spec["first_gpu"] + local) if spec["cuda"] else torch.device("cpu")
    )
    if spec["cuda"]:
        torch.cuda.set_device(device)
    dist.init_process_group(
        spec["backend"],
        init_method=spec["meet"],
        rank=spec["first_rank"] + local,
        world_size=spec["world"],
        timeout=timedelta(seconds=spec["seconds"]),
    )
    _go_through(spec, device)
    dist.destroy_process_group()


def _go_through(spec: dict[str, Any], device: torch.device) -> None:
    nodes: list[Any] = [None] * spec["world"]
    dist.all_gather_object(nodes, spec["node"])
    groups = all_groups(
        nodes,
        [Together(within, tuple(ranks)) for within, ranks in spec["in_first_node"]],
        spec["tiers"],
        spec["place_of_node"],
    )
    here = dist.get_rank()
    handles = [dist.new_group(list(group.ranks)) for group in groups]
    if here == 0:
        library = "rccl" if spec["cuda"] and torch.version.hip else spec["backend"]
        _tell(spec, {"library": library, "nodes": sorted(set(nodes))})
    tasks = [(number, name) for number in range(len(groups)) for name in spec["collectives"]]
    for done, (number, name) in enumerate(tasks, start=1):
        group = groups[number]
        found: dict[str, Any] = {}
        if here in group.ranks:
            found = series(name, group.ranks, handles[number], spec["sizes"], device)
        found_by_rank: list[Any] = [None] * spec["world"]
        dist.all_gather_object(found_by_rank, found if here == group.ranks[0] else None)
        if here == 0:
            on = len({nodes[rank] for rank in group.ranks})
            named = {
                "within": group.within,
                "ranks": len(group.ranks),
                "nodes": on,
                "collective": name,
            }
            _tell(spec, named | found_by_rank[group.ranks[0]] | {"done": done, "total": len(tasks)})


def _tell(spec: dict[str, Any], found: dict[str, Any]) -> None:
    with Path(spec["out"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
