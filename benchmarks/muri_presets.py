"""Muri's traces under our own presets: mean against 99th percentile of completion times, beside what was published.

    python benchmarks/muri_presets.py TRACE_DIR [--traces trace3 trace4] [--rules "every event" start]
                                      [--presets NAME ...] [--policies FILE ...] [--json FILE]

Policy files may stand beside the presets, called by the names of the files. All know run times alike. SRTF, SRSF and
Tiresias-L are replayed by Muri's rules under the same rule of overheads, and move running jobs for nothing; Themis is
as published, under "every event" alone. FRONTIER says which of these four have both a smaller mean and a smaller 99th
percentile: "on it" where none has.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from gantree.cli.output.printing import columns
from gantree.formats.policy.reader import PRESETS, read_policy
from gantree.policy.rules import Policy
from gantree.sim.bench.stopwatch import Stopwatch
from gantree.sim.muri.orders import ORDERS
from gantree.sim.muri.ours import cluster_of_muri, known_job_of, overheads_of, trace_of
from gantree.sim.muri.published import PUBLISHED, TRACES
from gantree.sim.muri.replay import Rule, replay
from gantree.sim.muri.trace import MuriJob, read_muri
from gantree.sim.run import Simulation

HEAD = (
    "TRACE", "RULE", "POLICY", "MEAN JCT s", "P99 JCT s", "MAKESPAN s", "PREEMPTED", "FRONTIER", "CORE ms",
)  # fmt: skip


def rivals(jobs: Sequence[MuriJob], trace: str, rule: Rule) -> Iterator[dict[str, Any]]:
    """The published policies under a rule."""
    for name, order in ORDERS.items():
        ran = replay(jobs, order(), rule)
        yield row(trace, rule, name, ran.mean_jct_s, ran.p99_jct_s, ran.makespan_s, ran.preemptions)
    if rule == "every event":
        themis = PUBLISHED["Themis", trace]
        figures = (themis.mean_jct_s, themis.p99_jct_s, themis.makespan_s)
        yield row(trace, rule, "Themis", *figures, None)


def ours(
    jobs: Sequence[MuriJob], trace: str, rule: Rule, name: str, policy: Policy
) -> dict[str, Any]:
    """One of our policies under a rule."""
    simulation = Simulation(
        cluster_of_muri(), trace_of(jobs), policy, overheads_of(jobs, rule), known_job_of
    )
    watch = Stopwatch(simulation.scheduler)
    while simulation.step():
        pass
    summary = simulation.result().summary()
    jct_s = summary["jct_s"]
    return row(
        trace,
        rule,
        name,
        jct_s["mean"],
        jct_s["p99"],
        summary["makespan_s"],
        summary["preemptions"],
    ) | {"ours": True, "core": watch.figures(), "unfinished": summary["jobs"] - summary["finished"]}


def row(
    trace: str,
    rule: Rule,
    policy: str,
    mean_s: float,
    p99_s: float,
    makespan_s: float,
    preemptions: int | None,
) -> dict[str, Any]:
    """One line of the results."""
    return {
        "trace": trace,
        "rule": rule,
        "policy": policy,
        "mean_jct_s": round(mean_s, 1),
        "p99_jct_s": round(p99_s, 1),
        "makespan_s": round(makespan_s, 1),
        "preemptions": preemptions,
    }


def beaten_by(each: dict[str, Any], others: Sequence[dict[str, Any]]) -> list[str]:
    """The rivals of the same experiment that are better in both."""
    return [
        other["policy"]
        for other in others
        if (other["trace"], other["rule"]) == (each["trace"], each["rule"])
        and "ours" not in other
        and other["mean_jct_s"] < each["mean_jct_s"]
        and other["p99_jct_s"] < each["p99_jct_s"]
    ]


def line(each: dict[str, Any], others: Sequence[dict[str, Any]]) -> list[str]:
    """A row for people."""
    return [
        each["trace"],
        each["rule"],
        each["policy"],
        f"{each['mean_jct_s']:.0f}",
        f"{each['p99_jct_s']:.0f}",
        f"{each['makespan_s']:.0f}",
        "-" if each["preemptions"] is None else str(each["preemptions"]),
        ", ".join(beaten_by(each, others)) or "on it",
        f"{each['core']['mean_ms']:.2f}" if "core" in each else "-",
    ]


def main() -> None:
    """Print the table; write the rows after every run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, nargs="?", help="directory of Muri's traces")
    parser.add_argument("--traces", nargs="+", choices=TRACES, default=TRACES)
    parser.add_argument("--rules", nargs="+", choices=get_args(Rule), default=get_args(Rule))
    parser.add_argument("--presets", nargs="+", choices=[*PRESETS], default=[*PRESETS])
    parser.add_argument("--policies", nargs="+", type=Path, default=[], help="policy files")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    wanted = parser.parse_args()
    if wanted.directory is None:
        print("not measured: name the directory of Muri's traces", file=sys.stderr)
        return
    policies = {name: PRESETS[name] for name in wanted.presets} | {
        path.stem: read_policy(path.read_text(encoding="utf-8"), str(path))
        for path in wanted.policies
    }
    found: list[dict[str, Any]] = []
    for trace in wanted.traces:
        jobs = read_muri(wanted.directory, trace)
        for rule in wanted.rules:
            found += rivals(jobs, trace, rule)
            for name, policy in policies.items():
                print(f"{trace}, {rule}, {name}", file=sys.stderr)
                found.append(ours(jobs, trace, rule, name, policy))
                if wanted.json is not None:
                    text = json.dumps({"rows": found}, indent=1) + "\n"
                    wanted.json.write_text(text, encoding="utf-8")
    print(columns(HEAD, [line(each, found) for each in found]))


if __name__ == "__main__":
    main()
