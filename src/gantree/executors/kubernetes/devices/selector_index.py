"""Index of the devices that a selector matches on each node: GPUs, other devices, or all GPUs of a node."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gantree.executors.kubernetes.devices.claims import (
    ClaimRequests,
    DeviceRequest,
    DeviceSelector,
    is_selected,
)
from gantree.executors.kubernetes.devices.device import NodeDevices
from gantree.executors.kubernetes.devices.slices import Pools


class Match(NamedTuple):
    """What a selector selects on a node: GPUs, other devices, all of its GPUs."""

    gpus: bool
    others: bool
    is_all_gpus: bool


@dataclass(slots=True)
class _Matches:
    """The match of each node, how many nodes have each, and the nodes whose devices have changed."""

    of_node: dict[str, Match] = field(default_factory=dict)
    count: dict[Match, int] = field(default_factory=dict)
    stale: dict[str, None] = field(default_factory=dict)


class SelectorIndex:
    """Matches of the selectors that were queried, kept up to date node by node."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._of_selector: dict[DeviceSelector, _Matches] = {}

    def update(self, nodes: Iterable[str]) -> None:
        """The devices of these nodes have changed."""
        changed = dict.fromkeys(nodes)
        for matches in self._of_selector.values():
            matches.stale |= changed

    def gpus(self, requests: ClaimRequests) -> int:
        """How many GPUs requests are for at least, of those that are counted as GPUs."""
        return sum(min(map(self._gpus_of, ways)) for _, ways in requests.requests)

    def is_any_gpu(self, request: DeviceRequest) -> bool:
        """Whether a request is for any GPUs and nothing else, and counted as such."""
        is_any = self._gpus_of(request) > 0 and not request.selector.capacity
        return is_any and all(each.is_all_gpus for each in self._matches(request.selector))

    def is_served(self, request: DeviceRequest) -> bool:
        """Whether any node has a device that matches."""
        return any(each.gpus or each.others for each in self._matches(request.selector))

    def _gpus_of(self, request: DeviceRequest) -> int:
        is_counted = not request.is_admin and not request.selector.tolerations
        matches = self._matches(request.selector)
        are_gpus = any(each.gpus for each in matches) and not any(each.others for each in matches)
        return (request.count or 0) if is_counted and are_gpus else 0

    def _matches(self, selector: DeviceSelector) -> list[Match]:
        """The matches that nodes have, each once."""
        found = self._of_selector.get(selector)
        if found is None:
            found = _Matches(stale=dict.fromkeys(self._pools.nodes()))
            self._of_selector[selector] = found
        for node in found.stale:
            before = found.of_node.pop(node, None)
            if before is not None:
                found.count[before] -= 1
            match = found.of_node[node] = match_of(selector, self._pools.of_node(node))
            found.count[match] = found.count.get(match, 0) + 1
        found.stale.clear()
        return [each for each, number in found.count.items() if number]


def match_of(selector: DeviceSelector, devices: NodeDevices) -> Match:
    """What a selector selects among the devices of a node."""
    of = [(device.is_gpu, is_selected(selector, device)) for device in devices.devices]
    return Match(
        any(is_gpu and matches for is_gpu, matches in of),
        any(matches and not is_gpu for is_gpu, matches in of),
        all(matches for is_gpu, matches in of if is_gpu),
    )
