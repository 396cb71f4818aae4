"""How the cells of a policy stand in the ledger: who is at home, who is a guest, and what guests would lose.

Claims and reserved starts are guests like those that run: a home job that needs their room has it.
"""

from collections.abc import Container

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.model.placements import Placement
from gantree.planning.cells.home import CellDomains, CellView, keeps_cells, view_of

KEPT_GPU_S = 1e15
"""Harm of sending somebody away who is to stay: more than of everybody else together, so that they are sent instead."""


def owns_cells(ledger: Ledger, queue: str) -> bool:
    """Whether a queue owns cells."""
    return any(rule.cells for rule in ledger.policy.queues if rule.path == queue)


def only_at_home(ledger: Ledger, state: JobState) -> bool:
    """Whether a gang runs in the cells of its queue or not at all: elsewhere it might have to leave, and never does.

    Cells are of GPUs, so a gang without any runs anywhere.
    """
    spec = state.spec
    return not spec.preemptible and spec.on_gpus and owns_cells(ledger, spec.queue)


def any_cells(ledger: Ledger) -> bool:
    """Whether any queue owns cells."""
    return any(rule.cells for rule in ledger.policy.queues)


def cell_domains_of(ledger: Ledger) -> CellDomains:
    """The cells of the policy on the fabric of the moment."""
    return CellDomains.of(ledger.policy.queues, ledger.rooms().fabric, check=False)


def seen(
    ledger: Ledger,
    cell_domains: CellDomains,
    now: float,
    without: tuple[str, ...] = (),
    kept: Container[str] = (),
    *,
    left: bool = True,
) -> CellView:
    """How the cells of a book stand when everybody has left who leaves, and these; kept are sent away last.

    left: False for how they stand now, while those still hold what they leave.
    """
    later = ledger.rooms().copy()
    for owner in (*(ledger.leaving if left else ()), *without):
        later.give_back(owner)
    for job, claim in ledger.claims.items():
        if CLAIM + job not in without:
            later.take_free(CLAIM + job, claim.placement.members)
    homes, harm = _by_right(ledger, now)
    for owner in harm:
        if owner in kept:
            harm[owner] = KEPT_GPU_S
    return view_of(later, cell_domains, ledger.bound, homes, harm)


def spares_cells(
    ledger: Ledger, state: JobState, placement: Placement, cell_domains: CellDomains | None = None
) -> bool:
    """Whether a gang may be placed where it is nobody's guest: one that can never be told to leave keeps clear."""
    if state.spec.preemptible or not state.spec.on_gpus or not any_cells(ledger):
        return True
    if only_at_home(ledger, state):
        return False
    return keeps_cells(
        seen(ledger, cell_domains or cell_domains_of(ledger), 0.0), placement.members
    )


def _by_right(ledger: Ledger, now: float) -> tuple[dict[str, str], dict[str, float]]:
    """owner -> queue of those at home, and owner -> harm in GPU-seconds of those who may be told to leave."""
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
