"""Polls sources for the health of GPUs, of NICs and of up-links while a daemon leads.

It runs beside everything else and nobody waits for it: what does not answer is not heard, which changes nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from socket import gethostname
from typing import Any, Protocol

from gantree.api.gpu_metrics.exporters import SilenceLog, Told, answers, questions
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.nodes.clock_watch import ClockWatch
from gantree.control.nodes.gpu_use_watch import GpuUseWatch
from gantree.control.nodes.health_watch import HealthWatch
from gantree.control.nodes.idle_watch import IdleWatch
from gantree.control.nodes.links.gpu_link_watch import NVML, GpuLinks
from gantree.control.nodes.links.load_watch import LoadWatch
from gantree.control.nodes.links.nic_watch import NicWatch
from gantree.control.nodes.links.uplink_watch import UplinkWatch
from gantree.control.nodes.nic_traffic import NicTraffic
from gantree.control.services.gpu_use import ReplicaGpuUse
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import Machine
from gantree.model.events import Event
from gantree.telemetry.dcgm.health import signs_in
from gantree.telemetry.fabric_ports import uplinks_in
from gantree.telemetry.infiniband import ports_in
from gantree.telemetry.link_load import loads_in
from gantree.telemetry.nvml.activity import activity_here, has_driver
from gantree.telemetry.nvml.links import links_here
from gantree.topology.fabric.fabric import Fabric

EVERY_S = 15.0


class Watch(Protocol):
    """Judges the readings of the nodes that answered."""

    def update(
        self, told: Mapping[str, Any], ledger: Ledger, now: float, epoch: int
    ) -> Sequence[Event]:
        """The events that follow; now is in seconds."""


class Judge(Protocol):
    """Judges what readings say on any thread, and makes events of it on the thread that decides."""

    def judge(self, told: Mapping[str, Any], fabric: Fabric, now: float) -> Any:
        """What the readings say; now is in seconds."""

    def events(self, judged: Any, ledger: Ledger, now: float, epoch: int) -> Sequence[Event]:
        """The events that follow from what `judge` found."""


@dataclass(slots=True)
class Poll:
    """What is asked of which machines: read parses an exporter's text, judges and watches judge what all of them told.

    by_node: readings are by the name of a node; those of other nodes are passed over.
    """

    what: str
    read: Callable[[str], Told[Any, Any]]
    concerns: Callable[[Machine], bool]
    judges: tuple[Judge, ...]
    watches: tuple[Watch, ...] = ()
    by_node: bool = True
    silence: SilenceLog = field(init=False)

    def __post_init__(self) -> None:
        self.silence = SilenceLog(self.what)


def gpu_poll(
    *,
    is_exact: bool = True,
    clocks: ClockWatch | None = None,
    nics: NicTraffic | None = None,
    replicas: ReplicaGpuUse | None = None,
) -> Poll:
    """The health and the use of GPUs and of their links, from DCGM exporters; is_exact as `HealthWatch` has it.

    clocks follows the clocks of gangs' GPUs, nics has what gangs sent, replicas the use of GPUs of services; None: one
    of its own.
    """
    clocks = clocks or ClockWatch()
    clocks.is_exact = is_exact
    return Poll(
        "the health of GPUs",
        signs_in,
        lambda machine: bool(machine.gpus),
        (
            HealthWatch(is_exact=is_exact),
            GpuLinks(),
            GpuUseWatch(is_exact=is_exact, nics=nics or NicTraffic()),
            IdleWatch(is_exact=is_exact),
            clocks,
            replicas or ReplicaGpuUse(),
        ),
    )


def nic_poll(traffic: NicTraffic | None = None) -> Poll:
    """The rates of NICs and what they send, from node_exporters; traffic counts that, None: one of its own."""
    judges = (NicWatch(), traffic or NicTraffic())
    return Poll("the rate of NICs", ports_in, lambda machine: bool(machine.nics), judges)


def fabric_poll() -> Poll:
    """The up-links of domains, from what manages the fabric."""
    return Poll("the ports of the fabric", uplinks_in, lambda machine: True, (UplinkWatch(),))


def load_poll() -> Poll:
    """The load of links, from a Prometheus."""
    return Poll("the load of links", loads_in, lambda machine: True, (LoadWatch(),), by_node=False)


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


async def poll_all(
    sources: Sources,
    loop: Loop,
    controller: Controller,
    replicas: ReplicaGpuUse,
    *,
    is_exact: bool,
) -> None:
    """Poll all kinds of sources until cancelled; the rest as of `gpu_poll`. Raises AssertionError for bugs."""
    nics = NicTraffic()
    gpus = gpu_poll(is_exact=is_exact, clocks=controller.gpu_clocks, nics=nics, replicas=replicas)
    kinds = (
        (gpus, sources.gpu_metrics),
        (nic_poll(nics), sources.node_metrics),
        (fabric_poll(), sources.fabric_ports),
        (load_poll(), sources.link_load),
    )
    polls = [poll_forever(*kind, loop, controller) for kind in kinds]
    if not sources.gpu_metrics:
        polls.append(poll_here(loop, controller, nics, replicas))
    await asyncio.gather(*polls)


async def poll_here(
    loop: Loop,
    controller: Controller,
    nics: NicTraffic | None = None,
    replicas: ReplicaGpuUse | None = None,
) -> None:
    """Ask the driver of this machine what its GPUs do, and how their links are, if it is a node and has a driver.

    Until cancelled. nics and replicas as of `gpu_poll`.
    """
    host = gethostname()
    judges = (
        GpuUseWatch(nics=nics or NicTraffic()),
        IdleWatch(),
        GpuLinks(source=NVML),
        replicas or ReplicaGpuUse(),
    )
    poll = Poll("the use of GPUs", signs_in, lambda machine: bool(machine.gpus), judges)
    asked = {f"the driver of {host}": lambda: {host: _figures_here()}}
    if not await asyncio.to_thread(has_driver):
        return
    while True:
        await asyncio.sleep(EVERY_S)
        fabric = await loop.call(lambda: controller.ledger.fabric)
        if fabric is not None and host in fabric.index_of_node:
            await _hear(poll, asked, fabric, loop, controller)


def _figures_here() -> dict[int, dict[str, float]]:
    links = links_here()
    return {gpu: {**links.get(gpu, {}), **told} for gpu, told in activity_here().items()}


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
    await _hear(poll, questions(exporters, nodes, poll.read), fabric, loop, controller)


async def _hear(
    poll: Poll,
    asked: Mapping[str, Callable[[], Told[Any, Any]]],
    fabric: Fabric,
    loop: Loop,
    controller: Controller,
) -> None:
    """Ask, have the answers judged, and hand in what follows."""
    known = _nodes(poll, fabric) if poll.by_node else None
    told, silent = await asyncio.to_thread(answers, asked, known)
    poll.silence.say(silent)
    now = await loop.call(controller.clock)
    judged = await asyncio.to_thread(
        lambda: [(judge, judge.judge(told, fabric, now)) for judge in poll.judges]
    )

    def look() -> None:
        ledger, epoch = controller.ledger, controller.epoch
        found = [
            event for watch in poll.watches for event in watch.update(told, ledger, now, epoch)
        ]
        for judge, what in judged:
            found += judge.events(what, ledger, now, epoch)
        for event in found:
            controller.inbox.enqueue(event)

    await loop.call(look)


def _nodes(poll: Poll, fabric: Fabric) -> tuple[str, ...]:
    return tuple(
        node.name
        for index, node in enumerate(fabric.nodes)
        if poll.concerns(fabric.machine_of_node(index))
    )
