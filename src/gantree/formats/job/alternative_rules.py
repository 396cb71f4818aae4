"""The alternative shapes of a role: what they take over from the role, and what is wrong with them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from gantree.formats.job.form import AlternativeForm, EachForm, GpuForm, JobForm, RoleForm
from gantree.model.errors import Problem
from gantree.model.gang_shapes import MILLIONTHS

OF_GPUS = frozenset(
    ("gpus", "mig", "compute_partition", "gpu_share", "gpu_memory_GiB", "isolation", "neighbours")
)
"""Fields of `each` that an alternative does not take over from its role."""
MAX_ALTERNATIVES = 8
"""Alternatives of a role: each is a search more where nothing fits."""


def alternatives_of(role: RoleForm) -> Iterator[tuple[AlternativeForm, EachForm, Sequence[str]]]:
    """Each alternative of a role, its `each` with what it takes over from the role, and its GPU models."""
    own = {name: getattr(role.each, name) for name in EachForm.model_fields if name not in OF_GPUS}
    for alternative in role.alternatives:
        written = alternative.each.written_fields()
        taken_over = {name: value for name, value in own.items() if name not in written}
        each = alternative.each.model_copy(update=taken_over)
        yield alternative, each, alternative.models() or role.models()


@dataclass(frozen=True, slots=True)
class AlternativeInRole:
    """What an alternative asks for of GPUs: its own `each`, on its models or those of its role."""

    alternative: AlternativeForm
    role: RoleForm

    @property
    def each(self) -> EachForm:
        """What a member needs, as the alternative has it."""
        return self.alternative.each

    def models(self) -> list[str]:
        """The acceptable GPU models, best first."""
        return self.alternative.models() or self.role.models()

    def any_lost(self, field: str) -> bool:
        """Whether anything of a field was taken out, here or in the role."""
        return self.alternative.any_lost(field) or self.role.any_lost(field)


def alternatives_in_roles(form: JobForm) -> Iterator[AlternativeInRole]:
    """Each alternative of a job in its role."""
    for role in form.gang:
        for alternative in role.alternatives:
            yield AlternativeInRole(alternative, role)


def gpus_listed(form: JobForm) -> Iterator[GpuForm]:
    """Every GPU model with its speed that roles and their alternatives list."""
    for role in form.gang:
        yield from chain(role.gpu, *(alternative.gpu for alternative in role.alternatives))


def alternative_problems(form: JobForm) -> Iterator[Problem]:
    """Yield what is wrong with alternatives: two that cannot be told apart, and what they exclude."""
    of_roles = [role for role in form.gang if role.alternatives]
    if not of_roles:
        return
    for role in of_roles[1:]:
        found = f"alternatives of `{role.role}` beside those of `{of_roles[0].role}`"
        yield role.problem("alternatives", found, "alternatives of one role")
    for role in of_roles:
        yield from _number_problems(role)
        yield from _alike_problems(role)
    yield from _excluded(form, of_roles[0])


def _number_problems(role: RoleForm) -> Iterator[Problem]:
    if len(role.alternatives) > MAX_ALTERNATIVES:
        allowed = f"at most {MAX_ALTERNATIVES}"
        yield role.problem("alternatives", f"{len(role.alternatives)} alternatives", allowed)


def _alike_problems(role: RoleForm) -> Iterator[Problem]:
    """Shapes differ in their part of the GPU, by which one sees what a gang got."""
    seen = {_gpu_part(role.each)}
    for alternative in role.alternatives:
        if alternative.any_lost("each"):
            continue
        part = _gpu_part(alternative.each)
        if part in seen:
            allowed = "shapes that differ in gpus, mig, compute_partition or gpu_share"
            hint = "Further models for one shape go into `gpu`, each with its `speed`."
            yield alternative.problem("each", "the same part of the GPU again", allowed, hint)
        seen.add(part)


def _gpu_part(each: EachForm) -> tuple[int, str | None, int | None]:
    share = None if each.gpu_share is None else round(each.gpu_share * MILLIONTHS)
    return each.gpus, each.profile, share


def _excluded(form: JobForm, role: RoleForm) -> Iterator[Problem]:
    """Fields that count the GPUs of one shape."""
    counts = {
        "elastic": form.elastic is not None,
        "parallelism": bool(form.parallelism.axes()) or form.parallelism.serves,
        "topology.box": form.topology.box is not None,
    }
    for field, is_given in counts.items():
        if is_given:
            allowed = f"one of them: {field} counts the GPUs of one shape"
            yield role.problem("alternatives", f"alternatives beside `{field}`", allowed)
