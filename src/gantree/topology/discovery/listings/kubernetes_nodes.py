"""One Kubernetes Node object: its labels, its hardware, its address, whether it is schedulable.

Capacities: GPUs as the device plugin counts them (`status.capacity`), CPUs and memory as pods may have them
(`status.allocatable`, else `capacity`), in the API's quantities ("95850m", "263850248Ki").

Labels refine that. GPU Feature Discovery gives the product and the memory of a GPU; where GPUs are shared, it gives how
many there are (`gpu.count`), while the capacity counts shares; with the MIG strategy `single` product, count and memory
are those of MIG instances, so that neither the GPUs nor their memory are given; with `mixed` the capacity counts only
GPUs without instances, and `gpu.count` all. AMD's node labeller gives product and memory. GKE names the accelerator.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gantree.model.jobs import GPU_RESOURCES
from gantree.text.document import Truth
from gantree.text.records import Record
from gantree.text.words import plural, shortened
from gantree.topology.discovery.listings.label_keys import labels_of
from gantree.topology.discovery.machines.devices.nvidia_names import model_name

_NVIDIA = "nvidia.com/"
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))([A-Za-z]*(?:[+-]?[0-9]{1,3})?)",
    re.ASCII,
)
_PARTS = {"n": 1e9, "u": 1e6, "m": 1e3}
_SUFFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
           "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}  # fmt: skip
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,3})", re.ASCII)
_MIG = re.compile(r"-MIG-.*")
_SHARED = re.compile(r"-SHARED$")
_SIZE_IN_NAME = re.compile(r"(?<![0-9])([0-9]{1,3})GB?(?![0-9A-Za-z])", re.IGNORECASE | re.ASCII)
_GKE_GPU = re.compile(r"nvidia-(?:tesla-)?([a-z0-9]{2,12})(?:-[a-z]+)?-([0-9]{1,3})gb", re.ASCII)
_AMD_BRAND = re.compile(r"(?:^|_)(?:AMD|Instinct|Radeon|OAM|PCIe|Graphics|[0-9]+G)(?=_|$)")
MAX_GPUS = 1024


@dataclass(frozen=True, slots=True)
class KubernetesNode:
    """A node of the API. schedulable is false where it is cordoned; notes are odd things about it."""

    name: str
    labels: Mapping[str, str]
    gpus: int | None
    gpu: str | None
    cpus: float | None
    memory_GiB: float | None
    address: str | None
    ready: bool
    schedulable: bool
    notes: tuple[str, ...]


def read_node(record: Record) -> KubernetesNode:
    """Return what a Node object gives; what is wrong in it is noted in the record's report."""
    metadata, spec, status = (record.record(key) for key in ("metadata", "spec", "status"))
    name = metadata.text("name") if metadata else ""
    if metadata is None and not record.has("metadata"):
        record.problem("metadata", "nothing", "a mapping with the node's name")
    labels = labels_of(metadata)
    capacity = status.record("capacity") if status else None
    allocatable = (status.record("allocatable") if status else None) or capacity
    gpus, notes = _gpus(labels, capacity, allocatable)
    cpus, memory = _amount(allocatable, "cpu"), _amount(allocatable, "memory")
    return KubernetesNode(
        name,
        labels,
        gpus,
        gpu_of_labels(labels) if gpus != 0 else None,
        cpus,
        None if memory is None else memory / 2**30,
        _address(status),
        _is_ready(status),
        not (spec is not None and _is_on(spec.table.get("unschedulable"))),
        tuple(notes),
    )


@lru_cache(maxsize=4096)  # the same few texts are in all pods and nodes of a cluster
def quantity(text: str) -> float | None:
    """Return a quantity of the Kubernetes API as a number; None for what is none. "95850m" is 95.85."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    suffix = match[2]
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent:
        factor = 10.0 ** int(exponent[1]) if abs(int(exponent[1])) < 300 else math.inf
    elif suffix in _SUFFIX or suffix in _PARTS:
        factor = _SUFFIX.get(suffix, 1.0)
    else:
        return None
    value = float(match[1]) * factor / _PARTS.get(suffix, 1.0)
    return value if math.isfinite(value) else None


def _amount(amounts: Record | None, resource: str) -> float | None:
    """Return how much of a resource is given; note what is no quantity."""
    if amounts is None or not amounts.has(resource):
        return None
    text = amounts.text(resource)
    value = quantity(text)
    if value is None or value < 0:
        amounts.problem(resource, f"`{shortened(text)}`", "a quantity such as 96, 95850m or 512Gi")
        return None
    return value


def _gpus(
    labels: Mapping[str, str], capacity: Record | None, allocatable: Record | None
) -> tuple[int | None, list[str]]:
    """Return how many GPUs (or TPU chips) there are, None where it is not given, and what is odd about it."""
    found: int | None = 0 if capacity is not None else None
    notes: list[str] = []
    for resource in GPU_RESOURCES:
        amount = _amount(capacity, resource)
        if not amount or capacity is None:
            continue
        if not amount.is_integer() or amount > 100 * MAX_GPUS:
            capacity.problem(resource, f"{amount:g}", f"a whole number up to {100 * MAX_GPUS}")
            return None, notes
        found = int(amount)
        free = _amount(allocatable, resource)
        if free is not None and free < amount:
            notes.append(f"{free:g} of {found} {resource} are allocatable")
        break
    return _by_discovery(labels, found, notes)


def _by_discovery(
    labels: Mapping[str, str], counted: int | None, notes: list[str]
) -> tuple[int | None, list[str]]:
    """Correct a count by what GPU Feature Discovery gives, where it counts something else."""
    given = labels.get(_NVIDIA + "gpu.count", "")
    count = int(given) if given.isascii() and given.isdecimal() and len(given) < 6 else None
    if count is not None and count > MAX_GPUS:
        count = None
    if "-MIG-" in labels.get(_NVIDIA + "gpu.product", ""):
        return None, [*notes, "MIG instances are counted (strategy single), not GPUs"]
    if labels.get(_NVIDIA + "mig.strategy") == "mixed" and count and count > (counted or 0):
        return count, notes
    shares = labels.get(_NVIDIA + "gpu.replicas", "")
    shared = shares.isascii() and shares.isdecimal() and len(shares) < 6 and int(shares) > 1
    if count and (counted is None or (shared and counted == count * int(shares))):
        return count, notes
    if count and counted and counted != count and not shared:
        notes = [
            *notes,
            f"the device plugin counts {plural(counted, 'GPU')}, GPU Feature Discovery {count}",
        ]
    return (counted if counted is None or counted <= MAX_GPUS else None), notes


def gpu_of_labels(labels: Mapping[str, str]) -> str | None:
    """Return the GPU's model as the catalogue names it; None where the labels do not give it."""
    product = labels.get(_NVIDIA + "gpu.product", "")
    if product:
        return _nvidia(product, labels.get(_NVIDIA + "gpu.memory", ""), labels)
    for prefix in ("amd.com/gpu.", "beta.amd.com/gpu."):
        name, memory = labels.get(prefix + "product-name", ""), labels.get(prefix + "vram", "")
        size = quantity(memory + "i" if memory[-1:] in {"G", "M", "T"} else memory)
        if name and size and size < 2**50:
            words = _AMD_BRAND.sub("", name.strip("_")).strip("_")
            return model_name(words.replace("_", " "), round(size / 2**20)) if words else None
    gke = _GKE_GPU.fullmatch(labels.get("cloud.google.com/gke-accelerator", ""))
    if gke:
        return model_name(gke[1].upper(), int(gke[2]) * 1024)
    return labels.get("cloud.google.com/gke-tpu-accelerator") or None


def _nvidia(product: str, memory: str, labels: Mapping[str, str]) -> str | None:
    """Return the model of a product label ("NVIDIA-H100-80GB-HBM3") and a memory label in MiB."""
    if labels.get(_NVIDIA + "vgpu.present") == "true":
        return None
    whole = _SHARED.sub("", _MIG.sub("", product))
    words = whole.replace("-", " ")
    if whole == _SHARED.sub("", product):  # no MIG, so that the memory is the GPU's
        amount = quantity(memory + "i" if memory[-1:] in {"G", "M"} else memory) if memory else None
        if amount and memory.isdecimal():
            amount *= 2**20
        if amount and 0 < amount < 2**50:
            return model_name(words, round(amount / 2**20))
    size = _SIZE_IN_NAME.search(words)
    return model_name(words, int(size[1]) * 1024) if size and int(size[1]) else None


def _address(status: Record | None) -> str | None:
    addresses = status.records("addresses") if status else []
    found = {
        entry.text("type", default=""): entry.text("address", default="") for entry in addresses
    }
    return found.get("InternalIP") or found.get("Hostname") or None


def _is_ready(status: Record | None) -> bool:
    """Return whether the Ready condition is true; a node without conditions is taken as ready."""
    for condition in status.records("conditions") if status else ():
        if condition.text("type", default="") == "Ready":
            return condition.text("status", default="") in {"True", "true"}
    return True


def _is_on(value: object) -> bool:
    return value is True or (isinstance(value, Truth) and bool(value)) or value == "true"
