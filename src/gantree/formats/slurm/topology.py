"""The topology that a header requests: tiers, switches, spread and exclusive nodes."""

from typing import Any

from gantree.formats.slurm import values
from gantree.formats.slurm.header_values import HeaderValues
from gantree.formats.slurm.job_size import Sizes
from gantree.text.words import shortened

LEAF = "leaf"
"""The tier that `--switches` counts."""


def topology_of(header: HeaderValues, sizes: Sizes) -> dict[str, Any] | None:
    """The `topology` of the job file; None if the header sets none."""
    topology: dict[str, Any] = {
        "required": header.text("required"),
        "preferred": header.text("preferred"),
    }
    _add_switches(header, topology, sizes)
    if "spread-job" in header.options or (sizes.named_nodes and sizes.members > 1):
        topology["spread"] = {"tier": "node", "at_most": 1}
    if "exclusive" in header.options:
        _add_exclusive(header, topology)
    return {field: value for field, value in topology.items() if value is not None} or None


def _add_switches(header: HeaderValues, topology: dict[str, Any], sizes: Sizes) -> None:
    """One switch is one domain; several are slices of as many members, so that they need no more switches."""
    switches = header.read("switches", values.switches)
    if switches is None:
        return
    how = "required" if switches[1] is None else "preferred"
    if switches[1] is not None:
        header.warn("switches", "a preference here: the job does not wait for it")
    if switches[0] == 1:
        topology[how] = topology[how] or LEAF
        return
    members = sizes.members
    together = next(
        size
        for size in range(1, members + 1)
        if members % size == 0 and size * switches[0] >= members
    )
    if together > 1:
        topology["slices"] = {"members": together, how: LEAF}


def _add_exclusive(header: HeaderValues, topology: dict[str, Any]) -> None:
    value = header.options["exclusive"].value
    if value is not None:
        option = header.options["exclusive"]
        allowed = "the option alone: no other job on the nodes when it starts"
        header.problems.append(option.problem(f"`{shortened(value)}`", allowed))
    topology["apart"] = {"tier": "node", "jobs": ["*"]}
