"""Rules between the fields of a job file, with the line of what breaks them.

Those of its topology stand in `topology_rules`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from gantree.formats.job.alternative_rules import (
    alternative_problems,
    alternatives_in_roles,
    gpus_listed,
)
from gantree.formats.job.form import (
    AS_WRITTEN,
    EachForm,
    JobForm,
    ModelForm,
    ParallelismForm,
    RestartsForm,
    RoleForm,
    TrafficForm,
)
from gantree.formats.job.service_form import ServiceForm
from gantree.formats.job.service_rules import service_problems
from gantree.formats.job.serving_rules import serving_problems
from gantree.formats.job.topology_rules import topology_problems
from gantree.model.errors import Problem
from gantree.model.jobs import NOTIFY_EVENTS
from gantree.text.words import NAME_PATTERN, did_you_mean, plural
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.mig import mig_table

MAX_AFTER = 100_000
"""Names in `after` over all jobs of a file, arrays spread out on both sides."""


def names_of(form: JobForm) -> list[tuple[str, int | None]]:
    """Return (name, array index) of the jobs that a document stands for."""
    if form.array is None:
        return [(form.name, None)]
    return [(f"{form.name}-{index}", index) for span in form.array for index in span]


def job_problems(form: JobForm) -> list[Problem]:
    """Return everything wrong between the fields of one job."""
    return [
        *_role_name_problems(form),
        *_speed_problems(form),
        *_secret_problems(form),
        *_notify_problems(form),
        *_check_problems(form),
        *_stopping_problems(form),
        *(problem for role in form.gang for problem in part_problems(role)),
        *(problem for each in alternatives_in_roles(form) for problem in part_problems(each)),
        *alternative_problems(form),
        *topology_problems(form),
        *_elastic_problems(form),
        *_restart_problems(form.restarts),
        *_parallelism_problems(form.parallelism),
        *_rank_order_problems(form),
        *_data_problems(form),
        *(_model_problems(form.model, form.parallelism) if form.model else ()),
        *_expert_ways_problems(form),
        *(_traffic_problems(form.traffic, form) if form.traffic else ()),
        *serving_problems(form),
        *(service_problems(form) if isinstance(form, ServiceForm) else ()),
    ]


def _role_name_problems(form: JobForm) -> Iterator[Problem]:
    seen: set[str] = set()
    for role in form.gang:
        if role.role in seen:
            yield role.problem("role", f"`{role.role}` again", "each role once")
        seen.add(role.role)


def speeds_of(form: JobForm) -> tuple[tuple[str, float], ...]:
    """Return (GPU model, speed) over all roles, each model once."""
    gpus = gpus_listed(form)
    return tuple({gpu.model: gpu.speed for gpu in gpus if gpu.speed is not None}.items())


def _secret_problems(form: JobForm) -> Iterator[Problem]:
    """A variable has one value, and those that gantree sets are its own."""
    for name in form.secrets:
        if name.startswith("GANTREE_"):
            yield form.problem(
                "secrets", repr(name), "variables that gantree does not set", at=(name,)
            )
        for role in form.gang:
            if name in role.env:
                allowed = f"`env` or `secrets` for {name}, not both"
                yield form.problem(
                    "secrets", f"{name!r}, which is in `env` too", allowed, at=(name,)
                )
                break


def _notify_problems(form: JobForm) -> Iterator[Problem]:
    """What is announced goes somewhere, and somebody is told something."""
    notify = form.notify
    if notify is None or notify.any_lost("webhook") or notify.any_lost("mail"):
        return
    if notify.webhook is None and notify.mail is None:
        yield form.problem("notify", "neither webhook nor mail", "one of them, or both")
    if not notify.on and not notify.any_lost("on"):
        yield notify.problem("on", "no event", f"some of {', '.join(NOTIFY_EVENTS)}")


def _check_problems(form: JobForm) -> Iterator[Problem]:
    """NCCL does not join parts of GPUs."""
    parts = [role.role for role in form.gang if any(map(_takes_part, _every_each(role)))]
    if form.check is not None and parts:
        found = f"`check` beside parts of GPUs (role {parts[0]})"
        yield form.problem("check", found, "it where members have whole GPUs, or none")


def _every_each(role: RoleForm) -> Iterator[EachForm]:
    yield role.each
    yield from (alternative.each for alternative in role.alternatives)


def _takes_part(each: EachForm) -> bool:
    return each.profile is not None or each.gpu_share is not None or each.gpu_memory_GiB is not None


def _speed_problems(form: JobForm) -> Iterator[Problem]:
    """A job has one speed on a model."""
    known: dict[str, float] = {}
    for gpu in gpus_listed(form):
        if gpu.speed is not None and known.setdefault(gpu.model, gpu.speed) != gpu.speed:
            allowed = f"one speed of the job on {gpu.model}, which is {known[gpu.model]:g} above"
            yield gpu.problem("speed", f"`{gpu.speed:g}`", allowed)


def _stopping_problems(form: JobForm) -> Iterator[Problem]:
    """What a job says of its end and of being stopped, taken together."""
    if form.expected and form.time_limit and form.expected > form.time_limit:
        allowed = f"at most time_limit, which is {form.time_limit:g} s"
        yield form.problem("expected", f"{form.expected:g} s", allowed)
    yield from _warn_problems(form)
    if not form.spot:
        return
    may_lose_work = form.checkpoint is None and not isinstance(form, ServiceForm)
    if may_lose_work and "checkpoint" not in form.lost:
        allowed = "it beside checkpoint: spot capacity is taken back at any time"
        yield form.problem("spot", "`true` without checkpoint", allowed)
    if not form.preemptible:
        allowed = "one of them: spot capacity is taken back at any time"
        yield form.problem("spot", "`true` beside `preemptible: false`", allowed)


def _warn_problems(form: JobForm) -> Iterator[Problem]:
    """A warning comes before something, and says something that nothing else says."""
    warn = form.warn
    if warn is None or "time_limit" in form.lost:
        return
    if form.time_limit is None:
        yield form.problem("warn", "a warning without time_limit", "it beside time_limit")
        return
    if warn.before >= form.time_limit:
        allowed = f"less than time_limit, which is {form.time_limit:g} s"
        yield warn.problem("before", f"{warn.before:g} s", allowed)


class _AsksForGpus(Protocol):
    """What says what a member needs and of which GPU models: a role, or an entry of a policy's demand."""

    @property
    def each(self) -> EachForm: ...

    def models(self) -> list[str]: ...

    def any_lost(self, field: str) -> bool: ...


def part_problems(form: _AsksForGpus) -> Iterator[Problem]:
    """Yield what is wrong with the parts of GPUs that a member asks for."""
    yield from _each_problems(form.each)
    yield from _profile_problems(form)


def _each_problems(each: EachForm) -> Iterator[Problem]:
    """A member has whole GPUs, or an instance of a MIG profile or a mode, or a share of a GPU."""
    kinds = {
        "gpus": bool(each.gpus),
        "mig": bool(each.mig),
        "compute_partition": bool(each.compute_partition),
        "gpu_share": bool(each.gpu_share),
    }
    chosen = [field for field, given in kinds.items() if given]
    for field in chosen[1:]:
        yield each.problem(
            field,
            f"{field} together with {chosen[0]}",
            "one of gpus, mig, compute_partition and gpu_share",
        )
    if each.gpu_share is not None or "gpu_share" in each.lost:
        return
    of_a_share = {
        "gpu_memory_GiB": (each.gpu_memory_GiB is not None, "GPU memory of a gpu_share"),
        "isolation": (each.isolation is not None, "the isolation of a gpu_share"),
        "neighbours": (each.neighbours, "neighbours of a gpu_share"),
    }
    for field, (given, allowed) in of_a_share.items():
        if given:
            yield each.problem(field, f"{field} without gpu_share", allowed)


def _profile_problems(form: _AsksForGpus) -> Iterator[Problem]:
    """Of the GPU models that are named, one at least can be cut into the profile."""
    named = form.models()
    tables = [mig_table(model) for model in named]
    profiles = {each.name: None for table in tables if table for each in table.profiles}
    profile, field = form.each.profile, "mig" if form.each.mig else "compute_partition"
    known = all(gpu_model(model) for model in named) and not form.any_lost("gpu")
    if profile is None or not tables or not known or profile in profiles:
        return
    models = ", ".join(named)
    without = "a GPU with MIG" if form.each.mig else "a GPU with compute partitions"
    allowed = f"a profile of {models} ({', '.join(profiles)})" if profiles else without
    hint = did_you_mean(profile, profiles)
    yield form.each.problem(field, f"`{profile}` of {models}", allowed, hint)


def _elastic_problems(form: JobForm) -> Iterator[Problem]:
    elastic = form.elastic
    if elastic is None:
        return
    if elastic.min > elastic.max:
        yield elastic.problem("min", f"`{elastic.min}`", f"at most max, which is {elastic.max}")
    elif not form.any_lost("gang"):
        members = sum(role.members for role in form.gang)
        if not elastic.min <= members <= elastic.max:
            field = "min" if members < elastic.min else "max"
            allowed = f"min and max around the {plural(members, 'member')} of the gang"
            yield elastic.problem(field, f"`{getattr(elastic, field)}`", allowed)


def _restart_problems(form: RestartsForm) -> Iterator[Problem]:
    if (
        form.backoff is not None
        and form.backoff_max is not None
        and form.backoff_max < form.backoff
    ):
        found = f"{form.backoff_max:g} s"
        yield form.problem("backoff_max", found, f"at least backoff, which is {form.backoff:g} s")


def _parallelism_problems(form: ParallelismForm) -> Iterator[Problem]:
    """Experts are spread over data-parallel replicas."""
    if form.expert is not None and form.data is not None and form.data % form.expert:
        allowed = f"a divisor of data, which is {form.data}"
        yield form.problem("expert", f"`{form.expert}`", allowed)


def _rank_order_problems(form: JobForm) -> Iterator[Problem]:
    has_axes = form.parallelism.axes() or form.any_lost("parallelism")
    if form.rank_order == AS_WRITTEN and not has_axes:
        allowed = "a job with parallelism, whose order is kept"
        yield form.problem("rank_order", f"`{AS_WRITTEN}` without parallelism", allowed)


def _data_problems(form: JobForm) -> Iterator[Problem]:
    seen: set[str] = set()
    for need in form.data:
        known_as, field = need.known_as(), "name" if need.name else "path"
        if not known_as and not need.lost:
            yield need.problem("name", "neither name nor path", "one of them, or both")
        elif need.GiB is None and need.version is None and not need.lost:
            yield need.problem("GiB", "neither GiB nor version", "one of them, or both")
        if known_as in seen and known_as:
            yield need.problem(field, f"`{known_as}` again", "each data set once")
        seen.add(known_as)


def _model_problems(model: ModelForm, ways: ParallelismForm) -> Iterator[Problem]:
    """What a model must be to be cut as the parallelism says."""
    if model.heads is None and model.kv_heads is not None and "heads" not in model.lost:
        yield model.problem("kv_heads", "kv_heads without heads", "heads, or both")
    elif model.heads and model.kv_heads and model.heads % model.kv_heads:
        allowed = f"a divisor of heads, which is {model.heads}"
        yield model.problem("kv_heads", f"`{model.kv_heads}`", allowed)
    yield from _divided(model, "hidden", ways.tensor, "tensor")
    yield from _divided(model, "heads", ways.tensor, "tensor")
    yield from _divided(model, "sequence", ways.context, "context")
    yield from _divided(model, "layers", ways.pipeline, "pipeline")
    if ways.data and model.batch % (ways.data * model.micro_batch):
        allowed = f"a multiple of data x micro_batch, which is {ways.data * model.micro_batch}"
        yield model.problem("batch", f"`{model.batch}`", allowed)
    yield from _expert_problems(model, ways)


def _divided(model: ModelForm, field: str, ways: int | None, axis: str) -> Iterator[Problem]:
    """A figure of the model that is cut evenly along an axis."""
    figure = getattr(model, field)
    if ways and figure and figure % ways:
        yield model.problem(
            field, f"`{figure}`", f"a multiple of parallelism.{axis}, which is {ways}"
        )


def _expert_problems(model: ModelForm, ways: ParallelismForm) -> Iterator[Problem]:
    if model.experts is None:
        for field in ("expert_parameters", "experts_per_token"):
            if field in model.written_fields() and "experts" not in model.lost:
                yield model.problem(field, f"{field} without experts", "experts as well")
        return
    if model.experts_per_token > model.experts:
        allowed = f"at most experts, which is {model.experts}"
        yield model.problem("experts_per_token", f"`{model.experts_per_token}`", allowed)
    if ways.expert and model.experts % ways.expert:
        allowed = f"a multiple of parallelism.expert, which is {ways.expert}"
        yield model.problem("experts", f"`{model.experts}`", allowed)
    if model.expert_parameters is None:
        if "expert_parameters" not in model.lost:
            allowed = "expert_parameters as well: the parameters of all experts together"
            yield model.problem("experts", "experts without expert_parameters", allowed)
    elif model.expert_parameters > model.parameters:
        allowed = f"at most parameters, which is {model.parameters:g}"
        yield model.problem("expert_parameters", f"`{model.expert_parameters:g}`", allowed)


def _expert_ways_problems(form: JobForm) -> Iterator[Problem]:
    """A model without experts has none to spread; traffic.expert may replace them."""
    model, ways = form.model, form.parallelism.expert
    if (
        model is None
        or model.experts is not None
        or "experts" in model.lost
        or not ways
        or ways < 2
    ):
        return
    has_traffic = form.traffic is not None and (
        form.traffic.expert or "expert" in form.traffic.lost
    )
    if not has_traffic and "traffic" not in form.lost:
        found = f"`{ways}` for a model without experts"
        allowed = "a model with experts and expert_parameters, or traffic.expert"
        yield form.parallelism.problem("expert", found, allowed)


def _traffic_problems(traffic: TrafficForm, form: JobForm) -> Iterator[Problem]:
    """An axis that has traffic is one that the job has; data is there without being named."""
    ways = dict(form.parallelism.axes())
    if form.parallelism.serves:
        return
    for axis, _ in traffic.axes():
        if axis != "data" and axis not in ways and not form.any_lost("parallelism"):
            allowed = f"axes of the parallelism ({', '.join(dict.fromkeys((*ways, 'data')))})"
            yield traffic.problem(axis, f"traffic along {axis}", allowed)


def name_problems(forms: Sequence[JobForm], max_jobs: int) -> Iterator[Problem]:
    """Yield what is wrong with the names of all jobs of a file, those of the elements of arrays among them."""
    line_of_name: dict[str, int] = {}
    for form in forms:
        if "name" in form.lost:
            continue
        names = [name for name, _ in names_of(form)]
        longest = max(names, key=len)
        if not re.fullmatch(NAME_PATTERN, longest, re.ASCII):
            yield form.problem(
                "name", f"`{longest}` in the array", "job names of at most 63 characters"
            )
        yield from _repeated(form, names, line_of_name)
        if len(line_of_name) > max_jobs:
            yield form.problem("name", f"job {max_jobs + 1}", f"at most {max_jobs} jobs in a file")
            return
        own = {*names, form.name}
        for index, name in enumerate(form.after):
            if name in own:
                yield form.problem("after", f"the job `{name}` itself", "other jobs", at=(index,))


def after_problems(forms: Sequence[JobForm]) -> Iterator[Problem]:
    """Names of arrays in `after` stand for all their jobs, before each job of this one."""
    jobs_of_array, count = jobs_of_arrays(forms), 0
    for form in forms:
        count += len(names_of(form)) * sum(
            len(jobs_of_array.get(name, name[:1])) for name in form.after
        )
        if count > MAX_AFTER:
            found = f"{count} pairs of a job and one before it"
            allowed = f"at most {MAX_AFTER} in a file; put one job between two large arrays"
            yield form.problem("after", found, allowed)
            return


def jobs_of_arrays(forms: Sequence[JobForm]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the jobs of each array by its name, but for names that are also those of a job."""
    plain = {form.name for form in forms if form.array is None}
    arrays = (form for form in forms if form.array is not None and form.name not in plain)
    return {form.name: tuple(name for name, _ in names_of(form)) for form in arrays}


def _repeated(form: JobForm, names: list[str], line_of_name: dict[str, int]) -> Iterator[Problem]:
    line = form.line_of("name")
    for name in names:
        if name in line_of_name:
            found = f"`{name}` again (first in line {line_of_name[name]})"
            yield form.problem("name", found, "each job name once")
            return
    line_of_name.update((name, line) for name in names)
