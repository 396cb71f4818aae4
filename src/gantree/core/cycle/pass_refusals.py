"""What one pass has refused, so that it is refused to all jobs with the same request without another search.

Within a pass free room and quota only shrink, because room that is freed in it is not used before the next pass. So a
refusal stands for the rest of the pass:

    placement    for jobs of a signature that may use the same reservations
    quota        for jobs with the same request to the same queue, in all their variants
    preemption   for later jobs of an equivalence class; for a job that has a reservation, or backs off, for it alone:
                 it may use room that others may not, or stop fewer gangs than they may
"""

from collections.abc import Hashable

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.cell_usage import any_cells, runs_in_cells_only
from gantree.core.queue.eligibility import equivalence_class_of
from gantree.core.queue.held_capacity import UsableReservations
from gantree.core.queue.preemption_backoff import backs_off_until
from gantree.policy.waiting_jobs import EquivalenceClass


class PassRefusals:
    """The refusals of one pass, by what each depends on."""

    def __init__(self, ledger: Ledger, usable: UsableReservations, now: float) -> None:
        self._ledger, self._usable, self._now = ledger, usable, now
        self._placement: set[Hashable] = set()
        self._quota: set[Hashable] = set()
        self._preemption_of_class: set[EquivalenceClass] = set()
        self._preemption_of_job: set[str] = set()

    def of_placement(self, state: JobState) -> bool:
        """Whether a placement was refused to a job, or to one with the same request."""
        return bool(self._placement) and self._placement_key(state) in self._placement

    def of_quota(self, state: JobState) -> bool:
        """Whether its queue refused a job, or one with the same request."""
        return _quota_key(state) in self._quota

    def of_preemption(self, state: JobState) -> bool:
        """Whether preemption was refused to a job, or to an earlier one of its equivalence class."""
        if state.job in self._preemption_of_job:
            return True
        return equivalence_class_of(state) in self._preemption_of_class

    def add_placement(self, state: JobState) -> None:
        """No placement was found for a job."""
        self._placement.add(self._placement_key(state))

    def add_quota(self, state: JobState) -> None:
        """Its queue refused every variant of a job."""
        self._quota.add(_quota_key(state))

    def add_preemption(self, state: JobState) -> None:
        """No capacity can be freed for any variant of a job."""
        backs_off = backs_off_until(self._ledger, state) > self._now
        if backs_off or state.job in self._ledger.reservations:
            self._preemption_of_job.add(state.job)
        else:
            self._preemption_of_class.add(equivalence_class_of(state))

    @property
    def count(self) -> int:
        """The number of refusals. A pass that continues adds to them, or records facts."""
        return (
            len(self._placement)
            + len(self._quota)
            + len(self._preemption_of_class)
            + len(self._preemption_of_job)
        )

    def _placement_key(self, state: JobState) -> Hashable:
        """What a search depends on beside the occupancy: a gang that is never preempted keeps off cells of others."""
        ledger = self._ledger
        nodes = ""
        if not state.spec.preemptible and any_cells(ledger):
            nodes = "its cells" if runs_in_cells_only(ledger, state) else "what no cell needs"
        return state.signature, self._usable.mask(ledger, state, self._now), nodes


def _quota_key(state: JobState) -> Hashable:
    """What an admission depends on: the queue, the request, and which claims give way."""
    return state.queue, state.signature, state.priority, state.spec.preemptible
