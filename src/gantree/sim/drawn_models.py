"""The models that the jobs of a trace train: named by the trace, or drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from gantree.formats.traces import TraceJob
from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.trained_models import ModelMix, TrainedModel
from gantree.sim.workload import job_of
from gantree.text.words import did_you_mean
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


@dataclass(frozen=True, slots=True)
class TrainedJobs:
    """Rows of a trace as jobs that train what their row names, else what a mix draws for them, else nothing.

    gpu is the model of the site's GPUs, as in `training`.
    """

    models: Mapping[str, TrainedModel]
    mix: ModelMix | None
    seed: int
    gpu: str | None

    def __call__(self, row: TraceJob) -> Job:
        """Return the job of a row. Raises BadInput for a model that is not there."""
        job = job_of(row)
        if row.model is not None:
            return self._named(row.model, row.job_id).trained_by(job)
        if self.mix is None or not job.gpus:
            return job
        return training(job, self.mix, self.models, self.seed, self.gpu)

    def _named(self, name: str, job: str) -> TrainedModel:
        if name not in self.models:
            hint = did_you_mean(name, list(self.models))
            raise BadInput(
                f"trace: job {job}: model: found `{name}`; allowed: the models of --models "
                f"({', '.join(self.models)}).{f' {hint}' if hint else ''}"
            )
        return self.models[name]


def _drawn(weight_of_model: Mapping[str, float], job: str, seed: int) -> str | None:
    if not weight_of_model:
        return None
    names, weights = zip(*weight_of_model.items(), strict=True)
    drawn: str = Random(f"{seed}/{job}").choices(names, weights)[0]  # noqa: S311 - a draw, not a secret
    return drawn
