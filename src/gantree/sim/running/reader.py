"""running.yaml to a `RunningModel`: what of running is simulated, with its figures.

The preset `realistic` is such a file too, beside this module, with the source of each figure.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from gantree.formats.validation.forms import only_document, read_form, refuse
from gantree.model.errors import BadInput, Problem
from gantree.sim.running.faults import tier_of
from gantree.sim.running.form import (
    PRESET_NAMES,
    CheckpointsForm,
    FailuresForm,
    LinkRateForm,
    NodeRateForm,
    RateForm,
    RunningForm,
    ServiceForm,
    ServiceScalingForm,
    second_of_day,
)
from gantree.sim.running.model import (
    Checkpoints,
    FailureRate,
    Failures,
    RunningModel,
    Service,
    ServiceScaling,
    Spot,
    Stragglers,
)
from gantree.text.document import read_documents

__all__ = ["PRESET_NAMES", "check_tiers", "preset", "read_running"]

MAX_FILE_BYTES = 1024 * 1024


def read_running(text: str, source: str) -> RunningModel:
    """Read the text of a running.yaml. source names it in errors. Raises BadFields for all that is wrong."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(RunningForm, documents, problems)
    form = read_form(RunningForm, document, problems) if document else None
    for service in form.services if form else ():
        problems += _problems(service)
    refuse(problems, source)
    assert form is not None
    base = preset(form.preset) if form.preset else RunningModel()
    return replace(base, **dict(_sections(form)))


@cache
def preset(name: str) -> RunningModel:
    """A model by its name, one of PRESET_NAMES."""
    assert name in PRESET_NAMES, f"{name} is no preset"
    text = (files("gantree.sim.running") / f"{name}.yaml").read_text(encoding="utf-8")
    return read_running(text, f"{name}.yaml")


def check_tiers(model: RunningModel, tiers: tuple[str, ...]) -> None:
    """Raise BadInput where failures are of tiers that a cluster with these tiers does not have."""
    failures = model.failures or Failures()
    for field, rates in (("domains", failures.domains), ("links", failures.links)):
        for tier, _ in rates:
            try:
                tier_of(tier, tiers)
            except KeyError:
                known = ", ".join((*tiers, "switch"))
                raise BadInput(
                    f"failures.{field}: the cluster has no tier `{tier}`; allowed: {known}"
                ) from None


def _problems(service: ServiceForm) -> Iterator[Problem]:
    if {"trough", "peak"} & service.lost:
        return
    if service.trough > service.peak:
        found, allowed = f"`{service.trough}`", f"at most its peak, {service.peak}"
        yield service.problem("trough", found, allowed)
    if not service.curve and not service.any_lost("curve"):
        yield service.problem("curve", "no times", 'times and shares, such as {"04:00": 0}')


def _sections(form: RunningForm) -> Iterator[tuple[str, Any]]:
    """(field of RunningModel, value) of what the file gives."""
    if form.step_time is not None:
        yield "step_time", form.step_time
    if form.contention is not None:
        yield "contention", form.contention
    if form.checkpoints is not None:
        yield "checkpoints", _checkpoints(form.checkpoints)
    if form.failures is not None:
        yield "failures", _failures(form.failures)
    if form.stragglers is not None:
        slow = form.stragglers
        yield "stragglers", Stragglers(slow.nodes, slow.attempts, slow.speed, slow.named_after)
    if form.spot is not None:
        yield "spot", Spot(form.spot.notice, form.spot.away)
    if form.services:
        yield "services", tuple(map(_service, form.services))


def _checkpoints(form: CheckpointsForm) -> Checkpoints:
    return Checkpoints(form.every, form.save, form.restore, form.store_GBps, form.state_GB_per_GPU)


def _failures(form: FailuresForm) -> Failures:
    return Failures(
        process=_rate(form.process) if form.process else None,
        GPU=_rate(form.GPU) if form.GPU else None,
        node=_rate(form.node) if form.node else None,
        domains=tuple((tier, _rate(rate)) for tier, rate in form.domains.items()),
        links=tuple((tier, _rate(rate)) for tier, rate in form.links.items()),
        restarts=form.restarts,
    )


def _rate(form: RateForm | LinkRateForm) -> FailureRate:
    if isinstance(form, LinkRateForm):
        return FailureRate(form.per_day, form.repair, form.health)
    if isinstance(form, NodeRateForm):
        return FailureRate(form.per_day, form.repair, announced=form.announced, lead_s=form.lead)
    return FailureRate(form.per_day, form.repair)


def _service(form: ServiceForm) -> Service:
    curve = sorted((second_of_day(time), share) for time, share in form.curve.items())
    return Service(
        form.name, form.gpus, form.trough, form.peak, tuple(curve), form.queue, form.priority,
        form.gpu, scaling=None if form.scale is None else _scaling(form.scale),
    )  # fmt: skip


def _scaling(form: ServiceScalingForm) -> ServiceScaling:
    return ServiceScaling(
        form.target, form.spare, form.every, form.start, form.stabilise, form.slots, form.request,
        form.wait, form.predict,
    )  # fmt: skip
