"""The read-only view of the ledger for executors, as values of the model.

It holds all that an executor needs beside its orders: jobs, placements that are claimed, start orders, why a job waits,
why a gang stays on an unhealthy node, and the site on record. Executors import nothing else of the core, and a view
writes nothing. A view is of one ledger: control makes a new one for each call, as the ledger may have been rebuilt.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gantree.core.cycle.drain import stays_because
from gantree.core.explain.explain import brief_reason
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
    """One job as it was decided. spec is the job as written, present the job at the size of its placement.

    missing are the members of the attempt, by number, that have no process; replacing those of them that have a place
    to start anew. replacements counts how often each member was replaced, by number; one that never was is not in it.
    scaled: somebody has said how many members it is to have.
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
    missing: tuple[int, ...]
    replacing: tuple[int, ...]
    replacements: Mapping[int, int]

    @property
    def leaving(self) -> bool:
        """Whether the attempt saves or stops."""
        return self.phase in (Phase.SAVING, Phase.STOPPING)


@dataclass(frozen=True, slots=True)
class LedgerView:
    """The decisions about jobs; `site` has those about nodes."""

    _ledger: Ledger

    @property
    def site(self) -> "SiteView":
        """The site on record."""
        return SiteView(self._ledger)

    def job(self, job: str) -> JobView | None:
        """A job that was accepted; None for one that is unknown or was rejected."""
        found = self._ledger.jobs.get(job)
        return None if found is None else _job(found)

    def open_jobs(self) -> Iterator[JobView]:
        """All jobs that have not ended."""
        return (_job(each) for each in self._ledger.jobs.values() if each.phase not in ENDED)

    def placed_jobs(self) -> Iterator[JobView]:
        """The jobs that hold a placement."""
        return map(_job, self._ledger.holding.values())

    def rejection(self, job: str) -> str | None:
        """Why a job was rejected; None if it was not."""
        return self._ledger.rejected.get(job)

    def claimed_placement(self, job: str) -> Placement | None:
        """The placement that is claimed for a job which waits until others have left it."""
        claim = self._ledger.claims.get(job)
        return None if claim is None else claim.placement

    def claimed_placements(self) -> dict[str, Placement]:
        """All placements that are claimed, by job."""
        return {job: claim.placement for job, claim in self._ledger.claims.items()}

    def start_order(self, job: str) -> StartGang:
        """The order that starts the current attempt of a placed job."""
        return launch.start_order(self._ledger.jobs[job])

    def why_waiting(self, job: str, now: float) -> tuple[str, Gate | None] | None:
        """Why a job waits: a sentence, and the gate that refuses it, if one does. None for one that does not wait."""
        found = self._ledger.jobs.get(job)
        if found is None or found.placement is not None or found.ended_at is not None:
            return None
        return brief_reason(self._ledger, found, now)

    def why_not_drained(self, job: str, now: float) -> str:
        """Why a placed job stays on an unhealthy node, to end a sentence; "" if it leaves as soon as it has a place."""
        return stays_because(self._ledger, self._ledger.jobs[job], now)


@dataclass(frozen=True, slots=True)
class SiteView:
    """The decisions about nodes, and what others hold on them."""

    _ledger: Ledger

    @property
    def description(self) -> Cluster | None:
        """The cluster as it was observed last; None before that."""
        return self._ledger.site.described

    @property
    def version(self) -> int:
        """Grows with every change of a cordon, a label or a node's health."""
        return self._ledger.site.version

    def has_node(self, node: str) -> bool:
        """Whether a node is part of the cluster on record."""
        fabric = self._ledger.fabric
        return fabric is not None and node in fabric.index_of_node

    def is_lost(self, node: str) -> bool:
        """Whether a node is on record as lost."""
        return node in self._ledger.unusable

    def cordon_reason(self, node: str) -> str | None:
        """Why somebody cordoned a node; None if nobody did."""
        cordon = self._ledger.site.asked.get(node)
        return None if cordon is None else cordon.reason

    def health_reason(self, node: str, source: str) -> str:
        """What a source has reported to be wrong with a node; "" for nothing."""
        illness = self._ledger.site.unwell.get(node, {}).get(source)
        return "" if illness is None else illness.reason

    def unhealthy_nodes(self) -> dict[str, str]:
        """What is wrong with each node on which nothing new starts for that."""
        cordons = self._ledger.site.cordoned.items()
        return {node: cordon.unwell for node, cordon in cordons if cordon.unwell}

    def foreign_holders(self) -> Mapping[str, tuple[MemberPlacement, ...]]:
        """What is held by others than gangs of ours, by holder."""
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
        missing=tuple(gap.member for gap in found.missing),
        replacing=tuple(gap.member for gap in found.missing if gap.placed),
        replacements=dict(found.lives),
    )
