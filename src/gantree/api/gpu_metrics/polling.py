"""Polls sources for the health of GPUs, of NICs and of up-links while a daemon leads.

It runs beside everything else and nobody waits for it: what does not answer is not heard, which changes nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gantree.api.gpu_metrics.exporters import SilenceLog, Told, answers, questions
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.nodes.gpu_link_watch import GpuLinks
from gantree.control.nodes.health_watch import HealthWatch
from gantree.control.nodes.link_reports import Judgements
from gantree.control.nodes.load_watch import LoadWatch
from gantree.control.nodes.nic_watch import NicWatch
from gantree.control.nodes.uplink_watch import UplinkWatch
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import Machine
from gantree.model.events import Event
from gantree.telemetry.dcgm_health import signs_in
from gantree.telemetry.fabric_ports import uplinks_in
from gantree.telemetry.infiniband import ports_in
from gantree.telemetry.link_load import loads_in
from gantree.topology.fabric.fabric import Fabric

EVERY_S = 15.0


class Watch(Protocol):
    """Judges the readings of the nodes that answered."""

    def update(
        self, told: Mapping[str, Any], ledger: Ledger, now: float, epoch: int
    ) -> Sequence[Event]:
        """The events that follow; now is in seconds."""


class LinkWatch(Protocol):
    """Judges what readings say of links, on any thread, and makes events of it on the thread that decides."""

    def judge(self, told: Mapping[str, Any], fabric: Fabric, now: float) -> Judgements:
        """What the readings say; now is in seconds."""

    def events(
        self, judgements: Judgements, ledger: Ledger, now: float, epoch: int
    ) -> Sequence[Event]:
        """The events that follow."""


@dataclass(slots=True)
class Poll:
    """What is asked of which machines: read parses an exporter's text, links and watches judge what all of them told.

    by_node: readings are by the name of a node; those of other nodes are passed over.
    """

    what: str
    read: Callable[[str], Told[Any, Any]]
    concerns: Callable[[Machine], bool]
    links: LinkWatch
    watches: tuple[Watch, ...] = ()
    by_node: bool = True
    silence: SilenceLog = field(init=False)

    def __post_init__(self) -> None:
        self.silence = SilenceLog(self.what)


def gpu_poll(*, is_exact: bool = True) -> Poll:
    """The health of GPUs and of their links, from DCGM exporters; is_exact as `HealthWatch` has it."""
    return Poll(
        "the health of GPUs",
        signs_in,
        lambda machine: bool(machine.gpus),
        GpuLinks(),
        (HealthWatch(is_exact=is_exact),),
    )


def nic_poll() -> Poll:
    """The rates of NICs, from node_exporters."""
    return Poll("the rate of NICs", ports_in, lambda machine: bool(machine.nics), NicWatch())


def fabric_poll() -> Poll:
    """The up-links of domains, from what manages the fabric."""
    return Poll("the ports of the fabric", uplinks_in, lambda machine: True, UplinkWatch())


def load_poll() -> Poll:
    """The load of links, from a Prometheus."""
    return Poll("the load of links", loads_in, lambda machine: True, LoadWatch(), by_node=False)


class Sources(Protocol):
    """Addresses of sources, as `Settings` has them."""

    @property
    def gpu_metrics(self) -> tuple[str, ...]:
        """DCGM exporters."""

    @property
    def node_metrics(self) -> tuple[str, ...]:
        """node_exporters."""

    @property
    def fabric_ports(self) -> tuple[str, ...]:
        """What has the ports of the fabric."""

    @property
    def link_load(self) -> tuple[str, ...]:
        """What has the load of links."""


async def poll_all(sources: Sources, loop: Loop, controller: Controller, *, is_exact: bool) -> None:
    """Poll all kinds of sources until cancelled; is_exact as of `gpu_poll`. Raises AssertionError for bugs."""
    kinds = (
        (gpu_poll(is_exact=is_exact), sources.gpu_metrics),
        (nic_poll(), sources.node_metrics),
        (fabric_poll(), sources.fabric_ports),
        (load_poll(), sources.link_load),
    )
    await asyncio.gather(*(poll_forever(*kind, loop, controller) for kind in kinds))


async def poll_forever(
    poll: Poll, exporters: Sequence[str], loop: Loop, controller: Controller
) -> None:
    """Poll until cancelled, also without exporters. Raises AssertionError for bugs."""
    while True:
        if exporters:
            await one_round(poll, exporters, loop, controller)
        await asyncio.sleep(EVERY_S)


async def one_round(
    poll: Poll, exporters: Sequence[str], loop: Loop, controller: Controller
) -> None:
    """Ask about all nodes that are concerned once, and hand in what follows.

    A large site takes seconds, beside the thread that decides; that one only compares what is not whole.
    """
    fabric = await loop.call(lambda: controller.ledger.fabric)
    if fabric is None:
        return
    nodes = _nodes(poll, fabric)
    asked = questions(exporters, nodes, poll.read)
    told, silent = await asyncio.to_thread(answers, asked, nodes if poll.by_node else None)
    poll.silence.say(silent)
    now = await loop.call(controller.clock)
    judgements = await asyncio.to_thread(poll.links.judge, told, fabric, now)

    def look() -> None:
        ledger, epoch = controller.ledger, controller.epoch
        found = [
            event for watch in poll.watches for event in watch.update(told, ledger, now, epoch)
        ]
        for event in (*found, *poll.links.events(judgements, ledger, now, epoch)):
            controller.inbox.enqueue(event)

    await loop.call(look)


def _nodes(poll: Poll, fabric: Fabric) -> tuple[str, ...]:
    return tuple(
        node.name
        for index, node in enumerate(fabric.nodes)
        if poll.concerns(fabric.machine_of_node(index))
    )
