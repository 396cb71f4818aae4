"""The variants of a job: copies of it that are restricted to one shape, one GPU model and market, or a smaller size.

A job has one variant, the job as written, unless it

    chooses its model or market   one variant for each that is open to it (`planning.rightsizing.ranking`)
    has alternative shapes        these for each of its shapes
    accepts several models        where quotas differ by model: one variant for each model, then the job as written
    is elastic                    beside a variant that the queue refuses: the largest size that the queue admits, else
                                  the smallest that it may admit later

Variants are tried in the order of the job's choice; among equally good ones, those within the queue's guarantee come
first. They depend on the job, the fabric and the policy only, so they are cached by signature. Placements and
refusals always name the job as written.
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
from gantree.policy.quota.admission import BORROWED, WITHIN_GUARANTEE, Admission
from gantree.policy.rules import Amounts
from gantree.topology.traffic.footprint import least_members

VariantAdmission = tuple[Job, Admission]
"""A variant, and its admission by the job's queue."""
Admit = Callable[[JobState, Amounts], Admission]


class JobVariants:
    """A cache of variants by signature; it is emptied when the fabric changes."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._of_signature: dict[int, tuple[Ranked, ...]] = {}

    def admissions(
        self, ledger: Ledger, state: JobState, *, projected: bool = False
    ) -> list[VariantAdmission]:
        """The variants of a pending job in the order to try them, each with its admission; [] where none is open.

        projected: the admission once all stopping gangs have left, for a job that claims room.
        """
        return _admissions(ledger, state, self._ranked(ledger, state), projected=projected)

    def _ranked(self, ledger: Ledger, state: JobState) -> tuple[Ranked, ...]:
        if not chooses(state.spec) and not ledger.accounts.guarantees.of_models:
            return ((0, state.spec),)
        fabric = ledger.rooms().fabric
        if self._fabric is not fabric:
            self._fabric = fabric
            self._of_signature.clear()
        variants = self._of_signature.get(state.signature)
        if variants is None:
            variants = _ranked(ledger, state.spec)
            self._of_signature[state.signature] = variants
        if variants == ((0, state.spec),):
            return ((0, state.spec),)
        return tuple((rank, _variant_of(state.spec, variant)) for rank, variant in variants)


def variant_admissions(
    ledger: Ledger, state: JobState, *, projected: bool = False
) -> list[VariantAdmission]:
    """As `JobVariants.admissions`, without the cache."""
    return _admissions(ledger, state, _ranked(ledger, state.spec), projected=projected)


def open_variants(ledger: Ledger, spec: Job) -> list[Job]:
    """A job restricted to each model and market that is open to it, in order; the job itself if it does not choose."""
    if not chooses(spec):
        return [spec]
    return [variant for _, variant in _ranked(ledger, spec)]


def why_no_variant(ledger: Ledger, spec: Job) -> Refused | None:
    """Why no model and market is open to a job; None where one is."""
    if not chooses(spec):
        return None
    return refused(spec, options(spec, ledger.rooms().fabric, restart_s=ledger.policy.restart_s))


def _variant_of(spec: Job, cached: Job) -> Job:
    """The variant of a job that equals the cached variant of another job of its signature."""
    return replace(
        spec, roles=tuple(
            replace(mine, shape=theirs.shape)
            for mine, theirs in zip(spec.roles, cached.roles, strict=True)
        ), elastic=cached.elastic, alternatives=cached.alternatives,
    )  # fmt: skip


def _ranked(ledger: Ledger, spec: Job) -> tuple[Ranked, ...]:
    """The open variants of a job with their ranks, in order."""
    fabric = ledger.rooms().fabric
    if chooses(spec):
        every_option = options(spec, fabric, restart_s=ledger.policy.restart_s)
        return tuple((option.rank, option.job) for option in every_option if option.open)
    return by_model(spec, fabric) if ledger.accounts.guarantees.of_models else ((0, spec),)


def _admissions(
    ledger: Ledger, state: JobState, ranked: tuple[Ranked, ...], *, projected: bool
) -> list[VariantAdmission]:
    accounts = ledger.accounts
    admit = accounts.projected_admission if projected else accounts.admission
    admissions = [
        (rank, variant, admit(state, accounts.amounts.requested_by(state, variant)))
        for rank, variant in ranked
    ]
    if len(admissions) > 1 and not chooses(state.spec):
        admissions = _as_written_like_models(admissions)
    admissions.sort(key=lambda each: (each[0], not each[2].within_guarantee))
    found: list[VariantAdmission] = []
    for _, variant, admission in admissions:
        found.append((variant, admission))
        if admission.refused and ledger.policy.elastic:
            found += _smaller(ledger, state, variant, admit)
    return found


def _as_written_like_models(
    admissions: list[tuple[int, Job, Admission]],
) -> list[tuple[int, Job, Admission]]:
    """Give the job as written the worst admission of its variants by model; drop it where one of these is refused.

    Its own admission counts GPUs of any model, so it may be better than on the models that the job would get.
    """
    *of_model, (rank, written, _) = admissions
    states = {admission.state for _, _, admission in of_model}
    if "refused" in states:
        return of_model
    return [*of_model, (rank, written, BORROWED if "borrowed" in states else WITHIN_GUARANTEE)]


def _smaller(ledger: Ledger, state: JobState, variant: Job, admit: Admit) -> list[VariantAdmission]:
    """The largest size of an elastic variant, below the written one, that the queue admits.

    Otherwise the smallest size that the queue would admit if other gangs were gone: they may be preempted for it.
    """
    found: list[VariantAdmission] = []
    if variant.elastic is None:
        return found
    for size in reversed(sizes_of(variant)):
        if size < variant.members:
            smaller = replace(resized(variant, size), elastic=Elastic(variant.elastic.min, size))
            admission = admit(state, ledger.accounts.amounts.requested_by(state, smaller))
            if not admission.refused:
                return [(smaller, admission)]
            if not admission.never:
                found = [(smaller, admission)]
    return found


# ----- placed gangs


def running_variant(ledger: Ledger, state: JobState) -> Job:
    """The variant that a placed gang runs: at its present size, in its shape and, if it chose, on its present model
    and market.
    """
    present, placement = state.present, state.placement
    if placement is None or not chooses(state.spec):
        return present
    model, on_spot = _model_and_market(ledger, placement)
    roles = tuple(_restricted(role, model, on_spot=on_spot) for role in present.roles)
    elastic = present.elastic
    if elastic is not None and len(roles) == 1:
        elastic = Elastic(least_members(present, model), elastic.max)
    return replace(present, roles=roles, elastic=elastic)


def _model_and_market(ledger: Ledger, placement: Placement) -> tuple[str | None, bool]:
    """The one model that a gang runs on (None: none or several), and whether all of it is on spot nodes."""
    fabric = ledger.rooms().fabric
    nodes = [fabric.index_of_node[node] for node in placement.nodes]
    models = dict.fromkeys(fabric.machine_of_node(node).gpu for node in nodes)
    on_spot = all(fabric.nodes[node].spot is not None for node in nodes)
    return next(iter(models)) if len(models) == 1 else None, on_spot


def _restricted(role: Role, model: str | None, *, on_spot: bool) -> Role:
    shape = role.shape
    if model is not None and (shape.gpus or shape.part):
        shape = replace(shape, models=(model,))
    if on_spot and all(name != MARKET_LABEL for name, _ in shape.labels):
        shape = replace(shape, labels=(*shape.labels, (MARKET_LABEL, SPOT)))
    return replace(role, shape=shape)
