"""Generated cluster files: a virtual cluster, and this machine.

Both become the text of a cluster file and are read like any other.
"""

import json
import re

from gantree.formats import write_machines
from gantree.model.errors import BadInput
from gantree.telemetry.nvml.driver import detect
from gantree.topology.hardware.catalog import machine

VIRTUAL = re.compile(r"(?P<machine>[^:]+):(?P<count>[1-9][0-9]{0,4})")


def virtual_text(machines: str) -> str:
    """A cluster of COUNT machines of the catalogue under one leaf, from "MACHINE:COUNT".

    Raises BadInput for another form and for a machine that the catalogue does not have.
    """
    match = VIRTUAL.fullmatch(machines)
    if match is None:
        raise BadInput(f"--virtual {machines}: allowed: MACHINE:COUNT, such as dgx-h100:2")
    count = int(match["count"])
    nodes = {
        "names": [f"n{number}" for number in range(count)],
        "machine": machine(match["machine"]).name,
        "at": {"leaf": "l0"},
    }
    return json.dumps({"name": "virtual", "tiers": ["leaf", "node"], "nodes": [nodes]})


def this_machine_text() -> str:
    """A cluster of this machine alone, under its host name. Raises Unreachable where no GPU driver answers."""
    found = detect(name="this-machine")
    host = json.dumps(found.hostname)
    nodes = f"nodes:\n  - {{names: {host}, machine: {found.machine.name}}}\n"
    return f"name: {host}\ntiers: [node]\n{write_machines([found.machine])}{nodes}"
