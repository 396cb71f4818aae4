"""The shapes of a gang with alternatives: that of its roles as written, then each of `Job.alternatives`, in order.

A job in one shape has no alternatives. Which shape a placed gang has is not recorded: its placement tells, because
shapes of one job differ in their part of the GPU (`gpu_part`), as readers of job files check.
"""

from collections.abc import Hashable
from dataclasses import replace

from gantree.model.jobs import AlternativeShape, Job, Shape
from gantree.model.placements import MemberPlacement, Placement

MILLIONTHS = 1_000_000
"""To which part of a GPU shares are exact."""


def every_shape(job: Job) -> tuple[tuple[float, Job], ...]:
    """A job in each of its shapes, each with its speed relative to the first; the job itself if it has one only."""
    if not job.alternatives:
        return ((1.0, job),)
    written = replace(job, alternatives=())
    return ((1.0, written), *((each.speed, _in(written, each)) for each in job.alternatives))


def in_shape_of(job: Job, placement: Placement) -> tuple[float, Job]:
    """A job in the shape that a placement of it has, with its speed; as written if it has none of its shapes."""
    shapes = every_shape(job)
    if len(shapes) == 1:
        return shapes[0]
    return next((each for each in shapes if is_in_shape(each[1], placement)), shapes[0])


def is_in_shape(job: Job, placement: Placement) -> bool:
    """Whether each member has the part of a GPU that its role asks for."""
    part_of_role = {role.name: gpu_part(role.shape) for role in job.roles}
    return all(_part_held(member) == part_of_role[member.role] for member in placement.members)


def gpu_part(shape: Shape) -> Hashable:
    """What a member holds of GPUs: by this the shapes of a job are told apart."""
    share = None if shape.gpu_share is None else round(shape.gpu_share * MILLIONTHS)
    return shape.gpus, shape.mig, share


def _in(job: Job, alternative: AlternativeShape) -> Job:
    return replace(
        job,
        roles=tuple(
            replace(role, shape=alternative.shape) if role.name == alternative.role else role
            for role in job.roles
        ),
    )


def _part_held(member: MemberPlacement) -> Hashable:
    profile = member.mig[0].profile if member.mig else None
    share = None if member.share is None else round(member.share.compute * MILLIONTHS)
    return len(member.gpus), profile, share
