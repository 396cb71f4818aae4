"""What gantree is asked for: an application of TorchX as the fields of a job file (docs/files.md)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchx.specs import AppDef, Role, macros

REPLICA_ID = "replica_id"
_MB_PER_GIB = 1024
_METADATA = {"gpu", "node_labels", "topology", "image"}


@dataclass(frozen=True)
class GantreeRequest:
    """What a dry run shows, and what is submitted. The key makes a repeated submission the same one."""

    job: dict[str, Any]
    base_dir: str
    default_env: dict[str, str]

    @property
    def key(self) -> str:
        """The id that the job will have."""
        name: str = self.job["name"]
        return name


def job_of(app: AppDef, cfg: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The job of an application. Raises ValueError for what gantree does not have."""
    job: dict[str, Any] = {
        "name": name,
        "gang": [part for role in app.roles for part in _parts(role, cfg, name)],
        "restarts": min(role.max_retries for role in app.roles),
    }
    (first, *others) = app.roles
    if first.min_replicas is not None and first.min_replicas < first.num_replicas:
        if others:
            raise ValueError(
                f"role {first.name}: min_replicas: only an application of one role is elastic"
            )
        job["elastic"] = {"min": first.min_replicas, "max": first.num_replicas}
    job |= {key: cfg[key] for key in ("queue", "time_limit") if cfg.get(key)}
    if cfg.get("priority"):
        job["priority"] = (
            int(cfg["priority"]) if re.fullmatch(r"-?\d+", cfg["priority"]) else cfg["priority"]
        )
    topology = {key: cfg[key] for key in ("required", "preferred") if cfg.get(key)}
    return job | ({"topology": topology} if topology else {})


def rank_of(row: Mapping[str, Any], role: str, replica: int) -> int:
    """The rank of a replica of a role, each of which is one process. Raises ValueError."""
    rank = 0
    for part in row["spec"]["roles"]:
        if part["name"] == f"{role}-{replica}" and part["members"] == 1:
            return rank
        if part["name"] == role and replica < part["members"]:
            return rank + replica
        rank += part["members"]
    names = ", ".join(f"{part['name']} ({part['members']})" for part in row["spec"]["roles"])
    raise ValueError(f"{row['job']} has no replica {replica} of role {role}; it has {names}")


def _parts(role: Role, cfg: Mapping[str, Any], app_id: str) -> list[dict[str, Any]]:
    """A role of gantree, or one for each replica where their command lines differ."""
    if role.mounts:
        raise ValueError(f"role {role.name}: mounts: gantree mounts nothing; leave them out")
    values = [*role.args, *role.env.values()]
    if not any(REPLICA_ID in _names(value) for value in values):
        return [_part(role, cfg, app_id, role.name, role.num_replicas, "0")]
    return [
        _part(role, cfg, app_id, f"{role.name}-{replica}", 1, str(replica))
        for replica in range(role.num_replicas)
    ]


def _names(value: str) -> list[str]:
    return re.findall(r"\$\{?(\w+)", value)


def _part(
    role: Role, cfg: Mapping[str, Any], app_id: str, name: str, members: int, replica: str
) -> dict[str, Any]:
    root = role.image if role.image and Path(role.image).is_dir() else None
    filled = macros.Values(
        img_root=root or str(Path.cwd()), app_id=app_id, replica_id=replica, rank0_env="MASTER_ADDR"
    ).apply(role)
    part = {
        "role": name,
        "members": members,
        "each": _each(role),
        "run": [filled.entrypoint, *filled.args],
        "env": {**filled.env, "TORCHX_JOB_ID": f"gantree://torchx/{app_id}"},
        **_of_metadata(role),
    }
    if root is not None:
        part["workdir"] = str(Path(root).absolute())
    elif cfg.get("use_image") and role.image:
        part["image"] = role.image
    return part


def _each(role: Role) -> dict[str, Any]:
    resource = role.resource
    each: dict[str, Any] = {}
    if resource.cpu > 0:
        each["cpus"] = resource.cpu
    if resource.gpu > 0:
        each["gpus"] = resource.gpu
    if resource.memMB > 0:
        each["memory_GiB"] = resource.memMB / _MB_PER_GIB
    if resource.devices:
        each["devices"] = dict(resource.devices)
    return each


def _of_metadata(role: Role) -> dict[str, Any]:
    """Fields of the role that the application names for gantree, as `gantree.gpu`."""
    found = {
        key.removeprefix("gantree."): value
        for key, value in role.metadata.items()
        if key.startswith("gantree.")
    }
    if unknown := sorted(set(found) - _METADATA):
        allowed = ", ".join(f"gantree.{key}" for key in sorted(_METADATA))
        raise ValueError(
            f"role {role.name}: metadata: found gantree.{unknown[0]}; allowed: {allowed}"
        )
    return found
