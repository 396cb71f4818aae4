"""Reconciles the ledger with the inventory of the cluster. Nothing is decided here.

A difference between inventory and ledger becomes an event, about which the core decides. What the ledger wants of the
cluster is sent again as standing orders.
"""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.executors.inventory import Inventory
from gantree.journal.contract import Journal
from gantree.model.cluster import Cluster
from gantree.model.events import ClusterObserved, Event, GangEnded
from gantree.model.phases import Phase

EXIT_CODE_UNKNOWN = 255
"""Reported for an attempt of which no trace says how it ended."""
PAGE = 256


def site_on_record(journal: Journal, ledger: Ledger) -> Cluster | None:
    """The site as last observed, whether or not a turn has come to it yet; None before the first time."""
    site = ledger.site.described
    seq = journal.cursor()
    while page := journal.read_inbox(seq, PAGE):
        for entry in page:
            if isinstance(entry.event, ClusterObserved):
                site = entry.event.cluster
        seq = page[-1].seq
    return site


def vanished(ledger: Ledger, inventory: Inventory, now: float) -> tuple[Event, ...]:
    """An end for each attempt that runs by the ledger and is unknown to the cluster.

    An attempt that is only being started may not have reached the cluster yet, and one that is being stopped
    gets its end from the cluster once it is told again; neither is concluded here.
    """
    return tuple(
        GangEnded(
            id=f"{state.job}/{state.attempt}/vanished",
            observed_at=now,
            job=state.job,
            attempt=state.attempt,
            exit_code=EXIT_CODE_UNKNOWN,
        )
        for state in ledger.holding.values()
        if _should_be_there(state) and inventory.status(state.job, state.attempt) == "absent"
    )


def to_settle(ledger: Ledger, inventory: Inventory) -> tuple[tuple[str, int], ...]:
    """Attempts (job, attempt) that are gone from the cluster and whose end is in the ledger."""
    return tuple(
        (job, attempt)
        for (job, attempt), status in inventory.attempts.items()
        if status == "ended" and job in ledger.jobs and not _holds(ledger, job, attempt)
    )


def _holds(ledger: Ledger, job: str, attempt: int) -> bool:
    return job in ledger.holding and ledger.jobs[job].attempt <= attempt


def _should_be_there(state: JobState) -> bool:
    return state.phase in (Phase.RUNNING, Phase.SAVING)
