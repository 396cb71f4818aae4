"""Jobs of the trace as the model of running has them: with checkpoints, and with restarts after failures."""

from dataclasses import replace

from gantree.model.jobs import Checkpoint, Job
from gantree.sim.running.model import RunningModel


def prepared(spec: Job, duration_s: float, model: RunningModel) -> Job:
    """The job with the default interval of checkpoints, if it tells none and works longer, and with enough restarts."""
    checkpoints, failures = model.checkpoints, model.failures
    if checkpoints is not None and checkpoints.every_s and duration_s > checkpoints.every_s:
        own = spec.checkpoint or Checkpoint()
        if own.every_s is None:
            spec = replace(spec, checkpoint=replace(own, every_s=checkpoints.every_s))
    if failures is not None and failures.restarts > spec.restarts.limit:
        spec = replace(spec, restarts=replace(spec.restarts, limit=failures.restarts))
    return spec
