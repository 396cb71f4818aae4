"""One row of a trace, `TraceJob`. It imports next to nothing: whoever simulates without files needs no more."""

from dataclasses import dataclass

from gantree.model.values import quick


@quick
@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. Times in seconds; submit_s from the start of the trace.

    checkpoint_s is the time between checkpoints and time_limit_s the job's limit, None where the trace does not
    say; gpu is the model asked for, several joined by `|`, best first, None for any. expected_s is what its user
    expected of the run time, None where nobody did. preemptible is False for a job that is never stopped for another.
    elastic_min and elastic_max are members between which it may run, None for a fixed size. required and preferred are
    tiers, and each slice_members consecutive members are in one domain of the tier slice_required; at most
    spread_at_most members are in one domain of the tier `spread` (None: as evenly as possible); None where the trace
    asks for no such thing.

    A member has gpus_per_member whole GPUs, or one instance of the MIG profile `mig`, or gpu_share of one GPU's compute
    with gpu_memory_GiB of its memory (None: as much of it as of the compute). market is "on-demand", "spot" or "any";
    None as on-demand. busy is the part of the time in which its GPUs compute, as counters would tell; None: they are
    not measured. model is the name of a model in a models file, and parallelism is (axis, ways) as written.
    """

    job_id: str
    submit_s: float
    duration_s: float
    members: int
    gpus_per_member: int
    gpu: str | None = None
    queue: str = "default"
    user: str = ""
    priority: str | int = "batch"
    cpus_per_member: float = 0.0
    checkpoint_s: float | None = None
    time_limit_s: float | None = None
    expected_s: float | None = None
    preemptible: bool = True
    elastic_min: int | None = None
    elastic_max: int | None = None
    required: str | None = None
    preferred: str | None = None
    slice_members: int | None = None
    slice_required: str | None = None
    spread: str | None = None
    spread_at_most: int | None = None
    mig: str | None = None
    gpu_share: float | None = None
    gpu_memory_GiB: float | None = None
    memory_GiB_per_member: float = 0.0
    nics_per_member: int = 0
    market: str | None = None
    busy: float | None = None
    model: str | None = None
    parallelism: tuple[tuple[str, int], ...] = ()
