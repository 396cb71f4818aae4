"""How long a step of a placed gang would take at its best place: what its own place costs it, for its bill.

The best is the fastest on the empty cluster, with every node and link whole, on the GPU model that the gang has, since
another model has another price, and by the data that it reads. What else the policy prefers makes no difference to it.
It is recorded with the placement, so replay, recovery and bills have the same figure. Gangs that do not state their
traffic, or hold parts of GPUs, have none. Equal gangs on one fabric share one search.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.numbering import numbered
from gantree.model.jobs import Job, Role
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.traffic.signature import Kept

MOST_GPUS = 4096
"""Of larger gangs nothing is searched: it would hold up the turn."""
FASTEST = PlacementPreferences(fragmentation_weight=0.0)
_NO_TIME_S = 1e-9


def numbered_and_priced(ledger: Ledger, state: JobState, placement: Placement) -> Placement:
    """The placement with its ranks, and with the step at the job's best place where that is shorter."""
    job = state.at_size(len(placement.members))
    placement = numbered(ledger.rooms().fabric, job, placement)
    step_s = placement.predicted.step_s
    if step_s is None or job.gpus > MOST_GPUS:
        return placement
    best_s = _best_step_s(ledger, _of_model(ledger, job, placement))
    if best_s is None or best_s >= step_s - _NO_TIME_S:
        return placement
    return replace(placement, predicted=replace(placement.predicted, best_step_s=best_s))


def _best_step_s(ledger: Ledger, job: Job) -> float | None:
    fabric = ledger.rooms().fabric
    kept, key = _kept_of(fabric), _searched(job)
    if key not in kept.answers:
        found = find(ledger.rooms().emptied(), job, FASTEST)
        best = None if found is None else numbered(fabric, job, found).predicted.step_s
        kept.keep(key, best, job.members)
    return kept.answers[key]


@lru_cache(maxsize=4)
def _kept_of(fabric: Fabric) -> Kept[float | None]:
    """Answers on a fabric."""
    return Kept()


def _of_model(ledger: Ledger, job: Job, placement: Placement) -> Job:
    """The job on the models that its gang has, where it had a choice."""
    fabric = ledger.rooms().fabric
    models = {
        fabric.machine_of_node(fabric.index_of_node[node]).gpu or "" for node in placement.nodes
    }
    models.discard("")
    return replace(job, roles=tuple(_on(role, tuple(sorted(models))) for role in job.roles))


def _on(role: Role, models: tuple[str, ...]) -> Role:
    """A role on these models; what it runs makes no difference to where it could be."""
    shape = replace(role.shape, models=models) if role.shape.gpus and models else role.shape
    return replace(role, shape=shape, image=None, run=(), env=(), workdir=None)


def _searched(job: Job) -> Hashable:
    """What of a job its best place and step depend on."""
    return (
        job.roles, job.topology, job.parallelism, job.ranks_as_written, job.trains, job.traffic, job.overlap,
        job.serving, job.communicates, job.spot, job.data,
    )  # fmt: skip
