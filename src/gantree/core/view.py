"""The read-only view of the ledger for executors, as values of the model.

It holds all that an executor needs beside its orders: jobs, placements that are claimed, start orders, why a job waits,
why a gang stays on an unhealthy node, and the site on record. Executors import nothing else of the core, and a view
writes nothing. A view is of one ledger: control makes a new one for each call, as the ledger may have been rebuilt.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gantree.core.cycle.drain import why_staying
from gantree.core.explain.explain import brief_reason, needs_more_nodes
from gantree.core.explain.nodes import kept_in_words
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle import launch
from gantree.model.cluster import Cluster
from gantree.model.jobs import Job
from gantree.model.orders import StartGang
from gantree.model.phases import ENDED, Phase, StopCause
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Gate


@dataclass(frozen=True, slots=True)
class JobView:
    """One job. spec is the job as submitted, present the job at the size of its placement.

    missing are the members of the attempt, by number, that have no process; replacing those of them that have a
    placement to restart on. replacements counts how often each member was replaced, by number; others are absent.
    scaled: its number of members was set by a request. reason says why it has ended, or what it was stopped for last.
    priority is a number, larger first.
    """

    job: str
    spec: Job
    present: Job
    phase: Phase
    attempt: int
    placement: Placement | None
    held: bool
    held_for: str
    scaled: bool
    failures: int
    started_at: float | None
    stop_cause: StopCause | None
    reason: str
    missing: tuple[int, ...]
    replacing: tuple[int, ...]
    replacements: Mapping[int, int]
    priority: int

    @property
    def leaving(self) -> bool:
        """Whether the attempt saves or stops."""
        return self.phase in (Phase.SAVING, Phase.STOPPING)


@dataclass(frozen=True, slots=True)
class LedgerView:
    """Decisions about jobs; `site` has those about nodes."""

    _ledger: Ledger

    @property
    def site(self) -> "SiteView":
        """The site on record."""
        return SiteView(self._ledger)

    def job(self, job: str) -> JobView | None:
        """Return an accepted job; None for an unknown or rejected one."""
        found = self._ledger.jobs.get(job)
        return None if found is None else _job(found)

    def is_over(self, job: str) -> bool:
        """Return whether a job was accepted and has ended."""
        found = self._ledger.jobs.get(job)
        return found is not None and found.phase in ENDED

    def open_jobs(self) -> Iterator[JobView]:
        """Yield all jobs that have not ended."""
        return (_job(each) for each in self._ledger.jobs.values() if each.phase not in ENDED)

    def ended_jobs(self) -> Iterator[JobView]:
        """Yield all jobs that have ended and are not forgotten, in the order in which they came."""
        return (_job(each) for each in self._ledger.jobs.values() if each.phase in ENDED)

    def placed_jobs(self) -> Iterator[JobView]:
        """Yield the placed jobs."""
        return map(_job, self._ledger.holding.values())

    def rejection(self, job: str) -> str | None:
        """Return why a job was rejected; None if it was not."""
        return self._ledger.rejected.get(job)

    def claimed_placement(self, job: str) -> Placement | None:
        """Return the claimed placement of a job that waits until others have left it."""
        claim = self._ledger.claims.get(job)
        return None if claim is None else claim.placement

    def claimed_placements(self) -> dict[str, Placement]:
        """Return all claimed placements, by job."""
        return {job: claim.placement for job, claim in self._ledger.claims.items()}

    def held_placements(self) -> list[Placement]:
        """Return the placements that are claimed or reserved for jobs that wait."""
        reserved = (each.placement for each in self._ledger.reservations.values())
        return [*self.claimed_placements().values(), *reserved]

    def start_order(self, job: str) -> StartGang:
        """Return the order that starts the current attempt of a placed job."""
        return launch.start_order(self._ledger.jobs[job])

    def why_waiting(self, job: str, now: float) -> tuple[str, Gate | None] | None:
        """Return why a job is pending: a sentence, and the gate that refuses it, if any. None for other jobs."""
        found = self._ledger.jobs.get(job)
        if found is None or found.placement is not None or found.ended_at is not None:
            return None
        return brief_reason(self._ledger, found, now)

    def needs_more_nodes(self, job: str, now: float) -> bool:
        """Return whether the queue of a pending job admits it, and not even the empty site has room for it."""
        found = self._ledger.jobs.get(job)
        return found is not None and needs_more_nodes(self._ledger, found, now)

    def why_not_drained(self, job: str, now: float) -> str:
        """Return why a placed job stays on an unhealthy node, as the end of a sentence; "" if it moves when it can."""
        return why_staying(self._ledger, self._ledger.jobs[job], now)


@dataclass(frozen=True, slots=True)
class SiteView:
    """Decisions about nodes, and the holdings of foreign holders."""

    _ledger: Ledger

    @property
    def description(self) -> Cluster | None:
        """The cluster as last observed; None before that."""
        return self._ledger.site.described

    @property
    def version(self) -> int:
        """A version that grows with every change of a cordon, a label or a node's health."""
        return self._ledger.site.version

    def has_node(self, node: str) -> bool:
        """Return whether a node is part of the cluster."""
        fabric = self._ledger.fabric
        return fabric is not None and node in fabric.index_of_node

    def is_lost(self, node: str) -> bool:
        """Return whether a node is lost."""
        return node in self._ledger.unusable

    def cordon_reason(self, node: str) -> str | None:
        """Return why a node is cordoned; None if it is not."""
        cordon = self._ledger.site.asked.get(node)
        return None if cordon is None else cordon.reason

    def health_reason(self, node: str, source: str) -> str:
        """Return the fault of a node that a source reported; "" for none."""
        illness = self._ledger.site.unwell.get(node, {}).get(source)
        return "" if illness is None else illness.reason

    def has_lost_gpu(self, node: str, source: str) -> bool:
        """Return whether a source reported that a GPU of a node is lost."""
        illness = self._ledger.site.unwell.get(node, {}).get(source)
        return illness is not None and illness.lost_gpus is not None

    def unhealthy_nodes(self) -> dict[str, str]:
        """Return the fault of each node on which nothing new starts because of it."""
        cordons = self._ledger.site.cordoned.items()
        return {node: cordon.unwell for node, cordon in cordons if cordon.unwell}

    def kept_nodes(self) -> dict[str, str]:
        """Return the fault of each unhealthy node that stays in use, with the reason why it does."""
        site = self._ledger.site
        found = ((node, one) for node in site.unwell for one in site.kept_in_use(node))
        return {node: f"{one.reason}, {kept_in_words(node, one.kept)}" for node, one in found}

    def foreign_holders(self) -> Mapping[str, tuple[MemberPlacement, ...]]:
        """Return the holdings of foreign holders."""
        return self._ledger.site.others


def _job(found: JobState) -> JobView:
    return JobView(
        job=found.job,
        spec=found.spec,
        present=found.present,
        phase=found.phase,
        attempt=found.attempt,
        placement=found.placement,
        held=found.held,
        held_for=found.held_for,
        scaled=found.scaled,
        failures=found.failures,
        started_at=found.started_at,
        stop_cause=found.stop_cause,
        reason=found.reason,
        missing=tuple(gap.member for gap in found.missing),
        replacing=tuple(gap.member for gap in found.missing if gap.placed),
        replacements=dict(found.lives),
        priority=found.priority,
    )
