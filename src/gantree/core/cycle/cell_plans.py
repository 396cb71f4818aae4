"""Plans for jobs of queues that own cells: a placement in the cells, the cells to bind for it, and the guests to stop.

Guests and claims of the job's own queue stop or drop for it, too, but not for a job that they could preempt in turn:
within one queue its order decides, and the two would stop each other endlessly. Nor does the claim of an earlier job
that may run in the cells.

Nothing is changed here. Which domains become cells, and what keeps them safe, is in `planning.cells.home`; how the
cells stand in the ledger is in `core.queue.cell_usage`.
"""

from collections.abc import Iterable
from dataclasses import replace

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, JobState
from gantree.core.queue.cell_usage import any_cells, cell_domains_of, cell_view, keeps_cells_free
from gantree.core.queue.preemption_rules import rank_blocker
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.planning.cells.home import CellDomains, CellView, HomePlan, home, view_of
from gantree.policy.cells import Cell
from gantree.policy.order import Position
from gantree.topology.fabric.fabric import Fabric


class CellPlans:
    """Plans on the present fabric.

    _fits_empty_cells caches, by queue, signature and size, whether the empty cells would hold a job. _cached_view is
    the view of all cells, valid at _view_at. Views without some gang are not cached: they serve one job.
    """

    def __init__(self, preferences: PlacementPreferences) -> None:
        self._preferences = preferences
        self._fabric: Fabric | None = None
        self._cell_domains: CellDomains | None = None
        self._fits_empty_cells: dict[tuple[str, int, int], bool] = {}
        self._cached_view: CellView | None = None
        self._view_at = (-1, 0.0)

    def domains(self, ledger: Ledger) -> CellDomains:
        """The domains of cells on the present fabric."""
        fabric = ledger.rooms().fabric
        if self._cell_domains is None or self._fabric is not fabric:
            self._fabric = fabric
            self._cell_domains = cell_domains_of(ledger)
            self._fits_empty_cells.clear()
            self._cached_view = None
        return self._cell_domains

    def view(
        self,
        ledger: Ledger,
        now: float,
        without: tuple[str, ...] = (),
        protected: frozenset[str] = frozenset(),
    ) -> CellView:
        """The cells once stopping gangs and these have left. Claims and reservations count as guests."""
        cell_domains = self.domains(ledger)
        if without or protected:
            return cell_view(ledger, cell_domains, now, without, protected)
        if self._cached_view is None or self._view_at != (ledger.applied, now):
            self._cached_view = cell_view(ledger, cell_domains, now)
            self._view_at = ledger.applied, now
        return self._cached_view

    def keeps_cells_free(self, ledger: Ledger, state: JobState, placement: Placement) -> bool:
        """As `cell_usage.keeps_cells_free`, with the cached domains of cells."""
        return keeps_cells_free(ledger, state, placement, self.domains(ledger))

    def may_ever_fit(self, ledger: Ledger, queue: str, state: JobState) -> bool:
        """Whether the empty cells of a queue would hold a job."""
        cell_domains, spec = self.domains(ledger), state.present
        key = queue, state.signature, spec.members
        if key not in self._fits_empty_cells:
            empty = view_of(ledger.rooms().emptied(), cell_domains, {}, {}, {})
            self._fits_empty_cells[key] = home(empty, queue, spec, self._preferences) is not None
        return self._fits_empty_cells[key]

    def plan(self, ledger: Ledger, queue: str, state: JobState, now: float) -> HomePlan | None:
        """A placement of a job in the cells of its queue, without protected gangs as victims; None where there is none.

        The limits of its queue apply here, too.
        """
        plan = self._find(ledger, queue, state, now)
        if plan is None:
            return None
        gone = [owner for owner in (state.job, *plan.evict) if owner in ledger.holding]
        amounts = ledger.accounts.amounts.held(plan.placement)
        return None if ledger.accounts.limits(state, amounts, gone).refused else plan

    def _find(self, ledger: Ledger, queue: str, state: JobState, now: float) -> HomePlan | None:
        without = () if state.phase is Phase.PENDING else (state.job,)
        plan = home(self.view(ledger, now, without), queue, state.present, self._preferences)
        if plan is None or not self._protected(ledger, state, plan.evict, now):
            return plan
        claims = (CLAIM + job for job in ledger.claims)
        protected = self._protected(ledger, state, (*claims, *ledger.holding), now)
        plan = home(
            self.view(ledger, now, without, protected), queue, state.present, self._preferences
        )
        return plan if plan is not None and protected.isdisjoint(plan.evict) else None

    def _protected(
        self, ledger: Ledger, state: JobState, owners: Iterable[str], now: float
    ) -> frozenset[str]:
        """The gangs and claims, among these, of a job's own queue that do not stop for it."""
        protected: list[str] = []
        for owner in owners:
            other = ledger.jobs.get(owner.removeprefix(CLAIM))
            if other is None or other is state or other.spec.queue != state.spec.queue:
                continue
            pending = _as_pending(ledger, other, now)
            keeps = owner.startswith(CLAIM) and self._keeps_its_claim(ledger, state, pending, now)
            if keeps or not rank_blocker(ledger, pending, state, now)[0]:
                protected.append(owner)
        return frozenset(protected)

    def _keeps_its_claim(
        self, ledger: Ledger, state: JobState, other: JobState, now: float
    ) -> bool:
        """Whether another job of the queue is earlier, and may run in the cells as soon as it has what it claims."""
        before = ledger.accounts.goes_before(other, _as_pending(ledger, state, now))
        return before and self.may_ever_fit(ledger, state.spec.queue, other)


def lost_cells(ledger: Ledger) -> tuple[Cell, ...]:
    """The cells of all queues without a domain now: nodes are out of use, or hold gangs that are never preempted."""
    if ledger.occupancy is None or not any_cells(ledger):
        return ()
    return cell_view(ledger, cell_domains_of(ledger), 0.0).lost


def refused_in_cells(ledger: Ledger, state: JobState, now: float) -> Refused | None:
    """Why a gang that runs in cells only does not start there; None where it would."""
    queue, cells = state.spec.queue, CellPlans(DEFAULT_PREFERENCES)
    if cells.plan(ledger, queue, state, now) is not None:
        return None
    owned = next(rule.cells for rule in ledger.policy.queues if rule.path == queue)
    in_words = ", ".join(f"{tier}: {count}" for tier, count in owned)
    never = not cells.may_ever_fit(ledger, queue, state)
    why = "would not hold it if they were empty" if never else "have no room for it now"
    rule = f"is never preempted, so it runs in the cells of its queue only ({in_words}), and these"
    return Refused(Gate.QUOTA, f"Waiting: {rule} {why}.", never=never)


def never_fits_cells(ledger: Ledger, state: JobState) -> bool:
    """Whether the empty cells of its queue would not hold a job."""
    return not CellPlans(DEFAULT_PREFERENCES).may_ever_fit(ledger, state.spec.queue, state)


def _as_pending(ledger: Ledger, other: JobState, now: float) -> JobState:
    """A job with the position that it would have if it were pending again."""
    if other.phase is Phase.PENDING:
        return other
    key = ledger.accounts.order.key(other.order_factors(now))
    return replace(other, position=Position(key, other.seq, other.job))
