"""The network of `network` as a cluster file, and training jobs on it as job files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from experiment_real.network import LEAVES, NODE_MBIT, NODES_OF_LEAF, UPLINK_MBIT, address, node

NODES = LEAVES * NODES_OF_LEAF
PARAMETERS = 512 * 1024
"""2 MiB of gradients."""
COMPUTE_S = 0.01
"""A step without traffic, seen on one process: forward, backward and the optimiser."""
LATENCY_US = 100.0
"""A small message between two namespaces through two bridges, as ping shows it, is 50 to 150 us."""


def cluster(busy: Sequence[int] = (), load: float = 0.0) -> str:
    """The text of a cluster file. busy are nodes that others hold, load is what others use of the up-links."""
    machine = {
        "gpus": 1,
        "gpu": "H100-80GB",
        "cpus": 8,
        "memory_GiB": 64,
        "nics": [{"name": "eth0", "near": [0], "bandwidth_GBps": NODE_MBIT / 8000}],
    }
    document: dict[str, Any] = {
        "name": "one-machine",
        "tiers": ["spine", "leaf", "node"],
        "links": {
            "leaf": {
                "bandwidth_GBps": NODE_MBIT / 8000,
                "latency_us": LATENCY_US,
                "uplink_GBps": UPLINK_MBIT / 8000,
            }
        },
        "machines": {"virtual": machine},
        "nodes": [_node(number) for number in range(NODES)],
        "allocations": [{"job": "others", "node": node(number), "gpus": [0]} for number in busy],
    }
    if load:
        names = (f"s0/l{leaf}" for leaf in range(LEAVES))
        document["domains"] = [{"tier": "leaf", "name": name, "load": load} for name in names]
    return yaml.safe_dump(document, sort_keys=False)


def _node(number: int) -> dict[str, Any]:
    return {
        "names": node(number),
        "machine": "virtual",
        "at": {"spine": "s0", "leaf": f"l{number // NODES_OF_LEAF}"},
        "labels": {"host": node(number)},
        "launch": ["ip", "netns", "exec", "{node}"],
        "address": address(number),
    }


def job(name: str, members: int, command: Sequence[str], pinned: Sequence[int] = ()) -> str:
    """The text of a job file. pinned are the nodes of the ranks, in order; none: gantree chooses nodes and order."""
    roles: list[dict[str, Any]]
    if pinned:
        roles = [
            {"role": f"r{rank}", **_members(1, command), "node_labels": {"host": node(number)}}
            for rank, number in enumerate(pinned)
        ]
    else:
        roles = [{"role": "worker", **_members(members, command)}]
    document: dict[str, Any] = {
        "name": name,
        "gang": roles,
        "parallelism": {"data": members},
        "traffic": {"data": 4 * PARAMETERS, "compute": f"{COMPUTE_S:g}s"},
        "overlap": {"data": 0},
        "restarts": {"limit": 0},
    }
    if pinned:
        document["rank_order"] = "as-written"
    return yaml.safe_dump(document, sort_keys=False)


def _members(count: int, command: Sequence[str]) -> dict[str, Any]:
    return {"members": count, "each": {"gpus": 1, "nics": 1}, "run": list(command)}


def command(python: str, out: Path, steps: int) -> list[str]:
    """What each rank runs."""
    script = Path(__file__).with_name("train.py")
    return [python, str(script), str(out), str(PARAMETERS), str(steps)]
