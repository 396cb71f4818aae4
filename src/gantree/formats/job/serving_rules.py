"""Rules of a service in a job file: its `parallelism` has `prefill` and `decode`."""

from collections.abc import Iterator

from gantree.formats.job.form import JobForm, RoleForm
from gantree.model.errors import Problem
from gantree.model.jobs import SERVING_TRAFFIC
from gantree.text.words import plural

ROLES = ("prefill", "decode")


def serving_problems(form: JobForm) -> Iterator[Problem]:
    """Yield what is wrong with the instances of a service, and traffic of one in a job that is none."""
    if not form.parallelism.serves:
        yield from _without_instances(form)
        return
    yield from _beside_training(form)
    ways = form.parallelism
    for role in ROLES:
        if getattr(ways, role) is None and role not in ways.lost:
            yield ways.problem(role, f"no {role}", f"GPUs of each {role} instance")
    if ways.prefill and ways.decode:
        if max(ways.prefill, ways.decode) % min(ways.prefill, ways.decode):
            allowed = f"a multiple or a divisor of prefill, which is {ways.prefill}"
            yield ways.problem("decode", f"`{ways.decode}`", allowed)
        yield from _model_problems(form)
    if not form.any_lost("gang"):
        for role in ROLES:
            yield from _instance_problems(form, role)


def _without_instances(form: JobForm) -> Iterator[Problem]:
    if form.traffic is None or form.any_lost("parallelism"):
        return
    for kind, _ in form.traffic.served():
        allowed = "a service, whose parallelism has prefill and decode"
        yield form.traffic.problem(kind, f"traffic of {kind}", allowed)


def _beside_training(form: JobForm) -> Iterator[Problem]:
    """What only a job that trains has."""
    ways = form.parallelism
    for axis, _ in ways.axes():
        allowed = "prefill and decode alone: each instance is split over all its GPUs"
        yield ways.problem(axis, f"{axis} beside prefill and decode", allowed)
    for axis, _ in form.traffic.axes() if form.traffic else ():
        assert form.traffic is not None
        allowed = f"{', '.join(SERVING_TRAFFIC)} of a service"
        yield form.traffic.problem(axis, f"traffic along {axis}", allowed)
    for field, found in (("overlap", bool(form.overlap.axes())), ("elastic", bool(form.elastic))):
        if found:
            yield form.problem(field, f"{field} of a service", "no such field beside prefill")


def _instance_problems(form: JobForm, name: str) -> Iterator[Problem]:
    """The role is there, and its GPUs are whole instances."""
    ways = getattr(form.parallelism, name)
    if ways is None:
        return
    role = next((role for role in form.gang if role.role == name), None)
    if role is None:
        roles = ", ".join(role.role for role in form.gang)
        allowed = f"a gang with the role {name}; its roles are {roles}"
        yield form.parallelism.problem(name, f"`{ways}`", allowed)
    elif not role.any_lost("each") and not _is_whole(role, ways):
        gpus = f"{plural(role.members, 'member')} with {plural(role.each.gpus, 'GPU')} each"
        allowed = f"whole instances in {gpus}: some in each member, or each over some members"
        yield form.parallelism.problem(name, f"`{ways}`", allowed)


def _is_whole(role: RoleForm, ways: int) -> bool:
    gpus = role.each.gpus
    if not gpus:
        return False
    return gpus % ways == 0 or (ways % gpus == 0 and role.members * gpus % ways == 0)


def _model_problems(form: JobForm) -> Iterator[Problem]:
    """What is split over the GPUs of an instance divides by them."""
    model = form.model
    if model is None:
        return
    for role in ROLES:
        ways = getattr(form.parallelism, role)
        for field in ("hidden", "heads"):
            figure = getattr(model, field)
            if figure and figure % ways:
                allowed = f"a multiple of parallelism.{role}, which is {ways}"
                yield model.problem(field, f"`{figure}`", allowed)
