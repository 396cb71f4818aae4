"""AMD's device config manager on all nodes, with the device plugin of its operator, as far as a scheduler meets them.

What it does is what upstream's does (github.com/ROCm/device-config-manager, read, not run): when the label
`dcm.amd.com/gpu-config-profile` of a node has another value than before, it divides the GPUs and sets the label
`dcm.amd.com/gpu-config-profile-state` to `success` or `failure`; after a failure it tries again. While pods of the
operator are on the node, which the taint `amd-dcm` drives off, GPUs are busy. The device plugin lists resources when it
starts: after the taint is gone.
"""

import asyncio
from typing import Any

from gantree.executors.kubernetes.nodes.partition_managers import DCM
from support.kubernetes.client import Client
from support.kubernetes.controllers.mig_manager import MigManager, Offers
from support.kubernetes.server.statuses import Json


class DeviceConfigManager(MigManager):
    """As MigManager. answer: "success", "failure", "never", or "busy": the first try fails, and the
    second one comes when `tries_again` is set.

    tainted has the nodes that had the taint when they were changed.
    """

    config, state = DCM.config, DCM.state

    def __init__(
        self, client: Client, offers: Offers, answer: str = "success", **told: Any
    ) -> None:
        super().__init__(client, offers, answer, **told)
        self.tainted: set[str] = set()
        self.tries_again = asyncio.Event()
        self.tries_again.set()
        self._has_taint: dict[str, bool] = {}
        self._changed = asyncio.Event()

    def see(self, node: Json) -> None:
        """Take note of the taints of a node."""
        taints = node["spec"].get("taints") or []
        name = node["metadata"]["name"]
        self._has_taint[name] = any(each["key"] == "amd-dcm" for each in taints)
        self._changed.set()

    async def _apply(self, node: str, config: str) -> None:
        await self.may_go_on.wait()
        is_refused = self.answer == "failure" or config not in self.offers
        if self.answer == "busy":
            await self._say(node, "failure")
            await self.tries_again.wait()
        if is_refused or await self._is_in_use(node) or not self._has_taint[node]:
            await self._say(node, "failure")
            return
        self.tainted.add(node)
        await self._offer(node, {name: 0 for offer in self.offers.values() for name in offer})
        await self._say(node, "success")
        while self._has_taint[node]:
            self._changed.clear()
            await self._changed.wait()
        await self._offer(node, self.offers[config])
