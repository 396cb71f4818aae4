"""Rules between the fields of a `topology` in a job file and its gang.

Tiers are not checked here: a job is written without knowing the cluster.
"""

from collections.abc import Iterator, Sequence
from math import prod

from gantree.formats.job.form import JobForm, RoleForm
from gantree.formats.job.topology_form import ANY_BOX, SlicesForm, TopologyForm
from gantree.model.errors import Problem
from gantree.text.words import did_you_mean, plural


def topology_problems(form: JobForm) -> Iterator[Problem]:
    """Yield what is wrong with the topology of a job and those of its roles."""
    for topology, roles in _topologies(form):
        for slices in topology.slices:
            yield from _slices_problems(form, slices, roles)
        yield from _spread_problems(form, topology, roles)
    yield from _box_problems(form)
    yield from _near_problems(form)


def _topologies(form: JobForm) -> Iterator[tuple[TopologyForm, Sequence[RoleForm]]]:
    """Each topology, with the roles that it speaks of."""
    yield form.topology, form.gang
    for role in form.gang:
        yield role.topology, [role]


def _slices_problems(
    form: JobForm, slices: SlicesForm, roles: Sequence[RoleForm]
) -> Iterator[Problem]:
    """Slices are required or preferred, and may name only roles that their topology speaks of."""
    allowed, tiers = "one of required and preferred", (slices.required, slices.preferred)
    if all(tiers):
        yield slices.problem("preferred", "preferred together with required", allowed)
    elif not any(tiers) and not slices.lost & {"required", "preferred"}:
        yield slices.problem("required", "neither required nor preferred", allowed)
    names = [role.role for role in roles]
    if slices.role is None or slices.role in names or form.any_lost("gang"):
        return
    allowed = f"a role of this gang ({', '.join(names)})"
    hint = did_you_mean(slices.role, names)
    yield slices.problem("role", f"the unknown role `{slices.role}`", allowed, hint)


def _spread_problems(
    form: JobForm, topology: TopologyForm, roles: Sequence[RoleForm]
) -> Iterator[Problem]:
    """No domain can hold more members of a role together than the spread lets into it."""
    spread = topology.spread
    if spread is None or spread.at_most is None:
        return
    together = [run.members for run in topology.slices if run.required == spread.tier]
    if topology.required == spread.tier and not form.any_lost("gang"):
        together += [role.members for role in roles]
    if together and max(together) > spread.at_most:
        allowed = f"at least {max(together)}: `required` keeps so many members in one {spread.tier}"
        yield spread.problem("at_most", f"`{spread.at_most}`", allowed)


def _box_problems(form: JobForm) -> Iterator[Problem]:
    """A box holds the members of one role: as many GPUs as they have, or, of nodes, as many members on each."""
    box = form.topology.box
    if box is None or form.any_lost("gang"):
        return
    (role, *others), found = form.gang, f"`{'x'.join(map(str, box)) or ANY_BOX}`"
    size, gpus = prod(box), role.members * role.each.gpus
    if others:
        found += f" with {len(form.gang)} roles"
        allowed = "a box only for a gang of one role; other roles can be separate jobs"
    elif role.each.profile or role.each.gpu_share:
        found, allowed = (
            f"{found} of parts of GPUs",
            "a box only for members with whole GPUs: each.gpus",
        )
    elif box and form.elastic is not None:
        allowed = f"`{ANY_BOX}` for an elastic gang: a box has one size"
    elif box and size != gpus and role.members % size:
        found += f", of size {size}"
        allowed = (
            f"a box of {plural(gpus, 'GPU')} ({role.members} x {role.each.gpus}), or of nodes over which "
            f"{role.members} members are spread evenly"
        )
    else:
        return
    yield form.topology.problem("box", found, allowed)


def _near_problems(form: JobForm) -> Iterator[Problem]:
    """Groups that are weighed are those of the job's parallelism."""
    near = form.topology.near
    if near is None or form.any_lost("parallelism") or near.any_lost("weights"):
        return
    axes = [axis for axis, _ in form.parallelism.axes()]
    weights = near.weights
    allowed = f"axes of parallelism ({', '.join(axes)})" if axes else "a job with parallelism"
    if not weights.axes():
        yield near.problem("weights", "no weights", allowed)
    for axis, _ in weights.axes():
        if axis not in axes:
            yield weights.problem(axis, "a weight of an axis that the job does not have", allowed)
