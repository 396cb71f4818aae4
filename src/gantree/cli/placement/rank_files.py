"""The files of `gantree ranks --out DIR`: ranks.json, and the input of launchers and NCCL for each member and machine.

A folder belongs to the job that its ranks.json names. Another job's is refused, before anything is written. Of the same
job, files of members that it no longer has are removed, by the names that ranks.json gives; all else there stays.
"""

import json
from pathlib import Path
from typing import Any

from gantree.cli.output.errors import warn
from gantree.cli.output.printing import json_text
from gantree.model.errors import BadInput
from gantree.model.placements import Placement
from gantree.placement.ranks.launcher_hints import MemberHint
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.nccl_system import system_xml

RANKS = "ranks.json"
ENVIRONMENT = "env"
GRAPH = "graph.xml"


def write_rank_files(
    folder: Path,
    fabric: Fabric,
    placed: Placement,
    hints: tuple[MemberHint, ...],
    answer: dict[str, Any],
) -> None:
    """Write all files of an answer. Raises BadInput for a folder that holds those of another job.

    ranks.json comes last: an interrupted run leaves the one that names the files before.
    """
    before = _written_before(folder, answer["job"])
    folder.mkdir(parents=True, exist_ok=True)
    now = {name for hint in hints for name in _write_member(folder, hint)}
    _remove(folder, before - now, answer["job"])
    _write_machines(folder, fabric, placed)
    (folder / RANKS).write_text(json_text(answer) + "\n")


def _written_before(folder: Path, job: str) -> set[str]:
    """Names of the files of members that the ranks.json in a folder stands for."""
    path = folder / RANKS
    if not path.exists():
        return set()
    try:
        standing = json.loads(path.read_text())
        whose = standing["job"]
        members = [f"{member['role']}-{member['rank']}" for member in standing["members"]]
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(
            f"{path} was not written by gantree ranks; choose another directory for job {job}"
        ) from error
    if whose != job:
        raise BadInput(f"{path} belongs to job {whose}; choose another directory for job {job}")
    return {f"{member}.{kind}" for member in members for kind in (ENVIRONMENT, GRAPH)}


def _write_member(folder: Path, hint: MemberHint) -> list[str]:
    """Returns the names of its files; the graph file is named by the .env file with its full path."""
    member = f"{hint.role}-{hint.member}"
    environment = [f"{variable}={value}" for variable, value in hint.environment]
    names = [f"{member}.{ENVIRONMENT}"]
    if hint.graph is not None:
        names.append(f"{member}.{GRAPH}")
        graph = (folder / names[-1]).absolute()
        graph.write_text(hint.graph)
        environment.append(f"NCCL_GRAPH_FILE={graph}")
    (folder / names[0]).write_text("\n".join(environment) + "\n")
    return names


def _remove(folder: Path, names: set[str], job: str) -> None:
    """Only what lies in the folder itself, whatever ranks.json says."""
    stale = sorted(path for path in folder.iterdir() if path.name in names)
    for path in stale:
        path.unlink()
    if stale:
        removed = ", ".join(path.name for path in stale)
        warn(f"{folder}: removed old files of job {job}: {removed}")


def _write_machines(folder: Path, fabric: Fabric, placed: Placement) -> None:
    nodes = sorted({fabric.index_of_node[member.node] for member in placed.members})
    machines = {machine.name: machine for machine in map(fabric.machine_of_node, nodes)}
    for name, machine in machines.items():
        try:
            (folder / f"{name}.topo.xml").write_text(system_xml(machine))
        except BadInput as error:
            warn(f"no topology file: {error}")
