"""Takes lemons out of use while a daemon leads (`--cordon-lemons`).

The signs of four weeks are counted beside the decisions, by the process that answers queries. What cannot be counted
changes nothing.
"""

import asyncio
import logging

from gantree.api.backend import Backend
from gantree.api.views import node_signs_view
from gantree.control.nodes.lemon_reports import LemonReports
from gantree.model.errors import GantreeError

EVERY_S = 3600.0
AGAIN_AFTER_S = 60.0
"""After signs that could not be counted."""
ASKER = "cordon-lemons"

log = logging.getLogger(__name__)


async def cordon_lemons(backend: Backend) -> None:
    """Look for lemons at once and then every hour, until cancelled."""
    reports = LemonReports()
    while True:
        pause_s = EVERY_S
        try:
            await one_round(backend, reports)
        except GantreeError as error:
            log.warning("lemons are not known, trying again: %s", error)
            pause_s = AGAIN_AFTER_S
        except Exception:  # an observation ends no daemon
            log.exception("lemons are not known")
        await asyncio.sleep(pause_s)


async def one_round(backend: Backend, reports: LemonReports) -> None:
    """Count the signs and hand in what follows. Raises GantreeError where they cannot be counted."""
    lemons = await backend.read_forked(node_signs_view.lemons, asker=ASKER)

    def report() -> None:
        controller = backend.controller
        now, epoch = controller.clock(), controller.epoch
        for event in reports.events(lemons, controller.ledger, now, epoch):
            controller.inbox.enqueue(event)

    await backend.loop.call(report)
    backend.loop.wake()
