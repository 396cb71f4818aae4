"""HiveD's annotation `hivedscheduler.microsoft.com/pod-scheduling-spec`: gang, queue, priority and GPUs in YAML.

Field names are those of microsoft/hivedscheduler `pkg/api/types.go`. Such a pod asks for its GPUs here alone, and
beside it for one `hivedscheduler.microsoft.com/pod-scheduling-enable`, a resource that no node has. An annotation that
cannot be read leaves that resource asked for, so that the pod waits instead of running without its GPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import yaml

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.annotations import GPUS
from gantree.executors.kubernetes.pods.gang_spec import (
    PART,
    GangSpec,
    InvalidObject,
    Spec,
    count,
    flag,
    number,
    table,
    tables,
    text,
    there,
)
from gantree.model.jobs import Shape
from gantree.topology.hardware.gpu_models import GPU_MODELS

SPEC = "hivedscheduler.microsoft.com/pod-scheduling-spec"
ENABLE = "hivedscheduler.microsoft.com/pod-scheduling-enable"
ISOLATION = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation"
"""Where pods of HiveD have the indices of their GPUs from."""
LONGEST = 64 * 1024
MAX_DEPTH = 32
OPPORTUNISTIC = -1
NOTHING = GangSpec()
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Hived:
    """What one annotation says: the affinity group, and the GPUs of this pod. trouble: why it says nothing."""

    group: str = ""
    gang_spec: GangSpec = NOTHING
    gpus: int = 0
    models: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    trouble: str = ""


def hived_of(pod: Pod) -> Hived | None:
    """What a pod asks for in HiveD's words; None for one that says nothing in them."""
    told = pod.metadata.annotations.get(SPEC)
    return None if told is None else _read(told)


def shape_of(pod: Pod, asked: Shape) -> tuple[Shape, tuple[str, ...]]:
    """What a pod asks of a node, its GPUs as HiveD's annotation says, and what of that is not honoured."""
    hived = hived_of(pod)
    if hived is None:
        return asked, ()
    if hived.trouble:
        odd = {**dict(asked.devices), ENABLE: 1}
        return replace(asked, devices=tuple(sorted(odd.items()))), (f"{SPEC}: {hived.trouble}",)
    devices = tuple((name, number) for name, number in asked.devices if name != ENABLE)
    gpus = max(asked.gpus, hived.gpus)
    return replace(asked, gpus=gpus, models=hived.models, devices=devices), hived.unknown


def isolation_of(pod: Pod, marks: Mapping[str, str]) -> dict[str, str]:
    """HiveD's annotation for the GPUs of a pod, which its containers have as NVIDIA_VISIBLE_DEVICES; {} for others."""
    return {ISOLATION: marks.get(GPUS, "")} if SPEC in pod.metadata.annotations else {}


@lru_cache(maxsize=4096)
def _read(told: str) -> Hived:
    if len(told) > LONGEST:
        return Hived(trouble=f"it is longer than {LONGEST} characters")
    try:
        spec = _loaded(told)
        if not isinstance(spec, dict):
            raise InvalidObject("it is no object")
        return _hived(spec)
    except InvalidObject as error:
        return Hived(trouble=str(error))
    except (yaml.YAMLError, ValueError) as error:
        why = str(error).splitlines() or [type(error).__name__]
        return Hived(trouble=f"it is no YAML: {why[0]}")


def _loaded(told: str) -> object:
    """The data. Raises InvalidObject for deep nesting, which costs seconds or the whole stack, and for aliases,
    which can grow tenfold with each line.
    """
    depth = 0
    for event in yaml.parse(told, _LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            raise InvalidObject("it refers to itself by an alias")
        if depth > MAX_DEPTH:
            raise InvalidObject(f"it is nested more than {MAX_DEPTH} deep")
    return yaml.load(told, _LOADER)  # noqa: S506 - the safe loader, in C where there is one


def _hived(spec: Spec) -> Hived:
    group = table(spec, "affinityGroup")
    members = tables(group, "members")
    pods = sum(count(each, "podNumber") or 0 for each in members)
    for each in members:
        _cells(each)
    gpus = _cells(spec)
    if not gpus:
        raise InvalidObject("leafCellNumber is missing")
    priority, name = number(spec, "priority"), text(group, "name") or ""
    flags = ("gangReleaseEnable", "lazyPreemptionEnable", "ignoreK8sSuggestedNodes")
    on = [each for each in flags[:2] if flag(spec, each)]
    flag(spec, flags[2])
    return Hived(
        name.replace("/", PART),
        GangSpec(
            members=pods or 1,
            queue=text(spec, "virtualCluster"),
            priority=0 if priority is None else priority,
            preemptible=True if priority == OPPORTUNISTIC else None,
        ),
        gpus,
        _models(text(spec, "leafCellType") or text(spec, "gpuType")),
        tuple(f"hived {word}" for word in (*there(spec, "pinnedCellId"), *on)),
    )


def _cells(spec: Spec) -> int | None:
    """GPUs of a pod; older annotations say gpuNumber."""
    return count(spec, "leafCellNumber") or count(spec, "gpuNumber")


def _models(kind: str | None) -> tuple[str, ...]:
    """GPU models that a type of leaf cells stands for ("V100", "V100-32GB"); () for any where none is named."""
    if kind is None:
        return ()
    plain = kind.upper().replace("_", "-")
    return tuple(
        name for name in GPU_MODELS if name.upper() == plain or name.upper().startswith(f"{plain}-")
    ) or (kind,)
