"""Polls exporters for the health of GPUs while a daemon leads.

It runs beside everything else and nobody waits for it: what does not answer is not heard, which changes nothing.
"""

import asyncio
from collections.abc import Sequence

from gantree.api.gpu_metrics.exporters import SilenceLog, answers, questions
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.nodes.health_watch import HealthWatch
from gantree.telemetry.dcgm_health import signs_in

EVERY_S = 15.0


async def watch_health(exporters: Sequence[str], loop: Loop, controller: Controller) -> None:
    """Poll until cancelled; returns at once without exporters. Raises AssertionError for bugs."""
    watch, silence = HealthWatch(), SilenceLog("the health of GPUs")
    while True:
        if exporters:
            await one_round(exporters, loop, controller, watch, silence)
        await asyncio.sleep(EVERY_S)


async def one_round(
    exporters: Sequence[str],
    loop: Loop,
    controller: Controller,
    watch: HealthWatch,
    silence: SilenceLog,
) -> None:
    """Ask about all nodes with GPUs once, and hand in what follows."""
    nodes = await loop.call(lambda: _nodes_with_gpus(controller))
    asked = questions(exporters, nodes, signs_in)
    told, silent = await asyncio.to_thread(answers, asked, nodes)
    silence.say(silent)

    def look() -> None:
        for event in watch.update(told, controller.ledger, controller.clock(), controller.epoch):
            controller.inbox.enqueue(event)

    await loop.call(look)


def _nodes_with_gpus(controller: Controller) -> tuple[str, ...]:
    fabric = controller.ledger.fabric
    if fabric is None:
        return ()
    return tuple(
        node.name for index, node in enumerate(fabric.nodes) if fabric.machine_of_node(index).gpus
    )
