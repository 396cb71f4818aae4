"""The GPU Operator's MIG manager on all nodes, as far as a scheduler meets it: labels, and what device plugins offer.

What it does is what upstream's does (github.com/NVIDIA/mig-parted, `cmd/nvidia-mig-manager`, `pkg/mig/reconfigure`,
read, not run): when the label `nvidia.com/mig.config` of a node has another value than before, the label
`nvidia.com/mig.config.state` becomes `pending`, `rebooting` if the node has to reboot, and `success` or `failed` in the
end. A GPU that a pod has fails it. After success the device plugin starts again and offers the new resources.
"""

import asyncio
from collections.abc import Mapping

from gantree.executors.kubernetes.nodes.mig_layouts import is_of_gpus
from gantree.executors.kubernetes.nodes.partition_managers import CONFIG, STATE
from support.kubernetes.client import MERGE, STRATEGIC, Client, path_of
from support.kubernetes.controllers.follower import Follower
from support.kubernetes.server.statuses import Json

Offers = Mapping[str, Mapping[str, int]]
"""What a node offers by each config."""


class MigManager(Follower):
    """From the beginning of a block to its end.

    offers: the configs that it knows. answer: what becomes of each, "success", "failed" or "never"; reboots: in between
    the node is said to reboot. asked are the (node, config) of all changes, said the (node, state) of all answers. It
    goes on from `pending` once `may_go_on` is set, and the device plugin offers the new resources once `plugin_starts`
    is.
    """

    config, state = CONFIG, STATE

    def __init__(
        self, client: Client, offers: Offers, answer: str = "success", *, reboots: bool = False
    ) -> None:
        super().__init__()
        self.client, self.offers, self.answer, self.reboots = client, offers, answer, reboots
        self.asked: list[tuple[str, str]] = []
        self.said: list[tuple[str, str]] = []
        self.may_go_on, self.plugin_starts = asyncio.Event(), asyncio.Event()
        self.may_go_on.set()
        self.plugin_starts.set()
        self._config_of_node: dict[str, str] = {}

    async def begin(self) -> None:
        """Follow the nodes."""
        self.run(self._follow())

    async def _follow(self) -> None:
        async for kind, node in self.client.follow(path_of("v1", "nodes"), {}):
            labels, name = node["metadata"].get("labels") or {}, node["metadata"]["name"]
            self.see(node)
            before, config = self._config_of_node.get(name), labels.get(self.config, "")
            self._config_of_node[name] = config
            if kind == "DELETED" or before is None or config in ("", before):
                continue
            self.asked.append((name, config))
            if self.answer != "never":
                self.run(self._apply(name, config))

    def see(self, node: Json) -> None:
        """Take note of a node that changed."""

    async def _apply(self, node: str, config: str) -> None:
        await self._say(node, "pending")
        await self.may_go_on.wait()
        if self.reboots:
            await self._say(node, "rebooting")
        if self.answer == "failed" or config not in self.offers or await self._is_in_use(node):
            await self._say(node, "failed")
            return
        await self._offer(node, {name: 0 for offer in self.offers.values() for name in offer})
        await self._say(node, "success")
        await self.plugin_starts.wait()
        await self._offer(node, self.offers[config])

    async def _say(self, node: str, state: str) -> None:
        self.said.append((node, state))
        body = {"metadata": {"labels": {self.state: state}}}
        await self.client.insist("PATCH", path_of("v1", "nodes", name=node), body, MERGE)

    async def _offer(self, node: str, offer: Mapping[str, int]) -> None:
        amounts = {name: str(number) for name, number in offer.items()}
        body = {"status": {"allocatable": amounts, "capacity": amounts}}
        path = f"{path_of('v1', 'nodes', name=node)}/status"
        await self.client.insist("PATCH", path, body, STRATEGIC)

    async def _is_in_use(self, node: str) -> bool:
        """Whether a pod there that has not ended has GPUs."""
        found = (await self.client.insist("GET", path_of("v1", "pods"))).content["items"]
        there = [each for each in found if each["spec"].get("nodeName") == node]
        return any(_has_gpus(each) for each in there)


def _has_gpus(pod: Json) -> bool:
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        return False
    limits = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
    return any(is_of_gpus(name) for each in limits for name in each)
