"""What jobs that have ended used in their lives, added up."""

from dataclasses import dataclass, field

from gantree.accounting.ended_jobs import EndedJob
from gantree.accounting.usage import UsageAmounts


@dataclass(frozen=True, slots=True)
class EndedUse:
    """Jobs that used anything: how many, the largest holders first of them, and the amounts of all by GPU model.

    The model of a job that held several is their list, as in `EndedJob.gpu_model`.
    """

    jobs: int = 0
    largest: tuple[EndedJob, ...] = ()
    of_model: dict[str, UsageAmounts] = field(default_factory=dict)


def amounts_of(job: EndedJob) -> UsageAmounts:
    """What a job used; no more of it is on record than what it held, useful, idle and lost time, and waiting."""
    return UsageAmounts(
        allocated_gpu_s=job.held_gpu_s,
        useful_gpu_s=job.useful_gpu_s,
        idle_gpu_s=job.idle_gpu_s,
        lost_gpu_s=job.lost_gpu_s,
        waited_s=job.waited_s,
    )
