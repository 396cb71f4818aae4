"""policy.yaml to a `Policy`: a preset, and what a site overrides of it.

Presets are policy files too, beside this module in `presets`. They are read by the same form and the same rules, but
name no preset themselves: each overrides the defaults of `Policy`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from gantree.formats.job.reader import shape_of
from gantree.formats.policy.form import (
    BY,
    NONE,
    PRESET_NAMES,
    UNLIMITED,
    WEIGHED_BY,
    BackfillForm,
    BoostForm,
    DemandForm,
    PolicyForm,
    PreemptForm,
    RulesForm,
)
from gantree.formats.policy.gpu_weights import weights_by
from gantree.formats.policy.queue_rules import queue_rules
from gantree.formats.policy.rules import placed_by, policy_problems
from gantree.formats.validation.forms import only_document, read_form, refuse
from gantree.model.errors import Problem
from gantree.model.jobs import Shape
from gantree.policy.rules import NEVER, Backfill, Boost, Policy, Preemption, TimeSharing
from gantree.text.document import read_documents

__all__ = ["PRESETS", "PRESET_NAMES", "preset", "preset_text", "read_policy"]

MAX_POLICY_FILE_BYTES = 1024 * 1024

AnyRules = TypeVar("AnyRules", bound=RulesForm)


def read_policy(text: str, source: str) -> Policy:
    """Read the text of a policy file: a preset and what it overrides. Raises BadFields for what is wrong."""
    form, problems = _form(PolicyForm, text, source)
    base = preset(form.preset) if form else Policy()
    return _checked(form, problems, base, source)


def preset_text(name: str) -> str:
    """Return the text of a preset's file; name is one of PRESET_NAMES."""
    assert name in PRESET_NAMES, f"{name} is no preset"
    return (files("gantree.formats") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")


@cache
def preset(name: str) -> Policy:
    """Return a preset; name is one of PRESET_NAMES."""
    form, problems = _form(RulesForm, preset_text(name), name)
    return _checked(form, problems, Policy(), name)


class _Presets(Mapping[str, Policy]):
    """All presets by name, each read on first use."""

    def __getitem__(self, name: str) -> Policy:
        if name not in PRESET_NAMES:
            raise KeyError(name)
        return preset(name)

    def __contains__(self, name: object) -> bool:
        return name in PRESET_NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(PRESET_NAMES)

    def __len__(self) -> int:
        return len(PRESET_NAMES)


PRESETS: Mapping[str, Policy] = _Presets()


def _form(kind: type[AnyRules], text: str, source: str) -> tuple[AnyRules | None, list[Problem]]:
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_POLICY_FILE_BYTES)
    document = only_document(kind, documents, problems)
    return (read_form(kind, document, problems) if document else None), problems


def _checked(form: RulesForm | None, problems: list[Problem], base: Policy, source: str) -> Policy:
    problems += policy_problems(form, base) if form else []
    refuse(problems, source)
    assert form is not None
    return _overridden(base, form)


def _overridden(base: Policy, form: RulesForm) -> Policy:
    """Return the base with all that a form gives."""
    changes = {
        "priorities": dict(base.priorities) | form.priorities,
        "order": form.order and tuple(form.order),
        "attained_levels": _tuple(form.attained_levels),
        "stretch": form.stretch,
        "age_per_day": form.age_per_day,
        "boosts": None if form.boosts is None else tuple(map(_boost, form.boosts)),
        "gpu_weights": _gpu_weights(form),
        "share_users": form.users.share,
        "share_by": form.share_by and form.share_by.weights(),
        "queues": None if form.queues is None else tuple(queue_rules(form.queues)),
        "backfill": _backfill(base.backfill, form.backfill),
        "preemption": _preemption(base.preemption, form.preempt),
        "grace_s": form.evictions.grace,
        "min_run_s": form.evictions.min_run,
        "restart_s": form.evictions.restart,
        "leave_unwell": form.evictions.leave_unwell,
        "leave_degraded": form.evictions.leave_degraded,
        "elastic": form.elastic,
        "defragment": form.defragment,
        "time_sharing": form.time_sharing
        and TimeSharing(tuple(form.time_sharing.classes), form.time_sharing.quantum),
        "placement": placed_by(form),
        "placement_seed": form.placement_seed,
        "fragmentation_weight": form.fragmentation_weight,
        "exact_s": form.exact,
        "demand": None if form.demand is None else tuple(map(_usual, form.demand)),
    }
    return replace(base, **_given(changes), **_given_or_none(form))


def _given(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in changes.items() if value is not None}


def _given_or_none(form: RulesForm) -> dict[str, Any]:
    """Return the fields of which None is a value, that a file has a word for."""
    found: dict[str, Any] = {}
    if form.half_life is not None:
        found["half_life_s"] = None if form.half_life == NONE else form.half_life
    if form.evictions.per_job_per_day is not None:
        budget = form.evictions.per_job_per_day
        found["evictions_per_day"] = None if budget == UNLIMITED else budget
    if form.idle is not None:
        rule = form.idle.rule()
        found["idle"] = None if rule == NEVER else rule
    return found


def _tuple(values: list[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values)


def _boost(form: BoostForm) -> Boost:
    return Boost(form.by, form.until, form.queue, form.user, form.job)


def _gpu_weights(form: RulesForm) -> dict[str, float] | None:
    """Return weights by model: the catalogue's by the word for `by`, and over them what is written."""
    if form.gpu_weights is None:
        return None
    word = form.gpu_weights.get(BY, WEIGHED_BY[-1])
    written = {model: float(weight) for model, weight in form.gpu_weights.items() if model != BY}
    return weights_by(str(word)) | written


def _backfill(base: Backfill, form: BackfillForm) -> Backfill:
    return replace(
        base,
        **_given(
            {
                "overtake": form.overtake,
                "reservations": form.reservations,
                "quantile": form.quantile,
                "depth": form.depth,
            }
        ),
    )


def _preemption(base: Preemption, form: PreemptForm) -> Preemption:
    who = None if form.who is None else {name: tuple(of) for name, of in form.who.items()}
    given = {"by": form.by, "who": who, "across": form.across, "gain": form.gain}
    rules = replace(base, **_given({**given, "plans": form.plans, "victims": form.victims}))
    return rules if rules.by == "priority" else replace(rules, gain=0.0)


def _usual(form: DemandForm) -> tuple[Shape, float]:
    return shape_of(form.each, form.gpu, form.node_labels), form.weight
