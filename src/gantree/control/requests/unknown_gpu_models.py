"""GPU models that a job or a policy names and no node has, with the likely spelling."""

from collections.abc import Sequence

from gantree.model.gang_shapes import every_shape
from gantree.model.jobs import Job
from gantree.text.words import did_you_mean
from gantree.topology.fabric.fabric import Fabric


def gpu_models_of(fabric: Fabric) -> list[str]:
    """The GPU models that nodes of a fabric have, in its order."""
    machines = [fabric.machine_of_node(node) for node in range(len(fabric.nodes))]
    return list(dict.fromkeys(one.gpu for one in machines if one.gpus and one.gpu is not None))


def no_node_has(what: str, model: str, here: Sequence[str]) -> str:
    """What to say of a model that a site lacks, with the one that was probably meant; here: those that it has."""
    known = ", ".join(here) or "none with a name"
    return f"no node has {what}; models here: {known}. {did_you_mean(model, here)}".rstrip()


def models_not_here(job: Job, fabric: Fabric) -> list[str]:
    """The models that roles of a job list and no node has, each once."""
    shapes = (role.shape for _, shape in every_shape(job) for role in shape.roles)
    listed = [model for shape in shapes for model in shape.models]
    here = gpu_models_of(fabric) if listed else []
    return [model for model in dict.fromkeys(listed) if model not in here]
