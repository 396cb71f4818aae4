"""What the jobs of a trace train, as a command line says it: models by name, and a mix that draws them."""

from collections.abc import Callable

from gantree.cli.input.files import read_text, source_of
from gantree.formats.traces import TraceJob
from gantree.formats.trained_models import read_mixes, read_models
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.sim.drawn_models import TrainedJobs
from gantree.sim.experiments import inputs
from gantree.sim.workload import job_of
from gantree.text.words import did_you_mean


def trained_jobs(
    models: str | None, mixes: str | None, mix: str | None, site: Cluster, seed: int
) -> Callable[[TraceJob], Job]:
    """Return what makes jobs of rows: with models of a file and a mix of a file or of the experiments.

    Without any of them jobs train nothing. Raises BadInput and BadFields.
    """
    if models is None and mix is None:
        if mixes is not None:
            raise BadInput("--mixes: a file of mixes needs --mix NAME")
        return job_of
    known = inputs.models() if models is None else read_models(read_text(models), source_of(models))
    if mix is None:
        return TrainedJobs(known, None, seed, None)
    if mixes is not None:
        there = read_mixes(read_text(mixes), source_of(mixes), known)
    elif models is None:
        there = inputs.mixes()
    else:
        raise BadInput("--mix: models of a file need a file of mixes, --mixes FILE")
    if mix not in there:
        hint = did_you_mean(mix, list(there))
        raise BadInput(
            f"--mix: found `{mix}`; allowed: {', '.join(there)}.{f' {hint}' if hint else ''}"
        )
    return TrainedJobs(known, there[mix], seed, _gpu_of(site))


def _gpu_of(site: Cluster) -> str | None:
    """The model of the GPUs where all nodes have the same."""
    machines = (site.machines[node.machine] for node in site.nodes)
    models = {machine.gpu for machine in machines if machine.gpus}
    return next(iter(models)) if len(models) == 1 else None
