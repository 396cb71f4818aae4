"""gang: two gangs that deadlock without all-or-nothing, with timeouts, and as gangs; then a whole trace."""

from collections.abc import Sequence
from dataclasses import dataclass

from gantree.sim.experiments.experiment import Bench, Judgement, Outcome, Table, Verdict, at_most
from gantree.sim.experiments.inputs import trace
from gantree.sim.experiments.queueing.pod_by_pod import Acted, GangJob, PodByPod

RULES: dict[str, tuple[bool, float | None]] = {
    "partial": (False, None),
    "timeout 5 min": (False, 300.0),
    "timeout 1 h": (False, 3600.0),
    "gang": (True, None),
}
"""Rule -> (all or nothing, timeout in seconds)."""

TWO = (GangJob("a", 0, 3600, 4, 8), GangJob("b", 0, 3600, 4, 8))
"""Two gangs of 4 nodes each, one hour; on 6 nodes of 8 GPUs."""
HORIZON_S = 86_400.0
"""Hung jobs are found after a day."""

NODES = 16
"""128 GPUs for the trace, which is made for 64 and asks for 64 or more most of the time."""


@dataclass(frozen=True, slots=True)
class Case:
    """A set of jobs ("two" or "trace") under a rule, with the seed of the order of pods."""

    jobs: str
    rule: str
    seed: int


def act(case: Case) -> Acted:
    """Act a case out."""
    gang, timeout_s = RULES[case.rule]
    nodes, jobs = (6, TWO) if case.jobs == "two" else (NODES, _of_trace())
    last_s = max(job.submit_s for job in jobs)
    run = PodByPod(nodes, 8, jobs, gang=gang, timeout_s=timeout_s, seed=case.seed)
    return run.run(last_s + HORIZON_S)


def _of_trace() -> Sequence[GangJob]:
    return [
        GangJob(row.job_id, row.submit_s, row.duration_s, row.members, row.gpus_per_member)
        for row in trace("muri-trace3")
    ]


def run(bench: Bench) -> Outcome:
    """Act both sets out under every rule."""
    cases = [
        Case(jobs, rule, seed)
        for jobs in ("two", "trace")
        for rule in RULES
        for seed in bench.seeds
    ]
    found = dict(zip(cases, bench.workers.map(act, cases), strict=True))
    two, trace_ = (
        {rule: [found[Case(jobs, rule, seed)] for seed in bench.seeds] for rule in RULES}
        for jobs in ("two", "trace")
    )
    hung = sum(each.hung for each in two["partial"])
    return Outcome(
        verdicts=(
            Verdict(
                "two gangs deadlock without all-or-nothing",
                f"{hung // 2} of {len(bench.seeds)} orders hang",
                Judgement.HOLDS if hung else Judgement.MISSED,
            ),
            at_most("as gangs nothing hangs", max(each.hung for each in two["gang"] + trace_["gang"]), 0, " jobs"),
            at_most("as gangs nothing is wasted", _wasted_h(two["gang"] + trace_["gang"]), 0, " GPU-hours"),
            Verdict(
                "a timeout ends the deadlock, at a price",
                f"trace: {_wasted_h(trace_['timeout 5 min']):,.0f} GPU-hours wasted at 5 min, "
                f"{_wasted_h(trace_['timeout 1 h']):,.0f} at 1 h, {_wasted_h(trace_['partial']):,.0f} without",
                Judgement.HOLDS if _wasted_h(trace_["timeout 5 min"]) > 0 else Judgement.MISSED,
            ),
        ),
        tables=(
            _table("Two gangs of 4 x 8 GPUs on 6 x 8, one hour each", two),
            _table("992 jobs of Philly on 16 x 8 GPUs", trace_),
        ),
    )  # fmt: skip


def _wasted_h(found: Sequence[Acted]) -> float:
    return sum(each.wasted_gpu_s for each in found) / len(found) / 3600


def _table(title: str, found: dict[str, list[Acted]]) -> Table:
    head = (
        "rule",
        "finished",
        "hung",
        "never bound",
        "times released",
        "GPU-hours wasted",
        "last end, days",
    )
    return Table(
        f"{title}; means over seeds",
        head,
        tuple(
            (
                rule,
                *(
                    sum(getattr(each, name) for each in runs) / len(runs)
                    for name in ("finished", "hung", "never_bound", "released")
                ),
                _wasted_h(runs),
                sum(each.until_s for each in runs) / len(runs) / 86_400,
            )
            for rule, runs in found.items()
        ),
    )
