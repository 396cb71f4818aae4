"""Polls node_exporters for the rates of NICs while a daemon leads, as `health_poll` does for GPUs."""

import asyncio
from collections.abc import Sequence

from gantree.api.gpu_metrics.exporters import SilenceLog, answers, questions
from gantree.api.gpu_metrics.health_poll import EVERY_S
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.nodes.link_watch import LinkWatch
from gantree.telemetry.infiniband import ports_in


async def watch_links(exporters: Sequence[str], loop: Loop, controller: Controller) -> None:
    """Poll until cancelled; waits for ever without exporters. Raises AssertionError for bugs."""
    watch, silence = LinkWatch(), SilenceLog("the rate of NICs")
    while True:
        if exporters:
            await one_round(exporters, loop, controller, watch, silence)
        await asyncio.sleep(EVERY_S)


async def one_round(
    exporters: Sequence[str],
    loop: Loop,
    controller: Controller,
    watch: LinkWatch,
    silence: SilenceLog,
) -> None:
    """Ask about all nodes with NICs once, and hand in what follows."""
    nodes = await loop.call(lambda: _nodes_with_nics(controller))
    asked = questions(exporters, nodes, ports_in)
    told, silent = await asyncio.to_thread(answers, asked, nodes)
    silence.say(silent)

    def look() -> None:
        for event in watch.update(told, controller.ledger, controller.clock(), controller.epoch):
            controller.inbox.enqueue(event)

    await loop.call(look)


def _nodes_with_nics(controller: Controller) -> tuple[str, ...]:
    fabric = controller.ledger.fabric
    if fabric is None:
        return ()
    return tuple(
        node.name for index, node in enumerate(fabric.nodes) if fabric.machine_of_node(index).nics
    )
