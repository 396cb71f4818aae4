"""What gantree is asked for: a job of a workflow as the fields of a job file (docs/files.md)."""

import re
from collections.abc import Mapping
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from snakemake_executor_plugin_gantree.settings import ExecutorSettings

_MIB_PER_GIB = 1024
OWN = {
    "gantree_queue",
    "gantree_priority",
    "gantree_labels",
    "gantree_image",
    "gantree_preemptible",
}
"""Resources of a rule that mean something here alone."""


def job_of(
    job: JobExecutorInterface,
    name: str,
    command: str,
    env: Mapping[str, str],
    settings: ExecutorSettings,
) -> dict[str, Any]:
    """The job for one of a workflow. Raises WorkflowError with the name of the rule."""
    resources = dict(job.resources)
    if unknown := sorted(key for key in resources if key.startswith("gantree_") and key not in OWN):
        raise _wrong(job, unknown[0], f"allowed: {', '.join(sorted(OWN))}")
    if _number(job, resources, "nodes") not in (None, 1):
        raise _wrong(job, "nodes", "a job of a workflow is one process on one node")
    role: dict[str, Any] = {
        "role": "job",
        "members": 1,
        "each": _each(job, resources),
        "run": ["/bin/sh", "-c", command],
        "env": dict(env),
    }
    if resources.get("gpu_model"):
        role["gpu"] = str(resources["gpu_model"]).split(",")
    if resources.get("gantree_labels"):
        role["node_labels"] = _labels(job, str(resources["gantree_labels"]))
    if resources.get("gantree_image"):
        role["image"] = resources["gantree_image"]
    wanted: dict[str, Any] = {"name": name, "gang": [role], "restarts": 0}
    if minutes := _number(job, resources, "runtime"):
        wanted["time_limit"] = minutes * 60
    if queue := resources.get("gantree_queue") or settings.queue:
        wanted["queue"] = str(queue)
    priority = resources.get("gantree_priority", settings.priority)
    if priority not in (None, ""):
        text = str(priority)
        wanted["priority"] = int(text) if re.fullmatch(r"-?\d+", text) else text
    if resources.get("gantree_preemptible") is not None:
        wanted["preemptible"] = str(resources["gantree_preemptible"]).lower() in (
            "1",
            "true",
            "yes",
        )
    return wanted


def _each(job: JobExecutorInterface, resources: Mapping[str, Any]) -> dict[str, Any]:
    each: dict[str, Any] = {"cpus": max(1, job.threads)}
    if memory_mib := _number(job, resources, "mem_mib") or _number(job, resources, "mem_mb"):
        each["memory_GiB"] = round(memory_mib / _MIB_PER_GIB, 6)
    gpus = _number(job, resources, "gpu") or _number(job, resources, "gpus")
    if gpus:
        each["gpus"] = gpus
    return each


def _number(job: JobExecutorInterface, resources: Mapping[str, Any], name: str) -> int | None:
    value = resources.get(name)
    if value is None or value == "":
        return None
    try:
        number = int(str(value))
    except ValueError:
        raise _wrong(job, name, f"found {value!r}; allowed: a whole number") from None
    if number < 0:
        raise _wrong(job, name, f"found {number}; allowed: 0 or more")
    return number


def _labels(job: JobExecutorInterface, text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(key and equals for key, equals, _ in pairs):
        raise _wrong(job, "gantree_labels", f"found {text!r}; allowed: KEY=VALUE,...")
    return {key: value for key, _, value in pairs}


def _wrong(job: JobExecutorInterface, resource: str, text: str) -> WorkflowError:
    return WorkflowError(f"rule {job.name}: resource {resource}: {text}")
