"""Ranks the options of a job, GPU models and markets, best first, each with speed, time and cost.

    shapes of the job  x  its models, or the fabric's  x  on demand, spot  ->  Option: the job restricted to these

An option is closed if the model that the job describes does not fit into that GPU's memory, or if a run would cost more
than the job's budget. Open options are sorted as the job chooses: "order" as its shapes, and for each its models, are
listed (the fastest model first where it lists none), "time" by the soonest end if all of them started now, "cost" by
the least expected price.

Speeds are given by the job, else predicted (`topology.cost.roofline`) relative to the fastest model that it may use; in
an alternative shape it is as much faster or slower as that says. A
run takes `expected_s`, else its time limit, on the fastest model, and in proportion longer on others. Spot nodes are
for jobs with `spot` that save checkpoints (`Node.admits`), and the price includes interruptions. Whether there is room
is decided by the search.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gantree.model.gang_shapes import every_shape
from gantree.model.jobs import Job, Role
from gantree.model.verdicts import Gate, Refused
from gantree.planning.rightsizing.offers import Offers, markets_of, offers_of
from gantree.planning.rightsizing.option import Option, Terms, Way, gpu_roles
from gantree.topology.cost.roofline import least_step_s
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import LIST_PRICES, Market, PriceList
from gantree.topology.traffic import footprint

__all__ = ["Option", "Ranked", "by_model", "chooses", "options", "refused"]

Ranked = tuple[int, Job]
"""A way and its rank: lower is better, ways of one rank are equally good."""


def chooses(job: Job) -> bool:
    """Whether the model, the market or the shape that a job gets is chosen by more than the room there is."""
    described = job.trains is not None and bool(job.gpus)
    return described or bool(
        job.speeds
        or job.choose != "order"
        or job.budget_USD is not None
        or job.spot
        or job.alternatives
    )


def by_model(job: Job, fabric: Fabric) -> tuple[Ranked, ...]:
    """A job that does not choose, held to each model that it admits, then as it is written; alone where that is one.

    Of models that it lists the first is the best; where it lists none they are equally good.
    """
    offers, roles = offers_of(fabric), gpu_roles(job)
    listed = any(role.shape.models for role in roles)
    models = _listed(roles) if listed else [model for model in offers if model is not None]
    models = [model for model in models if model in offers]
    if len(offers) < 2 or not models or not roles:
        return ((0, job),)
    held = [(place if listed else 0, held_to(job, model)) for place, model in enumerate(models)]
    return (*held, (len(models), job))


def held_to(job: Job, model: str) -> Job:
    """The job with its GPUs of this model alone."""
    of_gpus = gpu_roles(job)
    return replace(
        job,
        roles=tuple(
            replace(role, shape=replace(role.shape, models=(model,))) if role in of_gpus else role
            for role in job.roles
        ),
    )


def options(
    job: Job, fabric: Fabric, prices: PriceList = LIST_PRICES, restart_s: float = 60.0
) -> tuple[Option, ...]:
    """Return all ways to run a job, at least one: open ones first, best first.

    restart_s is what a stop and a new start cost (`Policy.restart_s`). It depends on the job's name in words alone, so
    answers may be kept by the rest of the job.
    """
    terms = Terms(offers_of(fabric), prices, restart_s)
    ways = [
        (way.key(place), way.option())
        for place, (shape, model, speed) in enumerate(_choices(job, terms.offers))
        for way in (
            Way(shape, model, market, speed, terms)
            for market in _markets(shape, terms.offers, model)
        )
    ]
    ways.sort(key=lambda way: (not way[1].open, way[0]))
    worth = [key[:3] for key, _ in ways]
    firsts = (worth.index(each) for each in worth)
    return tuple(
        replace(option, rank=first) for first, (_, option) in zip(firsts, ways, strict=True)
    )


def refused(job: Job, ways: Sequence[Option]) -> Refused | None:
    """Why none of the ways of a job is open; None where one is."""
    if any(way.open for way in ways):
        return None
    too_dear = [way.why_not for way in ways if way.gate is Gate.LIMIT]
    if too_dear:
        sentence = f"Waiting: no way to run it is within bounds. {'; '.join(too_dear)}."
        return Refused(Gate.LIMIT, sentence)
    too_small = dict.fromkeys(way.why_not for way in ways)
    sentence = (
        f"Never fits: the model that it trains does not fit into memory. {'; '.join(too_small)}."
    )
    return Refused(Gate.SHAPE, sentence, never=True)


# ----- what there is to choose from


def _choices(job: Job, offers: Offers) -> Iterator[tuple[Job, str | None, float | None]]:
    """The job in each of its shapes, with each model and its speed there, in order."""
    for of_shape, shape in every_shape(job):
        models = _models(shape, offers)
        for model, speed in zip(models, _speeds(shape, models), strict=True):
            known = speed is not None or of_shape != 1.0
            yield shape, model, of_shape * (speed or 1.0) if known else None


def _models(job: Job, offers: Offers) -> tuple[str | None, ...]:
    """Models to choose from, in the order of the job or the fabric; None: whichever the search finds."""
    lists = [role.shape.models for role in gpu_roles(job)]
    if any(lists):
        return tuple(model for model in _listed(gpu_roles(job)) if model in offers) or (None,)
    named = [model for model in offers if model is not None]
    if not lists or not named or not (len(offers) == 1 or _minds(job)):
        return (None,)
    if job.choose == "order":
        rated = zip(_speeds(job, named), named, strict=True)
        named = [model for _, model in sorted(rated, key=lambda each: -(each[0] or 0.0))]
    if None in offers and len(footprint.fitting_models(job, named)) == len(named):
        return (*named, None)  # who may run anywhere may also run on GPUs of no named model
    return tuple(named)


def _listed(roles: Sequence[Role]) -> list[str]:
    """Models that all roles admit which list any, in the order of the first."""
    listed = [role.shape.models for role in roles if role.shape.models]
    return [m for m in listed[0] if all(m in models for models in listed[1:])]


def _minds(job: Job) -> bool:
    """Whether it matters to a job that lists no model which one it gets."""
    return bool(job.trains or job.speeds or job.choose != "order" or job.budget_USD is not None)


def _markets(job: Job, offers: Offers, model: str | None) -> tuple[Market, ...]:
    """Markets on which a model is to be had for this job; on demand where there is none, for the search to explain."""
    own = markets_of(offers, model)
    on_demand = any("on_demand" in markets for markets in own)
    spot = job.spot and job.checkpoint is not None and any("spot" in markets for markets in own)
    spot_only: tuple[Market, ...] = ("spot",) if spot else ()
    return ("on_demand", *spot_only) if on_demand or not spot else spot_only


def _speeds(job: Job, models: Sequence[str | None]) -> list[float | None]:
    """The speed of a job on each model, relative to its fastest: given, else predicted; None if not known."""
    if job.speeds:
        speeds = dict(job.speeds)
        return [speeds.get(model or "") for model in models]
    if len(models) == 1:
        return [1.0 if models[0] is not None else None]
    steps_s = [least_step_s(job, model) for model in models]
    best_s = min((step_s for step_s in steps_s if step_s), default=None)
    return [best_s / step_s if best_s and step_s else None for step_s in steps_s]
