"""Pollux' simulated experiment (OSDI 2021): its rigid baseline and our presets under one rule of overheads.

Reads the artifact below a directory of the user's: its data have no licence that lets us carry them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

from gantree.formats.policy.reader import PRESETS
from gantree.policy.rules import Policy
from gantree.sim.experiments.experiment import Bench, Judgement, Table, Verdict, mean
from gantree.sim.experiments.published.rows import Row, against, named
from gantree.sim.pollux import ours
from gantree.sim.pollux.published import MEAN_JCT_S, TIRESIAS_MEAN_JCT_S
from gantree.sim.pollux.tiresias import DEMOTED_AT_GPU_S, Replay, replay
from gantree.sim.pollux.workload import WORKLOADS, read_profiles, read_workload

SIMULATOR = Path("adaptdl/simulator")
"""Where the artifact's simulator lies below the directory of the user's."""

TIRESIAS = "Tiresias"
AS_TIRESIAS = "least-attained-service, 16 GPU-hours"
POLICIES: Mapping[str, Policy] = {
    AS_TIRESIAS: replace(PRESETS["least-attained-service"], attained_levels=(DEMOTED_AT_GPU_S,)),
    "srsf": PRESETS["srsf"],
    "gantree": PRESETS["gantree"],
}

TOLD_APART = 0.005
"""A replay is the published run if no mean is further off than this share: placements of more than four nodes were not
measured, and we interpolate between those that were otherwise than they do."""

STOPS_NOBODY = (
    "the default preset stops no job for another of its class, so short jobs wait for long ones to end; "
    "Tiresias stops them"
)

SEEN_LATER = (
    "less than what it changes when the end of a job is seen: half a minute earlier, four of the means are "
    "0.6 to 6.7 % smaller"
)

Case = tuple[Path, int, str]
Runs = Mapping[str, Sequence[Replay]]
"""By policy, a run for each workload."""


def run_case(case: Case) -> Replay:
    """One policy, theirs or ours, on one workload."""
    directory, number, policy = case
    jobs = read_workload(directory, number, read_profiles(directory))
    return replay(jobs) if policy == TIRESIAS else ours.run(jobs, POLICIES[policy])


def runs(bench: Bench, data: Path) -> dict[str, list[Replay]]:
    """All policies on all workloads; nothing is drawn, so seeds do not matter. Raises NotFound and BadInput."""
    directory = data / SIMULATOR
    read_profiles(directory)
    cases = [
        (directory, number, policy) for policy in (TIRESIAS, *POLICIES) for number in WORKLOADS
    ]
    found: dict[str, list[Replay]] = {}
    for (_, _, policy), run in zip(cases, bench.workers.map(run_case, cases), strict=True):
        found.setdefault(policy, []).append(run)
    return found


def rows(of_policy: Runs) -> list[Row]:
    """A row for each policy: the mean over workloads of their means, the 99th percentile over all jobs."""
    return [_row(policy, found) for policy, found in of_policy.items()]


def _row(policy: str, found: Sequence[Replay]) -> Row:
    jct_s = sorted(each for run in found for each in run.jct_s)
    return Row(
        policy,
        policy != TIRESIAS,
        mean([mean(run.jct_s) for run in found]),
        jct_s[ceil(0.99 * len(jct_s)) - 1],
        mean([run.makespan_s for run in found]),
        sum(run.preemptions for run in found),
    )


def tables(of_policy: Runs) -> tuple[Table, ...]:
    """All policies beside what was published, and means by workload."""
    lines: list[tuple[str | float | None, ...]] = [
        (row.policy, "gantree" if row.ours else "Pollux'", row.mean_jct_s, row.p99_jct_s, row.makespan_s,
         row.preemptions, None if row.ours else MEAN_JCT_S[row.policy])
        for row in rows(of_policy)
    ]  # fmt: skip
    lines += [
        (f"{name}, elastic", "Pollux'", None, None, None, None, MEAN_JCT_S[name])
        for name in ("Pollux", "Optimus")
    ]
    head = (
        "policy",
        "whose",
        "mean JCT s",
        "p99 JCT s",
        "last end s",
        "preemptions",
        "published mean",
    )
    of_workload = [
        (number, TIRESIAS_MEAN_JCT_S[number - 1], *(mean(found[place].jct_s) for found in of_policy.values()))
        for place, number in enumerate(WORKLOADS)
    ]  # fmt: skip
    return (
        Table("Pollux: eight workloads of 160 jobs, 30 s for each start", head, tuple(lines)),
        Table(
            "Pollux: mean JCT s by workload",
            ("workload", "Tiresias, published", *of_policy),
            tuple(of_workload),
        ),
    )


def verdicts(of_policy: Runs) -> tuple[Verdict, ...]:
    """Whether the published row comes out again, and ours against it."""
    found, claim = rows(of_policy), "Pollux, 30 s for each start: {} no worse than Tiresias"
    tiresias = named(found, TIRESIAS)
    return (
        _reproduced(of_policy[TIRESIAS]),
        against(claim.format(AS_TIRESIAS), named(found, AS_TIRESIAS), tiresias, SEEN_LATER),
        against(claim.format("srsf"), named(found, "srsf"), tiresias),
        against(claim.format("gantree"), named(found, "gantree"), tiresias, STOPS_NOBODY),
    )


def _reproduced(found: Sequence[Replay]) -> Verdict:
    worst = max(
        abs(mean(run.jct_s) / told - 1)
        for run, told in zip(found, TIRESIAS_MEAN_JCT_S, strict=True)
    )
    return Verdict(
        "Pollux: Tiresias comes out as published (mean, by workload)",
        f"largest deviation {100 * worst:.2f} %",
        Judgement.HOLDS if worst < TOLD_APART else Judgement.MISSED,
    )


NOT_RUN = Verdict(
    "Pollux, 30 s for each start: gantree no worse than Tiresias",
    "not run: name the directory of the artifact (`--data DIR`)",
    Judgement.OPEN,
    "its data have no licence and are not carried; figures of a run are in the notes",
)
