"""policy.yaml to a `Policy`. What this version cannot honour is refused, never passed over."""

from dataclasses import replace

from gantree.formats.forms import only_document, read_form, refuse
from gantree.formats.job_rules import part_problems
from gantree.formats.jobs import shape_of
from gantree.formats.policy_form import NOT_YET, NOT_YET_PRESETS, DemandForm, PolicyForm
from gantree.model.errors import Problem, Unsupported
from gantree.model.jobs import Shape
from gantree.policy.rules import Policy, Preemption
from gantree.text.document import Table, read_documents
from gantree.text.words import did_you_mean

MAX_POLICY_FILE_BYTES = 1024 * 1024

PRESETS = {"gantree": Policy(), "fifo": Policy(preemption=Preemption(by="none"))}


def read_policy(text: str, source: str) -> Policy:
    """Read the text of a policy file: a preset and what it overrides.

    Raises BadFields for what is wrong, and, if nothing is, Unsupported for what this version cannot honour.
    """
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_POLICY_FILE_BYTES)
    document = only_document(PolicyForm, documents, problems)
    data = document.value if document else None
    not_yet = _take_not_yet(data, source) if isinstance(data, Table) else []
    form = read_form(PolicyForm, document, problems) if document else None
    if form is not None and form.preset not in PRESETS and form.preset not in NOT_YET_PRESETS:
        hint = did_you_mean(form.preset, list(PRESETS))
        problems.append(form.problem("preset", f"`{form.preset}`", ", ".join(PRESETS), hint))
    problems += [p for usual in form.demand for p in part_problems(usual)] if form else []
    refuse(problems, source)
    if not_yet:
        raise Unsupported("\n".join(not_yet))
    assert form is not None
    return _policy(form)


def _take_not_yet(data: Table, source: str) -> list[str]:
    """Take what this version cannot honour out of a policy, and return a sentence for each."""
    fields = [field for field in NOT_YET if field in data]
    fields += ["preset"] if data.get("preset") in NOT_YET_PRESETS else []
    sentences = []
    for field in sorted(fields, key=data.line_of):
        wish = f"`{data[field]}`" if field == "preset" else "this field"
        where = f"{source}:{data.line_of(field)}: {field}"
        sentences.append(f"{where}: {wish} is not supported by this version of gantree.")
    for field in set(fields) & set(NOT_YET):
        del data[field]
    return sentences


def _policy(form: PolicyForm) -> Policy:
    preset = PRESETS[form.preset]
    evictions = form.evictions
    per_day, weight = evictions.per_job_per_day, form.fragmentation_weight
    return replace(
        preset,
        priorities=dict(preset.priorities) | form.priorities,
        grace_s=preset.grace_s if evictions.grace is None else evictions.grace,
        min_run_s=preset.min_run_s if evictions.min_run is None else evictions.min_run,
        evictions_per_day=preset.evictions_per_day if per_day is None else per_day,
        preemption=(
            preset.preemption
            if form.preempt is None
            else replace(preset.preemption, by="priority" if form.preempt else "none")
        ),
        fragmentation_weight=preset.fragmentation_weight if weight is None else weight,
        exact_s=preset.exact_s if form.exact is None else form.exact,
        demand=tuple(_usual(usual) for usual in form.demand) or preset.demand,
    )


def _usual(form: DemandForm) -> tuple[Shape, float]:
    return shape_of(form.each, form.gpu, form.node_labels), form.weight
