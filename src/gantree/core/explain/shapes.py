"""Words for the alternative shapes of a job."""

from gantree.model.gang_shapes import every_shape
from gantree.model.jobs import Job, Shape
from gantree.text.words import plural


def other_shapes(spec: Job, told: Job) -> str:
    """A further sentence: the other shapes, none of which fits either; "" for a job with one shape.

    told: the variant whose refusal is told.
    """
    of_told = shape_in_words(spec, told)
    shapes = (shape_in_words(spec, shape) for _, shape in every_shape(spec))
    others = [each for each in dict.fromkeys(shapes) if each != of_told]
    return f" It cannot start with {' or '.join(others)} either." if others else ""


def shape_in_words(spec: Job, variant: Job) -> str:
    """What a member of a variant has of GPUs; "" for a job with one shape."""
    if not spec.alternatives:
        return ""
    role = spec.alternatives[0].role
    shape = next(each.shape for each in variant.roles if each.name == role)
    return _in_words(shape)


def _in_words(shape: Shape) -> str:
    if shape.mig is not None:
        return shape.mig
    if shape.gpu_share is not None:
        return f"{shape.gpu_share:g} of a GPU"
    return plural(shape.gpus, "GPU") if shape.gpus else "no GPU"
