"""Draws the model that a job trains where its trace names none."""

from collections.abc import Mapping
from random import Random

from gantree.model.jobs import Job
from gantree.model.trained_models import ModelMix, TrainedModel
from gantree.topology.traffic.footprint import fits


def drawn_model(mix: ModelMix, job: str, gpus: int, seed: int) -> str | None:
    """Return the model of a job, by its id and the seed alone; None where the mix has none of its size."""
    return _drawn(mix.weights(gpus), job, seed)


def training(
    job: Job, mix: ModelMix, models: Mapping[str, TrainedModel], seed: int, gpu: str | None = None
) -> Job:
    """Return the job as one that trains the model which the mix draws for it.

    Drawn are models that fit into the memory of the GPUs; gpu is their model, None where any fits. A job for which the
    mix has none stays as it is.
    """
    weights = {
        name: weight
        for name, weight in mix.weights(job.gpus).items()
        if gpu is None or fits(models[name].trained_by(job), gpu) is not False
    }
    name = _drawn(weights, job.name, seed)
    return job if name is None else models[name].trained_by(job)


def _drawn(weight_of_model: Mapping[str, float], job: str, seed: int) -> str | None:
    if not weight_of_model:
        return None
    names, weights = zip(*weight_of_model.items(), strict=True)
    drawn: str = Random(f"{seed}/{job}").choices(names, weights)[0]  # noqa: S311 - a draw, not a secret
    return drawn
