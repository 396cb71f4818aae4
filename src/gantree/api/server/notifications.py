"""Runs the notifier of a daemon while it leads."""

from gantree.api.server.recovery import DaemonParts
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.notifications.messages import spec_of
from gantree.core.ledger.accounts.budgets import BudgetKey
from gantree.journal.notification_store import NotificationStore
from gantree.model.jobs import Job, Notify


async def notify_users(daemon: DaemonParts, loop: Loop, controller: Controller) -> None:
    """Run until cancelled; returns at once where notifications are off."""
    if not daemon.settings.notify.is_on:
        return
    # httpx takes long to import
    from gantree.control.notifications.delivery import Sender  # noqa: PLC0415 - see above
    from gantree.control.notifications.notifier import Notifier  # noqa: PLC0415 - see above

    async def live_spec(job: str) -> Job | None:
        return await loop.call(lambda: spec_of(controller.ledger, job))

    async def budget_notify(queue: str, period: str) -> Notify | None:
        key = BudgetKey(queue, period)
        budget = await loop.call(lambda: controller.ledger.accounts.budgets.of_key.get(key))
        return None if budget is None else budget.notify

    journal = daemon.location.journal
    sender = Sender(daemon.settings.notify)
    store = NotificationStore(journal.database)
    await Notifier(journal, store, sender, daemon.metrics, live_spec, budget_notify).run()
