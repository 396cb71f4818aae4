"""What MIG configs make of nodes: the resources that each offers then, and which nodes must change for a gang.

The GPU Operator's manager partitions a whole node by one config, named in a label, so a node is changed as a whole, and
only when no pod on it has GPUs or instances: which of them a pod has is the kubelet's business.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gantree.executors.kubernetes.apiserver.objects import Node
from gantree.executors.kubernetes.nodes import compute_partitions
from gantree.executors.kubernetes.nodes.partition_managers import (
    CONFIG,
    DCM,
    MIG_MANAGER,
    STATE,
    manager_of,
    taints_without,
)
from gantree.model.errors import BadInput
from gantree.model.mig_configs import GpuConfigProfile, MigConfig, MigLayout
from gantree.topology.discovery.listings.kubernetes_nodes import gpu_of_labels
from gantree.topology.hardware.mig import MigTable, mig_table

CAPABLE, STRATEGY, GPU_COUNT = (
    "nvidia.com/mig.capable",
    "nvidia.com/mig.strategy",
    "nvidia.com/gpu.count",
)
GPU, INSTANCE = "nvidia.com/gpu", "nvidia.com/mig-"
Offer = Mapping[str, int]
"""Resources of a node, by name."""


@dataclass(frozen=True, slots=True)
class Partitionable:
    """A node that may be given one of these configs, with what it would offer then."""

    node: Node
    offers: Mapping[str, Offer]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    def with_config(self, config: str) -> Node:
        """The node as it is once it has a config."""
        return with_offer(self.node, self.offers[config])


def is_of_gpus(resource: str) -> bool:
    """Whether a resource is GPUs or MIG instances of NVIDIA's device plugin, or what AMD's names by its mode."""
    is_nvidia = resource == GPU or resource.startswith(INSTANCE)
    return is_nvidia or compute_partitions.RESOURCE.fullmatch(resource) is not None


def partitionable(
    node: Node, configs: Iterable[MigConfig], profiles: Iterable[GpuConfigProfile] = ()
) -> Partitionable | None:
    """A node that its manager can change, None for one that it cannot, or that it is at work on.

    Its device plugin must list instances as resources of their own (strategy `mixed`), and no slices its GPUs.
    """
    if manager_of(node) is DCM:
        offers = {} if node.wiring.gpus else compute_partitions.offers_of(node, profiles)
        return Partitionable(node, offers) if offers else None
    labels = node.metadata.labels
    is_idle = labels.get(STATE, MIG_MANAGER.success) == MIG_MANAGER.success
    is_mixed = labels.get(CAPABLE) == "true" and labels.get(STRATEGY) == "mixed"
    gpus = gpu_count(node)
    if not (is_idle and is_mixed and gpus) or node.wiring.gpus:
        return None
    table, present = mig_table(gpu_of_labels(labels)), labels.get(CONFIG)
    offers = {
        config.name: offer
        for config in configs
        if config.name != present and (offer := offer_of(config, gpus, table)) is not None
    }
    return Partitionable(node, offers)


def gpu_count(node: Node) -> int:
    """How many GPUs a node has, whatever they are partitioned into; 0 where its labels do not say."""
    text = node.metadata.labels.get(GPU_COUNT, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else 0


def offer_of(config: MigConfig, gpus: int, table: MigTable | None) -> Offer | None:
    """What a node with so many GPUs of a model offers by a config; None where that is not known, or cannot be.

    Which models a layout is for, if not for all, is written as PCI device ids, which labels of nodes do not have: it is
    taken to be for those that have its profiles, and of several the one that leaves the least of a GPU.
    """
    layout_of_gpu: dict[int, MigLayout] = {}
    for layout in sorted(config.layouts, key=lambda each: _compute_slices(each, table)):
        fits = table is not None and _fits(layout, table)
        if layout.chosen and not fits and table is not None:
            continue
        if layout.on and layout.instances and not fits:
            return None
        numbers = range(gpus) if layout.gpus is None else layout.gpus
        layout_of_gpu |= dict.fromkeys(numbers, layout)
    if sorted(layout_of_gpu) != list(range(gpus)):
        return None
    return _summed(layout_of_gpu.values())


def _fits(layout: MigLayout, table: MigTable) -> bool:
    """Whether a GPU has these instances all at once."""
    profiles = [profile for profile, number in layout.instances for _ in range(number)]
    try:
        return table.arranged(profiles) is not None
    except BadInput:
        return False


def _compute_slices(layout: MigLayout, table: MigTable | None) -> int:
    """How much of a GPU a layout for some models takes; 0 for one for all, so that those stay in their order."""
    if not layout.chosen or table is None or not _fits(layout, table):
        return 0
    return sum(table.profile(name).compute_slices * number for name, number in layout.instances)


def _summed(layouts: Iterable[MigLayout]) -> Offer:
    offer: dict[str, int] = {}
    for layout in layouts:
        of_gpu = layout.instances if layout.on else ((None, 1),)
        for profile, number in of_gpu:
            name = GPU if profile is None else resource_of(profile)
            offer[name] = offer.get(name, 0) + number
    return offer


def resource_of(profile: str) -> str:
    """The resource of a profile: `+` is not allowed in its name."""
    return INSTANCE + profile.replace("+", ".")


def with_offer(node: Node, offer: Offer) -> Node:
    """A node that offers these GPUs and instances, and that its manager has left."""
    told = {name: str(number) for name, number in offer.items()}

    def changed(amounts: dict[str, str | float]) -> dict[str, str | float]:
        return {name: each for name, each in amounts.items() if not is_of_gpus(name)} | told

    status = node.status
    return msgspec.structs.replace(
        node,
        spec=msgspec.structs.replace(node.spec, taints=taints_without(node)),
        status=msgspec.structs.replace(
            status, capacity=changed(status.capacity), allocatable=changed(status.allocatable)
        ),
    )


def offers(node: Node, offer: Offer) -> bool:
    """Whether the device plugin of a node offers all of it."""
    there = node.status.allocatable
    return all(_whole(there.get(name, 0)) >= number for name, number in offer.items())


def offers_any(node: Node, asked: frozenset[str]) -> bool:
    """Whether the device plugin of a node offers any of these resources."""
    return any(_whole(node.status.allocatable.get(name, 0)) for name in asked)


def _whole(amount: str | float) -> int:
    text = str(amount)
    return int(text) if text.isascii() and text.isdecimal() else 0


def least_change(
    nodes: Sequence[Partitionable],
    configs: Sequence[str],
    asked: frozenset[str],
    fits: Callable[[Sequence[Partitionable], str], bool],
) -> tuple[Sequence[Partitionable], str] | None:
    """The first few nodes, and the name of the config for them, with which a gang fits; None if there are none.

    asked are the resources that it asks for. The fewest nodes count, then the fewest instances that nobody asked for,
    then the order of the configs.
    """
    found: list[tuple[int, int, int]] = []
    for index, config in enumerate(configs):
        able = _able(nodes, config, asked)
        number = _fewest(able, config, fits) if able else None
        if number is not None:
            found.append((number, _surplus(able[:number], config, asked), index))
    if not found:
        return None
    number, _, index = min(found)
    config = configs[index]
    return _able(nodes, config, asked)[:number], config


def _able(
    nodes: Sequence[Partitionable], config: str, asked: frozenset[str]
) -> list[Partitionable]:
    """The nodes for which a config makes any of the resources asked for."""
    return [each for each in nodes if asked & each.offers.get(config, {}).keys()]


def _fewest(
    nodes: Sequence[Partitionable],
    config: str,
    fits: Callable[[Sequence[Partitionable], str], bool],
) -> int | None:
    """How many of the nodes are enough, found by halving; None if all are not."""
    if not fits(nodes, config):
        return None
    least, most = 1, len(nodes)
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if fits(nodes[:middle], config) else (middle + 1, most)
    return most


def _surplus(nodes: Iterable[Partitionable], config: str, asked: frozenset[str]) -> int:
    """How many instances and GPUs nobody asked for."""
    made = (pair for each in nodes for pair in each.offers[config].items())
    return sum(number for name, number in made if name not in asked)
