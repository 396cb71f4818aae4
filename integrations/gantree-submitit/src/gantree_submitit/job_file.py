"""What gantree is asked for: submitit's parameters as the fields of a job file (docs/files.md)."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gantree_submitit.job_environment import REQUEUE_EXIT_CODE, checkpoint_signal, time_limit_signal

DEFAULT_TIMEOUT_MIN = 5
"""As with submitit's Slurm executor."""
DEFAULT_SIGNAL_DELAY_S = 90
PARAMETERS = {
    "name": "name of the job; a suffix makes it unique (submitit)",
    "timeout_min": f"minutes that a job may run ({DEFAULT_TIMEOUT_MIN})",
    "mem_gb": "GiB of memory on each node",
    "nodes": "nodes (1)",
    "cpus_per_task": "CPUs of each task",
    "gpus_per_node": "GPUs on each node",
    "tasks_per_node": "processes on each node (1)",
    "stderr_to_stdout": "True: one log file for both",
    "signal_delay_s": f"seconds to checkpoint before the time is up ({DEFAULT_SIGNAL_DELAY_S}, at most half the time)",
    "setup": "shell commands that run before Python",
    "export": "variables of the caller that the job gets: ALL, NONE, NAME, NAME=VALUE, with commas between them",
    "env": "a mapping of further variables",
    "workdir": "working directory (the caller's)",
    "queue": "queue of the job",
    "priority": "class or number",
    "gpu": "acceptable GPU models, one or a list",
    "node_labels": "a mapping of labels that a node must have",
    "image": "container image, where the cluster runs images",
    "topology": "a mapping as in a job file, such as {'required': 'leaf'}",
    "job": "a mapping of further fields of a job file",
}


def job_of(
    parameters: Mapping[str, Any],
    name: str,
    command: Sequence[str],
    elements: int = 1,
    restarts: int | None = None,
) -> dict[str, Any]:
    """The job for these parameters. restarts: of a function that can checkpoint; None: it cannot. Raises ValueError."""
    timeout_s = 60.0 * parameters.get("timeout_min", DEFAULT_TIMEOUT_MIN)
    delay_s = min(parameters.get("signal_delay_s", DEFAULT_SIGNAL_DELAY_S), timeout_s / 2)
    if timeout_s <= 0 or delay_s <= 0:
        raise ValueError("timeout_min and signal_delay_s: allowed: more than 0")
    job: dict[str, Any] = {
        "name": name,
        "gang": [_role(parameters, command)],
        "time_limit": timeout_s,
        "warn": {"signal": time_limit_signal(), "before": delay_s},
        "restarts": 0,
    }
    if elements > 1:
        job["array"] = f"0-{elements - 1}"
    if restarts is not None:
        job["restarts"] = {"limit": restarts, "backoff": 0, "exit_codes": [REQUEUE_EXIT_CODE]}
        job["checkpoint"] = {"signal": checkpoint_signal(), "grace": delay_s}
    job |= {key: parameters[key] for key in ("queue", "priority", "topology") if key in parameters}
    return job | dict(parameters.get("job", {}))


def _role(parameters: Mapping[str, Any], command: Sequence[str]) -> dict[str, Any]:
    tasks = parameters.get("tasks_per_node", 1)
    each = {
        "gpus": parameters.get("gpus_per_node"),
        "cpus": parameters.get("cpus_per_task", 0) * tasks or None,
        "memory_GiB": parameters.get("mem_gb"),
    }
    nodes = parameters.get("nodes", 1)
    env = {
        "SUBMITIT_EXECUTOR": "gantree",
        "SUBMITIT_GANTREE_NODES": str(nodes),
        "SUBMITIT_GANTREE_STDERR_TO_STDOUT": "1" if parameters.get("stderr_to_stdout") else "",
    }
    if "SUBMITIT_PREEMPT_SIGNAL" in os.environ:
        env["SUBMITIT_PREEMPT_SIGNAL"] = os.environ["SUBMITIT_PREEMPT_SIGNAL"]
    role = {
        "role": "task",
        "members": nodes,
        "processes": tasks,
        "each": {key: value for key, value in each.items() if value},
        "run": list(command),
        "env": {**parameters.get("env", {}), **env},
    }
    return role | {
        key: parameters[key]
        for key in ("gpu", "node_labels", "image", "workdir")
        if key in parameters
    }
