"""The row of an ended job, of its state in the ledger that has just ended it."""

from dataclasses import replace

from gantree.accounting.ended_jobs import EndedJob
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.state import JobState
from gantree.model.arrays import in_words
from gantree.text.hostlists import folded


def ended_job(state: JobState) -> EndedJob:
    """The row of a job that has ended."""
    assert state.ended_at is not None, f"{state.job} has not ended"
    spec, spent = state.spec, state.metered.spent
    useful_gpu_s, idle_gpu_s = measured_gpu_s(state)
    return EndedJob(
        job=state.job,
        name=spec.name,
        queue=spec.queue,
        user=spec.user,
        priority=state.priority,
        outcome=state.phase.value,
        reason=state.reason,
        exit_code=state.exit_code,
        last_failure=state.last_failure,
        submitted_at=state.submitted_at,
        started_at=state.started_at,
        ended_at=state.ended_at,
        attempts=state.attempt,
        failures=state.failures,
        preemptions=state.preemptions,
        members=spec.members if state.placement is None else len(state.placement.members),
        processes=spec.processes,
        gpus=spec.gpus if state.placement is None else state.held_gpus,
        gpu_model=",".join(model for model, _ in state.metered.gpus_of_model if model),
        nodes=_nodes(state),
        held_gpu_s=sum(held for _, held, _ in spent),
        lost_gpu_s=sum(lost for _, _, lost in spent),
        waited_s=state.metered.waited_s,
        project=spec.project,
        useful_gpu_s=useful_gpu_s,
        idle_gpu_s=idle_gpu_s,
    )


def measured_gpu_s(state: JobState) -> tuple[float, float]:
    """The useful and the idle GPU-seconds of a job so far."""
    measured = state.metered.measured
    return sum(useful for _, useful, _ in measured), sum(idle for _, _, idle in measured)


def ended_elements(array: ArrayState, priority: int) -> EndedJob:
    """The row of the elements that ended before they were split from their array: one for all, by their indices."""
    one, indices = array.unsplit_element(0, priority), in_words(array.spans_with(()))
    row = replace(ended_job(one), job=f"{array.array}[{indices}]", name=array.spec.name)
    return row if array.held else replace(row, waited_s=row.ended_at - row.submitted_at)


def _nodes(state: JobState) -> str:
    """The nodes of the last attempt; a hostlist, which takes a while to make of many."""
    names = () if state.placement is None else tuple(dict.fromkeys(state.placement.nodes))
    return names[0] if len(names) == 1 else folded(names)
