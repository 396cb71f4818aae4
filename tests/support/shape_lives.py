"""Jobs of random lives to which alternative shapes are added."""

from dataclasses import replace
from random import Random

from gantree.model.gang_shapes import gpu_part
from gantree.model.jobs import AlternativeShape, Job, Shape
from support.random_lives import A

SHAPES = (
    Shape(gpus=1),
    Shape(gpus=2, cpus=2.0),
    Shape(gpus=4),
    Shape(mig="3g.40gb", models=(A,)),
    Shape(mig="1g.10gb", models=(A,)),
    Shape(gpu_share=0.5, neighbours=True, isolation="time-slicing"),
)


def with_alternatives(lots: Random, spec: Job) -> Job:
    """The job with one to three alternatives, which differ from each other and from its own shape."""
    (role,) = spec.roles
    seen, found = {gpu_part(role.shape)}, []
    for shape in lots.sample(SHAPES, lots.randint(1, 3)):
        if gpu_part(shape) not in seen:
            seen.add(gpu_part(shape))
            found.append(AlternativeShape(role.name, shape, lots.choice([0.25, 0.5, 1.0])))
    choose = lots.choice(["order", "order", "time", "cost"])
    return replace(spec, elastic=None, choose=choose, alternatives=tuple(found))
