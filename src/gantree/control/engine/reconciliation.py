"""Bringing together what the ledger believes and what really runs. Nothing is decided here.

The difference between the inventory of the cluster and the ledger becomes events; the core then does what
follows. The other way round, what the ledger wants of the cluster is said again as standing orders.
"""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.executors.inventory import Inventory
from gantree.journal.contract import Journal
from gantree.model.cluster import Cluster
from gantree.model.events import ClusterObserved, Event, GangEnded
from gantree.model.phases import Phase

EXIT_CODE_UNKNOWN = 255
"""Told for an attempt of which nothing is left that could say how it ended."""
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
    """An end for each attempt that the ledger has running and of which the cluster knows nothing at all.

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
    """Attempts (job, attempt) of which nothing is left and whose end the ledger has taken note of."""
    return tuple(
        (job, attempt)
        for (job, attempt), status in inventory.attempts.items()
        if status == "ended" and job in ledger.jobs and not _holds(ledger, job, attempt)
    )


def _holds(ledger: Ledger, job: str, attempt: int) -> bool:
    return job in ledger.holding and ledger.jobs[job].attempt <= attempt


def _should_be_there(state: JobState) -> bool:
    return state.phase in (Phase.RUNNING, Phase.SAVING)
