"""What GPU config profiles make of nodes with GPUs of AMD: the resources that each offers then.

The device plugin must name resources by their mode (`resource_naming_strategy: mixed`): `amd.com/cpx_nps4`, and whole
GPUs `amd.com/spx_nps1`. How many GPUs a node has follows from what it offers.
"""

import re
from collections.abc import Iterable, Mapping

from gantree.executors.kubernetes.apiserver.objects import Node
from gantree.executors.kubernetes.nodes.partition_managers import DCM
from gantree.model.mig_configs import GpuConfigProfile
from gantree.topology.hardware.gpu_models import GPU_MODELS
from gantree.topology.hardware.mig import MigTable, mig_table

RESOURCE = re.compile(r"amd\.com/(spx|dpx|tpx|qpx|cpx)_(nps[1248])")
WHOLE = "spx"
_PRODUCT = ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name")
Offer = Mapping[str, int]


def offers_of(node: Node, profiles: Iterable[GpuConfigProfile]) -> Mapping[str, Offer]:
    """What a node offers by each profile that it does not have and that suits it; none while DCM is at work on it.

    A profile suits a node whose number of GPUs it names, in modes that the GPU model has.
    """
    labels, table = node.metadata.labels, table_of(node.metadata.labels)
    is_idle = labels.get(DCM.state, DCM.success) == DCM.success
    gpus = None if table is None else gpu_count(node, table)
    if not is_idle or table is None or not gpus:
        return {}
    found = {each.name: offer_of(each, gpus, table) for each in profiles}
    present = labels.get(DCM.config)
    return {name: offer for name, offer in found.items() if offer is not None and name != present}


def offer_of(profile: GpuConfigProfile, gpus: int, table: MigTable) -> Offer | None:
    """What a node with so many GPUs offers by a profile; None where DCM would refuse it, or it leaves GPUs out.

    GPUs that are skipped keep their mode, which may be any.
    """
    if profile.skipped or sum(count for *_, count in profile.sets) != gpus:
        return None
    if len({memory for _, memory, _ in profile.sets}) > 1:
        return None
    offer: dict[str, int] = {}
    for mode, memory, count in profile.sets:
        each = partitions(mode, table)
        if not each:
            return None
        offer[f"amd.com/{mode}_{memory}"] = offer.get(f"amd.com/{mode}_{memory}", 0) + count * each
    return offer


def gpu_count(node: Node, table: MigTable) -> int:
    """How many GPUs a node has, whatever they are divided into; 0 where its resources do not say."""
    gpus = 0
    for name, amount in node.status.capacity.items():
        found, text = RESOURCE.fullmatch(name), str(amount)
        if found is None or not (text.isascii() and text.isdecimal()):
            continue
        each = partitions(found[1], table)
        if not each or int(text) % each:
            return 0
        gpus += int(text) // each
    return gpus


def partitions(mode: str, table: MigTable) -> int:
    """How many partitions a mode makes of a GPU; 0 for one that the GPU does not have."""
    if mode == WHOLE:
        return 1
    return next((profile.most for profile in table.profiles if profile.name == mode), 0)


def table_of(labels: Mapping[str, str]) -> MigTable | None:
    """The modes of a node's GPUs, by their product's name; the label of their memory may be that of a partition."""
    product = next((labels[key] for key in _PRODUCT if labels.get(key)), "")
    words = set(re.split(r"[_ -]+", product.upper()))
    names = (model.name for model in GPU_MODELS.values() if model.mig and model.family in words)
    return next((mig_table(name) for name in names), None)
