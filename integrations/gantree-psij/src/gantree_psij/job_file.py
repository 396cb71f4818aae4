"""What gantree is asked for: a job of PSI/J as the fields of a job file (docs/files.md)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psij import InvalidJobException, JobSpec, ResourceSpecV1

GANG = "gantree"
"""The launcher that starts the executable as each process of a gang."""
PREFIX = "gantree."
FIELDS = {"priority", "gpu", "node_labels", "topology", "image", "export", "job"}
OF_ROLE = {"gpu", "node_labels", "image"}
_GIB = 1024**3
LEADER = """
d=$1/$GANTREE_ATTEMPT n=$2 p=$3; shift 3
mkdir -p "$d" && uname -n > "$d/.$NODE_RANK" && mv "$d/.$NODE_RANK" "$d/node.$NODE_RANK" || exit 1
if [ "$NODE_RANK" != 0 ]; then while [ -d "$d" ]; do sleep 1; done; exit 0; fi
PSIJ_NODEFILE=$d/nodes; export PSIJ_NODEFILE; : > "$PSIJ_NODEFILE"
i=0
while [ "$i" -lt "$n" ]; do
  while [ ! -e "$d/node.$i" ]; do sleep 0.1; done
  k=0
  while [ "$k" -lt "$p" ]; do cat "$d/node.$i" >> "$PSIJ_NODEFILE"; k=$((k + 1)); done
  i=$((i + 1))
done
trap 'kill -TERM $child; wait $child' TERM
"$@" & child=$!; wait $child; code=$?
rm -rf "$d"; exit $code
"""
"""Writes the file of nodes that PSI/J promises, runs the launcher on the first node, and holds the others meanwhile."""
RANKS = (
    'out=$1 err=$2 in=$3; shift 3; suffix=; if [ "$RANK" != 0 ]; then suffix=.$RANK; fi; '
    'if [ -n "$out" ]; then exec > "$out$suffix"; fi; '
    'if [ -n "$err" ]; then exec 2> "$err$suffix"; fi; '
    'if [ -n "$in" ]; then exec < "$in"; fi; exec "$@"'
)
"""Turns the streams of a rank to the files of the job, and becomes the executable."""


def resources_of(spec: JobSpec) -> ResourceSpecV1:
    """The resources of a job. Raises InvalidJobException."""
    resources = spec.resources
    if not isinstance(resources, ResourceSpecV1):
        raise InvalidJobException("resources: gantree knows version 1 of the specification only")
    if resources.exclusive_node_use:
        raise InvalidJobException(
            "exclusive_node_use: gantree has none; request all CPUs or GPUs of a node instead"
        )
    return resources


def runs_as_gang(spec: JobSpec) -> bool:
    """Whether gantree starts each process, and no launcher of PSI/J. Raises InvalidJobException."""
    if spec.launcher == GANG:
        if spec.pre_launch or spec.post_launch:
            raise InvalidJobException("pre_launch, post_launch: the launcher gantree has none")
        return True
    return False


def custom(spec: JobSpec) -> dict[str, Any]:
    """The custom attributes that are for gantree, without their prefix. Raises InvalidJobException."""
    found = spec.attributes.custom_attributes or {}
    own = {
        key.removeprefix(PREFIX): value for key, value in found.items() if key.startswith(PREFIX)
    }
    if unknown := sorted(set(own) - FIELDS):
        allowed = ", ".join(PREFIX + each for each in sorted(FIELDS))
        raise InvalidJobException(
            f"custom_attributes: found {PREFIX}{unknown[0]}; allowed: {allowed}"
        )
    return own


def job_of(spec: JobSpec, name: str, command: Sequence[str], folder: Path) -> dict[str, Any]:
    """The job for a specification. Raises InvalidJobException for what gantree does not have.

    folder is where its nodes meet: visible to all of them, and its own.
    """
    own = custom(spec)
    role = _role(spec, command, folder) | {key: own[key] for key in OF_ROLE if key in own}
    job: dict[str, Any] = {"name": name, "gang": [role], "restarts": 0}
    attributes = spec.attributes
    for field in ("account", "reservation_id"):
        if getattr(attributes, field):
            raise InvalidJobException(f"{field}: gantree has none; queue_name chooses a queue")
    job["time_limit"] = attributes.duration.total_seconds()
    if attributes.queue_name:
        job["queue"] = attributes.queue_name
    job |= {key: own[key] for key in ("priority", "topology") if key in own}
    return job | dict(own.get("job", {}))


def _role(spec: JobSpec, command: Sequence[str], folder: Path) -> dict[str, Any]:
    resources = resources_of(spec)
    nodes = resources.computed_node_count
    a_node = resources.computed_processes_per_node
    is_gang = spec.launcher == GANG
    if is_gang:
        files = [str(each or "") for each in (spec.stdout_path, spec.stderr_path, spec.stdin_path)]
        command = ["/bin/sh", "-c", RANKS, "sh", *files, *command]
    elif resources.computed_process_count > 1 or nodes > 1:
        command = ["/bin/sh", "-c", LEADER, "sh", str(folder), str(nodes), str(a_node), *command]
    role: dict[str, Any] = {
        "role": "job",
        "members": nodes,
        "processes": a_node if is_gang else 1,
        "each": _each(resources, a_node, nodes),
        "run": list(command),
        "env": {key: str(value) for key, value in (spec.environment or {}).items()},
    }
    if spec.directory is not None:
        role["workdir"] = str(spec.directory)
    return role


def _each(resources: ResourceSpecV1, processes: int, nodes: int) -> dict[str, Any]:
    each: dict[str, Any] = {"cpus": (resources.cpu_cores_per_process or 1) * processes}
    if resources.gpu_cores_per_process:
        each["gpus"] = resources.gpu_cores_per_process * processes
    if resources.memory:
        each["memory_GiB"] = round(resources.memory / nodes / _GIB, 6)
    return each
