"""Lower bounds for a test: the earliest end of its work and admission of its classes under any scheduler.

Cohorts are alike and lend nothing to each other, so one of them is looked at. Its quota also bounds each of its queues:
what a queue may use (20 of its own and 100 borrowed) is all of a cohort of six, and more than any can use of a larger.

makespan: for every moment of arrival, what arrives then or later cannot be over before that moment plus its
CPU-seconds over the cohort's CPUs; and no workload before its own arrival plus its run time. The largest of these.

admission: of one class, as if the others were not there. Its workloads are alike, so at most floor(quota / CPUs of one)
run at a time, and serving them in the order of arrival has the least sum of starts (identical jobs with release times
on identical machines: swapping two starts never helps). The mean wait of that schedule bounds the class's mean time to
admission from below. Bounds of different classes need not be reached at once: large work is rightly admitted first.

weighted admission: over all classes at once, every workload weighed by its CPU-seconds. Whatever runs when, the mean
moment at which a CPU-second is worked off is earliest if the cohort is never idle while work is there, whoever goes
first; the middle of a run less half of it is its start. Counted is the start of the run that finished.
"""

from heapq import heappop, heappush
from math import floor

from gantree.sim.kueue.shapes import Shape, WorkClass


def _arrivals(shape: Shape) -> list[tuple[float, float, float]]:
    """(moment, CPU-seconds that arrive in all queues of a cohort, run time), in the order of time."""
    return sorted(
        (
            (number + 1) * kind.every_s,
            kind.run_s * kind.all_cpus * shape.queues_of_cohort,
            kind.run_s,
        )
        for kind in shape.classes
        for number in range(kind.count)
    )


def makespan_bound_s(shape: Shape) -> float:
    """From time 0; arrivals begin after it."""
    bound_s = cpu_s = 0.0
    for arrival_s, work_cpu_s, run_s in reversed(_arrivals(shape)):
        cpu_s += work_cpu_s
        bound_s = max(bound_s, arrival_s + cpu_s / shape.cohort_cpus, arrival_s + run_s)
    return bound_s


def weighted_admission_bound_s(shape: Shape) -> float:
    """The least mean time from arrival to the start of the run that finished, weighed by CPU-seconds."""
    free_s = sum_cpu_s = weighted = 0.0
    for arrival_s, work_cpu_s, run_s in _arrivals(shape):
        begins_s = max(arrival_s, free_s)
        free_s = begins_s + work_cpu_s / shape.cohort_cpus
        weighted += work_cpu_s * ((begins_s + free_s) / 2 - run_s / 2 - arrival_s)
        sum_cpu_s += work_cpu_s
    return max(0.0, weighted / sum_cpu_s)


def admission_bounds_s(shape: Shape) -> dict[str, float]:
    """Class -> the least mean time to admission, in seconds."""
    return {kind.name: _mean_wait_s(shape, kind) for kind in shape.classes}


def _mean_wait_s(shape: Shape, kind: WorkClass) -> float:
    """First come, first served, with as many servers as the cohort holds of this class."""
    servers = floor(shape.cohort_cpus / kind.all_cpus + 1e-9)
    ends_s: list[float] = []
    waits_s = 0.0
    for number in range(kind.count):
        arrival_s = (number + 1) * kind.every_s
        for _ in range(shape.queues_of_cohort):
            start_s = arrival_s if len(ends_s) < servers else max(arrival_s, heappop(ends_s))
            heappush(ends_s, start_s + kind.run_s)
            waits_s += start_s - arrival_s
    return waits_s / (kind.count * shape.queues_of_cohort)
