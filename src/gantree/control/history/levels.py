"""How many GPUs each key has now, and for what, of the ledger: where counting goes on after a restart."""

from gantree.accounting.meter import WAITING, Level, Levels
from gantree.accounting.usage import CountedTo, UsageKey
from gantree.control.history.gangs import gang_of
from gantree.control.history.site_use import site_levels
from gantree.control.history.waiting import waiting_of
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState


def levels_of(ledger: Ledger, counted: CountedTo, now: float) -> Levels:
    """The levels at a moment, each with up to when it is counted; where nothing was ever counted, from now on."""
    levels: Levels = {}

    def level(key: UsageKey) -> Level:
        since = max(counted.all_to, counted.of_key.get(key, 0.0)) or now
        return levels.setdefault(key, Level(since))

    for key, amounts in site_levels(ledger).items():
        for column, gpus in amounts.items():
            level(key).add(column, gpus)
    for state in ledger.holding.values():
        for key, amounts in gang_of(state).now:
            for column, amount in amounts.items():
                level(key).add(column, amount)
    for key, jobs in waiting_of(ledger).items():
        level(key).add(WAITING, jobs)
    return levels


def held_s(state: JobState) -> float:
    """For how long a job that was never placed was held back, without the time since it is held now."""
    metered_at = state.metered.metered_at
    if metered_at is None:
        return 0.0
    return max(0.0, metered_at - state.submitted_at - state.metered.waited_s)
