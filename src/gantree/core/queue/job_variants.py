"""The ways to run a job: each a job of its own, held to one GPU model and market, or to a size that its queue admits.

Most jobs have one way: they run as they are written. More have

    those that choose         one way for each model and market that is open to them (`planning.rightsizing.ranking`)
    those of several models   where quotas are told by model: one for each, then the job as it is written
    elastic ones              the largest size that the queue admits, else the least that it ever would, beside the
                              refused size as written

Ways keep their order, that of the job's choice. Of ways that are equally good those come first which are owed to the
queue. Ways depend on the job, the fabric and the policy alone, so they are kept by signature. What is held, requeued
and shown is always the job as it was written.
"""

from collections.abc import Callable
from dataclasses import replace

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.cluster import MARKET_LABEL, SPOT
from gantree.model.jobs import Elastic, Job, Role
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.request.sizes import resized, sizes_of
from gantree.planning.rightsizing.ranking import Ranked, by_model, chooses, options, refused
from gantree.policy.quota.admission import BORROWED, OWED, Admission
from gantree.policy.rules import Amounts
from gantree.topology.traffic.footprint import least_members

Answer = tuple[Job, Admission]
"""A way, and what the job's queue says to it."""
Ask = Callable[[JobState, Amounts], Admission]


class Ways:
    """Ways by signature, on the fabric of the moment."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._of_signature: dict[int, tuple[Ranked, ...]] = {}

    def answers(self, ledger: Ledger, state: JobState, *, to_come: bool = False) -> list[Answer]:
        """The ways to try for a job that waits, in order, with what its queue says; [] where no way is open to it.

        to_come: what it says of the time when all have left who leave, to a job that claims room.
        """
        return _answers(ledger, state, self._ranked(ledger, state), to_come=to_come)

    def _ranked(self, ledger: Ledger, state: JobState) -> tuple[Ranked, ...]:
        if not chooses(state.spec) and not ledger.accounts.guarantees.of_models:
            return ((0, state.spec),)
        fabric = ledger.rooms().fabric
        if self._fabric is not fabric:
            self._fabric = fabric
            self._of_signature.clear()
        ways = self._of_signature.get(state.signature)
        if ways is None:
            ways = _ranked(ledger, state.spec)
            self._of_signature[state.signature] = ways
        if ways == ((0, state.spec),):
            return ((0, state.spec),)
        return tuple((rank, _as_named(way, state.spec)) for rank, way in ways)


def answers(ledger: Ledger, state: JobState, *, to_come: bool = False) -> list[Answer]:
    """As `Ways.answers`, worked out anew."""
    return _answers(ledger, state, _ranked(ledger, state.spec), to_come=to_come)


def open_ways(ledger: Ledger, spec: Job) -> list[Job]:
    """A job held to each model and market that is open to it, in order; the job itself if it does not choose."""
    if not chooses(spec):
        return [spec]
    return [way for _, way in _ranked(ledger, spec)]


def no_way(ledger: Ledger, spec: Job) -> Refused | None:
    """Why no way is open to a job; None where one is."""
    if not chooses(spec):
        return None
    return refused(spec, options(spec, ledger.rooms().fabric, restart_s=ledger.policy.restart_s))


def _as_named(way: Job, spec: Job) -> Job:
    """A way of a job that is alike, as one of this job."""
    return replace(
        spec, roles=tuple(
            replace(mine, shape=theirs.shape)
            for mine, theirs in zip(spec.roles, way.roles, strict=True)
        ), elastic=way.elastic,
    )  # fmt: skip


def _ranked(ledger: Ledger, spec: Job) -> tuple[Ranked, ...]:
    """The open ways of a job with their ranks, in order."""
    fabric = ledger.rooms().fabric
    if chooses(spec):
        all_ways = options(spec, fabric, restart_s=ledger.policy.restart_s)
        return tuple((way.rank, way.job) for way in all_ways if way.open)
    return by_model(spec, fabric) if ledger.accounts.guarantees.of_models else ((0, spec),)


def _answers(
    ledger: Ledger, state: JobState, ranked: tuple[Ranked, ...], *, to_come: bool
) -> list[Answer]:
    accounts = ledger.accounts
    ask = accounts.projected_admission if to_come else accounts.admission
    told = [(rank, way, ask(state, accounts.amounts.asked_on(state, way))) for rank, way in ranked]
    if len(told) > 1 and not chooses(state.spec):
        told = _whole_as_its_models(told)
    told.sort(key=lambda each: (each[0], each[2].state != "owed"))
    found: list[Answer] = []
    for _, way, admission in told:
        found.append((way, admission))
        if admission.refused and ledger.policy.elastic:
            found += _smaller(ledger, state, way, ask)
    return found


def _whole_as_its_models(
    told: list[tuple[int, Job, Admission]],
) -> list[tuple[int, Job, Admission]]:
    """Ways by model, and the job as written with the least that its queue says to any model; without it if that is no.

    Counted in GPUs of any model it might be owed, or admitted, what it is not on the models that it would get.
    """
    *of_model, (rank, written, _) = told
    states = {admission.state for _, _, admission in of_model}
    if "refused" in states:
        return of_model
    return [*of_model, (rank, written, BORROWED if "borrowed" in states else OWED)]


def _smaller(ledger: Ledger, state: JobState, way: Job, ask: Ask) -> list[Answer]:
    """The largest size of an elastic gang below the one it is written with that its queue admits.

    If there is none, the least that it would admit if others were gone, who may be told to leave for that.
    """
    found: list[Answer] = []
    if way.elastic is None:
        return found
    for size in reversed(sizes_of(way)):
        if size < way.members:
            smaller = replace(resized(way, size), elastic=Elastic(way.elastic.min, size))
            admission = ask(state, ledger.accounts.amounts.asked_on(state, smaller))
            if not admission.refused:
                return [(smaller, admission)]
            if not admission.never:
                found = [(smaller, admission)]
    return found


# ----- a gang that runs


def as_it_runs(ledger: Ledger, state: JobState) -> Job:
    """The job of a gang that holds a place, at its size; held to the model and market that it runs on if it chose."""
    present, placement = state.present, state.placement
    if placement is None or not chooses(state.spec):
        return present
    model, on_spot = _where(ledger, placement)
    roles = tuple(_held(role, model, on_spot=on_spot) for role in present.roles)
    elastic = present.elastic
    if elastic is not None and len(roles) == 1:
        elastic = Elastic(least_members(present, model), elastic.max)
    return replace(present, roles=roles, elastic=elastic)


def _where(ledger: Ledger, placement: Placement) -> tuple[str | None, bool]:
    """The one model that a gang runs on (None: none or several), and whether all of it is on spot nodes."""
    fabric = ledger.rooms().fabric
    nodes = [fabric.index_of_node[node] for node in placement.nodes]
    models = dict.fromkeys(fabric.machine_of_node(node).gpu for node in nodes)
    on_spot = all(fabric.nodes[node].spot is not None for node in nodes)
    return next(iter(models)) if len(models) == 1 else None, on_spot


def _held(role: Role, model: str | None, *, on_spot: bool) -> Role:
    shape = role.shape
    if model is not None and (shape.gpus or shape.part):
        shape = replace(shape, models=(model,))
    if on_spot and all(name != MARKET_LABEL for name, _ in shape.labels):
        shape = replace(shape, labels=(*shape.labels, (MARKET_LABEL, SPOT)))
    return replace(role, shape=shape)
