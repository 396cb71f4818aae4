"""How the cells of queues stand in the ledger: which gangs run in them, which are guests, and what guests would lose.

Claims and reservations count as guests: a job gets their room in its own cells.
"""

from collections.abc import Container

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.model.placements import Placement
from gantree.planning.cells.home import CellDomains, CellView, keeps_cells, view_of

PROTECTED_GPU_S = 1e15
"""The harm of stopping a protected gang: more than of all others together, so that these are stopped instead."""


def owns_cells(ledger: Ledger, queue: str) -> bool:
    """Whether a queue owns cells."""
    return any(rule.cells for rule in ledger.policy.queues if rule.path == queue)


def runs_in_cells_only(ledger: Ledger, state: JobState) -> bool:
    """Whether a gang may run in the cells of its queue only: it is never preempted, so it can be no guest.

    Cells are of GPUs, so a gang without GPUs may run anywhere.
    """
    spec = state.spec
    return not spec.preemptible and spec.on_gpus and owns_cells(ledger, spec.queue)


def any_cells(ledger: Ledger) -> bool:
    """Whether any queue owns cells."""
    return any(rule.cells for rule in ledger.policy.queues)


def cell_domains_of(ledger: Ledger) -> CellDomains:
    """The domains of all cells on the present fabric."""
    return CellDomains.of(ledger.policy.queues, ledger.rooms().fabric, check=False)


def cell_view(
    ledger: Ledger,
    cell_domains: CellDomains,
    now: float,
    without: tuple[str, ...] = (),
    protected: Container[str] = (),
    *,
    leaving_gone: bool = True,
) -> CellView:
    """A view of the cells once stopping gangs and these have left; protected gangs would be stopped last.

    leaving_gone: whether stopping gangs count as gone.
    """
    projected = ledger.rooms().copy()
    for owner in (*(ledger.leaving if leaving_gone else ()), *without):
        projected.give_back(owner)
    for job, claim in ledger.claims.items():
        if CLAIM + job not in without:
            projected.take_free(CLAIM + job, claim.placement.members)
    homes, harm = _homes_and_harm(ledger, now)
    for owner in harm:
        if owner in protected:
            harm[owner] = PROTECTED_GPU_S
    return view_of(projected, cell_domains, ledger.bound, homes, harm)


def keeps_cells_free(
    ledger: Ledger, state: JobState, placement: Placement, cell_domains: CellDomains | None = None
) -> bool:
    """Whether a gang may have a placement: one that is never preempted keeps off nodes that cells may need."""
    if state.spec.preemptible or not state.spec.on_gpus or not any_cells(ledger):
        return True
    if runs_in_cells_only(ledger, state):
        return False
    return keeps_cells(
        cell_view(ledger, cell_domains or cell_domains_of(ledger), 0.0), placement.members
    )


def _homes_and_harm(ledger: Ledger, now: float) -> tuple[dict[str, str], dict[str, float]]:
    """(owner -> queue, of gangs in cells), and (owner -> harm in GPU-seconds, of gangs that may be stopped)."""
    homes: dict[str, str] = {}
    harm: dict[str, float] = {}
    for state in ledger.holding.values():
        if state.at_home:
            homes[state.job] = state.spec.queue
        elif state.spec.preemptible:
            restart_gpu_s = ledger.policy.restart_s * state.gpus
            harm[state.job] = state.gpu_s_at_stake(now) + restart_gpu_s
    for job, claim in ledger.claims.items():
        if claim.at_home:
            homes[CLAIM + job] = ledger.jobs[job].spec.queue
        else:
            harm[CLAIM + job] = 0.0
    harm.update((RESERVATION + job, 0.0) for job in ledger.reservations)
    return homes, harm
